"""Which imputer suits a table: hide known cells, let methods fill them in, rank them, say how sure it is."""

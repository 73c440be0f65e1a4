"""What networks are made of: layers, kernels, optimisers, the trainer."""

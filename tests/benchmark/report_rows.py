"""Small handmade result rows, as text, as they are in the files."""

from __future__ import annotations

import json
from typing import Any

Row = dict[str, Any]


def make_row(method: str = "knn", dataset: str = "california", mask: int = 0, **changes: Any) -> Row:
    """One row; settings may be given as a dict, from which the hash follows."""
    settings = changes.pop("settings", {})
    row: Row = {
        "dataset": dataset,
        "mechanism": "mcar",
        "rate": "0.3",
        "mask_seed": str(mask),
        "setting": "out_of_sample",
        "method": method,
        "label": "",
        "settings_hash": f"{method}-{json.dumps(settings, sort_keys=True)}",
        "em_round": "",
        "mae": "0.5",
        "rmse": "0.8",
        "accuracy": "",
        "fit_seconds": "2.0",
        "transform_seconds": "1.0",
        "rows": "100",
        "device": "CPU",
        "alone": "True",
        "data_fingerprint": f"print of {dataset}",
        "protocol_version": "1",
        "error": "",
        "settings": json.dumps(settings),
    }
    return row | changes


def fail(row: Row, reason: str = "MemoryError: no room") -> Row:
    """The same row as a failure."""
    return row | {"mae": "", "rmse": "", "accuracy": "", "transform_seconds": "", "error": reason}


def make_grid(
    errors: dict[str, list[float]], datasets: list[str], masks: int = 1, **changes: Any
) -> list[Row]:
    """Rows of methods whose MAE on each data set is given; masks add a little."""
    return [
        make_row(method, dataset, mask, mae=str(value + 0.001 * mask), rmse=str(value + 0.3), **changes)
        for method, values in errors.items()
        for dataset, value in zip(datasets, values, strict=True)
        for mask in range(masks)
    ]

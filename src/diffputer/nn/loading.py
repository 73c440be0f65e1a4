"""Tensors from a file: compared with what a module declares, before any of them is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

#: Type and shape of tensors, by name.
Declared = dict[str, tuple[torch.dtype, tuple[int, ...]]]


def describe_tensors(tensors: Mapping[str, Tensor]) -> Declared:
    """Type and shape of every tensor."""
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def check_declared(found: Declared, declared: Declared) -> None:
    """Raise ValueError unless both have the same names, types and shapes.

    Examples
    --------
    >>> check_declared({"w": (torch.int32, (2,))}, {"w": (torch.float32, (2,))})
    Traceback (most recent call last):
    ...
    ValueError: the tensor 'w' must be float32 of shape (2,), and is int32 of shape (2,)
    """
    if found.keys() != declared.keys():
        some = sorted(found.keys() ^ declared.keys())[0]
        raise ValueError(f"the tensor {some!r} is {'missing' if some in declared else 'not expected'}")
    for name, (dtype, shape) in declared.items():
        if found[name] != (dtype, shape):
            types = [str(one).removeprefix("torch.") for one in (dtype, found[name][0])]
            raise ValueError(
                f"the tensor {name!r} must be {types[0]} of shape {shape}, and is {types[1]} of shape "
                f"{found[name][1]}"
            )


def load_exactly(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load tensors into a module, none of which may have another name, type or shape.

    A module with arrays that are as long as its fit made them (``take_sizes``) makes room for these first.
    """
    take_sizes: Any = getattr(module, "take_sizes", None)
    if take_sizes is not None:
        take_sizes(tensors)
    check_declared(describe_tensors(tensors), describe_tensors(module.state_dict()))
    for name, tensor in tensors.items():
        if tensor.dtype == torch.bool and bool((tensor.view(torch.uint8) > 1).any()):
            raise ValueError(f"the tensor {name!r} has values that are neither true nor false")
    module.load_state_dict(dict(tensors))


def check_values(module: nn.Module) -> None:
    """Raise ValueError for values that no fit gives; modules whose numbers have a range know it."""
    for part in module.modules():
        infinite: tuple[str, ...] = getattr(part, "may_be_infinite", ())
        tensors = dict(part.named_parameters(recurse=False)) | dict(part.named_buffers(recurse=False))
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and name not in infinite and not bool(tensor.isfinite().all()):
                raise ValueError(f"the tensor {name!r} has values that are not finite")
        check: Any = getattr(part, "check_values", None)
        if check is not None:
            check()


def require(holds: Tensor | bool, what: str) -> None:
    """Raise ValueError unless all of a condition holds."""
    if not bool(torch.as_tensor(holds).all()):
        raise ValueError(f"{what}, which is not so here")


def require_between(low: float, high: float, **tensors: Tensor) -> None:
    """Raise ValueError unless all numbers lie between two others, both included."""
    for name, tensor in tensors.items():
        require((tensor >= low) & (tensor <= high), f"{name} must lie between {low:g} and {high:g}")


def require_covariance(S: Tensor, name: str) -> None:
    """Raise ValueError unless matrices are covariances, but for rounding. Shape: S [..., d, d]."""
    if S.numel():
        size = S.abs().max().clamp_min(1.0)
        require((S - S.transpose(-1, -2)).abs() <= 1e-6 * size, f"{name} must be symmetric")
        require(torch.linalg.eigvalsh(S) >= -1e-6 * size, f"{name} must be positive semidefinite")

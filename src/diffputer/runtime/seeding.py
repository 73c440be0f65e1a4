"""Randomness that belongs to rows, not to batches.

Every stream starts from one seed and a path of names (``derive_seed``). Noise of the E-step is a pure
function of (row content, draw, step, column): a counter-based generator, so that batch size, chunking,
row order, row subsets and devices do not change what a row receives. The generator is SplitMix64
(Steele, Lea and Flood, 2014) turned into normal deviates by the Box-Muller transform.
"""

from __future__ import annotations

import numbers
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import SettingError

_MASK64 = (1 << 64) - 1


def _signed(value: int) -> int:
    """Write an unsigned 64-bit constant as the signed number that torch's int64 holds."""
    value &= _MASK64
    return value - (1 << 64) if value >> 63 else value


GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SIGNED_GAMMA = _signed(GOLDEN_GAMMA)
_SIGNED_MULTIPLIERS = tuple(_signed(m) for m in _MULTIPLIERS)


def resolve_seed(random_state: Any) -> int:
    """Turn scikit-learn's ``random_state`` into one integer; ``None`` takes fresh entropy.

    Examples
    --------
    >>> resolve_seed(7)
    7
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
    if isinstance(random_state, np.random.RandomState | np.random.Generator):
        draw = (
            random_state.integers if isinstance(random_state, np.random.Generator) else random_state.randint
        )
        return int(draw(0, 2**31 - 1))
    if isinstance(random_state, bool) or not isinstance(random_state, numbers.Integral) or random_state < 0:
        raise SettingError(
            f"random_state must be a whole number from 0, a generator or None, however: {random_state!r}. "
            "Give one of these."
        )
    return int(random_state)


def derive_seed(seed: int, *path: str | int) -> int:
    """Give the seed of a named sub-stream, as a signed 64-bit integer.

    Examples
    --------
    >>> derive_seed(0, "m-step", 1) == derive_seed(0, "m-step", 1) != derive_seed(0, "m-step", 2)
    True
    """
    words = [zlib.crc32(p.encode()) if isinstance(p, str) else int(p) for p in path]
    state = np.random.SeedSequence(entropy=abs(int(seed)), spawn_key=words).generate_state(1, np.uint64)
    return _signed(int(state[0]))


def torch_generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Make a torch generator of its own, so that the global one is never touched."""
    generator = torch.Generator(device=device)
    generator.manual_seed(seed & ((1 << 63) - 1))
    return generator


def mix64(z: Tensor) -> Tensor:
    """Scramble int64 words (SplitMix64's finaliser), elementwise.

    Shape: any, int64 -> the same.
    """
    # torch shifts arithmetically; the masks make the shifts logical.
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _SIGNED_MULTIPLIERS[0]
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _SIGNED_MULTIPLIERS[1]
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def _mix64_numpy(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MULTIPLIERS[0])
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MULTIPLIERS[1])
    return z ^ (z >> np.uint64(31))


def row_keys(x: NDArray[np.float32], missing: NDArray[np.bool_], seed: int) -> NDArray[np.int64]:
    """Hash each row's observed content and pattern together with a seed.

    Two rows get the same key exactly when they show the same values in the same places, whatever
    table they stand in: the imputation of a row is then a function of the row.

    Shape: ``x`` and ``missing`` [n, D] -> keys [n], int64.
    """
    bits = (np.asarray(x, dtype=np.float32) + np.float32(0.0)).view(np.uint32).astype(np.uint64)
    bits[np.asarray(missing, dtype=bool)] = np.uint64(0xFFFFFFFF)  # a NaN pattern no observed cell has
    keys = np.full(len(bits), np.uint64(seed & _MASK64))
    for j in range(bits.shape[1]):
        offset = np.uint64(((j + 1) * GOLDEN_GAMMA) & _MASK64)
        keys = _mix64_numpy(keys ^ (bits[:, j] + offset))
    return keys.view(np.int64)


def occurrence_numbers(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count, for each row, how many rows before it carry the same key.

    Examples
    --------
    >>> occurrence_numbers(np.array([5, 9, 5, 5]))
    array([0, 0, 1, 2])
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(keys) else np.empty(0, int)
    run_start = np.repeat(starts, np.diff(np.r_[starts, len(keys)]))
    numbers = np.empty(len(keys), dtype=np.int64)
    numbers[order] = np.arange(len(keys)) - run_start
    return numbers


def distinct_keys(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give equal rows different keys, so that their draws are independent.

    The first of several equal rows keeps its key. Draws of equal rows are exchangeable, so which of
    them is the first does not matter.
    """
    numbers = occurrence_numbers(keys)
    repeated = numbers > 0
    result = keys.copy()
    mixed = _mix64_numpy(numbers[repeated].astype(np.uint64) * np.uint64(GOLDEN_GAMMA))
    result[repeated] ^= mixed.view(np.int64)
    return result


def draw_keys(keys: Tensor, draws: Sequence[int] | Tensor) -> Tensor:
    """Split each row's key into one key a draw.

    Shape: keys [n], draws [N] -> [n, N].
    """
    numbers = torch.as_tensor(draws, dtype=torch.int64, device=keys.device)
    return mix64(keys[:, None] ^ mix64((numbers + 1) * _SIGNED_GAMMA)[None, :])


def _bits(keys: Tensor, counter: Tensor | int, words: int) -> Tensor:
    steps = torch.arange(1, words + 1, dtype=torch.int64, device=keys.device) + counter * words
    return mix64(keys[..., None] + steps * _SIGNED_GAMMA)


def keyed_normal(keys: Tensor, counter: Tensor | int, width: int) -> Tensor:
    """Give standard normal noise that depends on the key and the counter alone.

    Shape: keys [...] -> [..., width], float32. The same keys must always be asked for the same width.
    """
    z = _bits(keys, counter, (width + 1) // 2)
    # 24 bits are what float32 holds exactly; u1 in (0, 1] keeps the logarithm finite.
    u1 = (((z >> 40) & 0xFFFFFF) + 1).to(torch.float32) * 2.0**-24
    u2 = ((z >> 12) & 0xFFFFFF).to(torch.float32) * 2.0**-24
    radius = torch.sqrt(-2.0 * torch.log(u1))
    angle = (2.0 * torch.pi) * u2
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=-1)[..., :width]


def keyed_uniform(keys: Tensor, counter: Tensor | int, width: int) -> Tensor:
    """Give uniform numbers in [0, 1) that depend on the key and the counter alone.

    Independent of what :func:`keyed_normal` gives for the same keys.

    Shape: keys [...] -> [..., width], float32. The same keys must always be asked for the same width.
    """
    z = _bits(mix64(keys ^ _SIGNED_GAMMA), counter, width)
    return ((z >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24

"""Operations on rows as CUDA kernels: attention, normalisation, silu with dropout, MLP blocks, Gaussians.

General kernels are made for thousands of tokens of thousands of numbers; a row has tens of columns of about
a hundred. Here a row's attention fits into registers, so that its scores are computed once and nothing but
q, k, v and the result goes through memory; a program normalises many columns, not one; and what is dropped
is not stored but drawn again for the gradient. Solvers of a GPU go from one small system to the next; here
the Gaussian of a row, given what is known of it, has a program of its own. Measurements: docs/dev/log.md.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call, override"

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Columns that are normalised by one program.
TOKENS = 32
#: Columns that go through an MLP block in one program, and hidden numbers that are computed at once.
BLOCK_TOKENS, BLOCK_HIDDEN = 64, 32
#: Columns that are projected by one program.
PROJECT_TOKENS = 128
#: Quarter of the numbers that one program activates: one round of random bits serves four.
NUMBERS = 1024


@triton.jit
def _tile(x, start, n, part, c, parts: tl.constexpr, width: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    """Pointers to q, k or v of all columns of one row and head, and which exist. Shape: [C, D]."""
    columns, depth = tl.arange(0, C)[:, None], tl.arange(0, D)[None, :]
    return x + ((start + columns * n) * parts + part) * width + depth, (columns < c) & (depth < D)


@triton.jit
def _weights(q, k, c, scale, C: tl.constexpr):
    """Softmax of the scores over the columns that exist. Shape: [C, C]."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where(tl.arange(0, C)[None, :] < c, scores, -1e30)
    powers = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    return powers / tl.sum(powers, axis=1)[:, None]


@triton.jit
def _attend(qkv, out, n, c, scale, heads: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    start = (row // n) * c * n + row % n  # the row's first column; its others follow at distance n
    qkv += head * D
    at_q, there = _tile(qkv, start, n, 0, c, 3, heads * D, D, C)
    at_k, _ = _tile(qkv, start, n, 1, c, 3, heads * D, D, C)
    at_v, _ = _tile(qkv, start, n, 2, c, 3, heads * D, D, C)
    at_out, _ = _tile(out + head * D, start, n, 0, c, 1, heads * D, D, C)
    q, k, v = tl.load(at_q, there, 0.0), tl.load(at_k, there, 0.0), tl.load(at_v, there, 0.0)
    weights = _weights(q, k, c, scale, C)
    tl.store(at_out, tl.dot(weights.to(v.dtype), v, input_precision="ieee").to(v.dtype), there)


@triton.jit
def _attend_backward(qkv, d_out, d_qkv, n, c, scale, heads: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    start = (row // n) * c * n + row % n
    qkv += head * D
    d_qkv += head * D
    at_q, there = _tile(qkv, start, n, 0, c, 3, heads * D, D, C)
    at_k, _ = _tile(qkv, start, n, 1, c, 3, heads * D, D, C)
    at_v, _ = _tile(qkv, start, n, 2, c, 3, heads * D, D, C)
    at_d_out, _ = _tile(d_out + head * D, start, n, 0, c, 1, heads * D, D, C)
    q, k, v = tl.load(at_q, there, 0.0), tl.load(at_k, there, 0.0), tl.load(at_v, there, 0.0)
    d_o = tl.load(at_d_out, there, 0.0)
    weights = _weights(q, k, c, scale, C)
    d_v = tl.dot(tl.trans(weights.to(v.dtype)), d_o, input_precision="ieee")
    d_weights = tl.dot(d_o, tl.trans(v), input_precision="ieee")
    d_scores = weights * (d_weights - tl.sum(weights * d_weights, axis=1)[:, None]) * scale
    d_scores = d_scores.to(q.dtype)
    to_q, _ = _tile(d_qkv, start, n, 0, c, 3, heads * D, D, C)
    to_k, _ = _tile(d_qkv, start, n, 1, c, 3, heads * D, D, C)
    to_v, _ = _tile(d_qkv, start, n, 2, c, 3, heads * D, D, C)
    tl.store(to_q, tl.dot(d_scores, k, input_precision="ieee").to(q.dtype), there)
    tl.store(to_k, tl.dot(tl.trans(d_scores), q, input_precision="ieee").to(q.dtype), there)
    tl.store(to_v, d_v.to(q.dtype), there)


@triton.jit
def _normalise(x, y, scales, n, W: tl.constexpr, P: tl.constexpr, T: tl.constexpr):
    tokens, places = tl.program_id(0) * T + tl.arange(0, T), tl.arange(0, P)
    there = (tokens < n)[:, None] & (places < W)[None, :]
    at = tokens.to(tl.int64)[:, None] * W + places[None, :]
    values = tl.load(x + at, there, 0.0).to(tl.float32)
    values = tl.where(there, values - (tl.sum(values, axis=1) / W)[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(values * values, axis=1) / W + 1e-5)
    tl.store(y + at, (values * scale[:, None]).to(y.dtype.element_ty), there)
    tl.store(scales + tokens, scale, tokens < n)


@triton.jit
def _normalise_backward(y, scales, d_y, d_beside, d_x, n, W: tl.constexpr, P: tl.constexpr, T: tl.constexpr):
    tokens, places = tl.program_id(0) * T + tl.arange(0, T), tl.arange(0, P)
    there = (tokens < n)[:, None] & (places < W)[None, :]
    at = tokens.to(tl.int64)[:, None] * W + places[None, :]
    values = tl.load(y + at, there, 0.0).to(tl.float32)
    slopes = tl.load(d_y + at, there, 0.0).to(tl.float32)
    scale = tl.load(scales + tokens, tokens < n, 0.0)
    mean, along = tl.sum(slopes, axis=1) / W, tl.sum(slopes * values, axis=1) / W
    result = (slopes - mean[:, None] - values * along[:, None]) * scale[:, None]
    result += tl.load(d_beside + at, there, 0.0).to(tl.float32)
    tl.store(d_x + at, result.to(d_x.dtype.element_ty), there)


@triton.jit
def _drawn(seed, share, drops: tl.constexpr, B: tl.constexpr):
    """Which numbers of a program are kept, a quarter each, and where the first quarter lies."""
    program, lane = tl.program_id(0), tl.arange(0, B)
    first = program.to(tl.int64) * (4 * B) + lane
    if drops:
        a, b, c, d = tl.rand4x(tl.load(seed), program * B + lane)
        return first, a >= share, b >= share, c >= share, d >= share
    kept = lane >= 0
    return first, kept, kept, kept, kept


@triton.jit
def _activate_some(x, y, at, kept, n, scale):
    values = tl.load(x + at, at < n, 0.0).to(tl.float32)
    values = tl.where(kept, values * tl.sigmoid(values) * scale, 0.0)
    tl.store(y + at, values.to(y.dtype.element_ty), at < n)


@triton.jit
def _activate(x, y, seed, n, share, scale, drops: tl.constexpr, B: tl.constexpr):
    at, a, b, c, d = _drawn(seed, share, drops, B)
    _activate_some(x, y, at, a, n, scale)
    _activate_some(x, y, at + B, b, n, scale)
    _activate_some(x, y, at + 2 * B, c, n, scale)
    _activate_some(x, y, at + 3 * B, d, n, scale)


@triton.jit
def _slope_some(x, d_y, d_x, at, kept, n, scale):
    values = tl.load(x + at, at < n, 0.0).to(tl.float32)
    slopes = tl.load(d_y + at, at < n, 0.0).to(tl.float32)
    gate = tl.sigmoid(values)
    slopes = tl.where(kept, slopes * gate * (1 + values * (1 - gate)) * scale, 0.0)
    tl.store(d_x + at, slopes.to(d_x.dtype.element_ty), at < n)


@triton.jit
def _activate_backward(x, d_y, d_x, seed, n, share, scale, drops: tl.constexpr, B: tl.constexpr):
    at, a, b, c, d = _drawn(seed, share, drops, B)
    _slope_some(x, d_y, d_x, at, a, n, scale)
    _slope_some(x, d_y, d_x, at + B, b, n, scale)
    _slope_some(x, d_y, d_x, at + 2 * B, c, n, scale)
    _slope_some(x, d_y, d_x, at + 3 * B, d, n, scale)


@triton.jit
def _normal(values, W: tl.constexpr):
    """Tokens with mean zero and standard deviation one. Shape: [T, W]."""
    values = values - (tl.sum(values, axis=1) / W)[:, None]
    return values * (1 / tl.sqrt(tl.sum(values * values, axis=1) / W + 1e-5))[:, None]


@triton.jit
def _project(h, weight, out, n, W: tl.constexpr, H: tl.constexpr, B: tl.constexpr, T: tl.constexpr):
    member = tl.program_id(1).to(tl.int64)
    tokens, places = tl.program_id(0) * T + tl.arange(0, T), tl.arange(0, W)
    there, token = (tokens < n)[:, None], (member * n + tokens)[:, None]
    values = tl.load(h + token * W + places[None, :], there, 0.0).to(tl.float32)
    values = _normal(values, W).to(h.dtype.element_ty)
    weight += member * W * H
    for start in range(0, H, B):
        outputs = (start + tl.arange(0, B))[None, :]
        some = tl.load(weight + places[:, None] * H + outputs)
        result = tl.dot(values, some, input_precision="ieee")
        tl.store(out + token * H + outputs, result.to(out.dtype.element_ty), there)


@triton.jit
def _block(
    h, added, merge, inner, outer, out, n, scale,
    adds: tl.constexpr, W: tl.constexpr, H: tl.constexpr, B: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1).to(tl.int64)
    tokens, places = tl.program_id(0) * T + tl.arange(0, T), tl.arange(0, W)
    there = (tokens < n)[:, None]
    at = (member * n + tokens)[:, None] * W + places[None, :]
    before = tl.load(h + at, there, 0.0).to(tl.float32)
    if adds:
        weight = tl.load(merge + member * W * W + places[:, None] * W + places[None, :])
        before += tl.dot(tl.load(added + at, there, 0.0), weight, input_precision="ieee")
    values = _normal(before, W).to(h.dtype.element_ty)
    inner += member * W * H
    outer += member * H * W
    for start in range(0, H, B):
        hidden = start + tl.arange(0, B)
        first = tl.load(inner + places[:, None] * H + hidden[None, :])
        second = tl.load(outer + hidden[:, None] * W + places[None, :])
        middle = tl.dot(values, first, input_precision="ieee")
        middle = middle * tl.sigmoid(middle) * scale
        before += tl.dot(middle.to(h.dtype.element_ty), second, input_precision="ieee")
    tl.store(out + at, before.to(out.dtype.element_ty), there)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor) -> Tensor:
        E, c, n, _, heads, D = qkv.shape
        out = torch.empty(E, c, n, heads * D, dtype=qkv.dtype, device=qkv.device)
        C = power_of_two(c)
        with torch.cuda.device(qkv.device):
            _attend[(E * n * heads,)](qkv, out, n, c, 1 / math.sqrt(D), heads, D, C, num_warps=_warps(C))
        ctx.save_for_backward(qkv)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Tensor:
        (qkv,) = ctx.saved_tensors
        E, c, n, _, heads, D = qkv.shape
        d_qkv, C = torch.empty_like(qkv), power_of_two(c)
        with torch.cuda.device(qkv.device):
            _attend_backward[(E * n * heads,)](
                qkv, d_out.contiguous(), d_qkv, n, c, 1 / math.sqrt(D), heads, D, C, num_warps=_warps(C)
            )
        return d_qkv


class _Normalisation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        W = x.shape[-1]
        n = x.numel() // W
        y, scales = torch.empty_like(x), torch.empty(n, device=x.device)
        with torch.cuda.device(x.device):
            _normalise[(triton.cdiv(n, TOKENS),)](x, y, scales, n, W, power_of_two(W), TOKENS, num_warps=4)
        ctx.save_for_backward(y, scales)
        return y, x.view_as(x)

    @staticmethod
    def backward(ctx: Any, d_y: Tensor, d_beside: Tensor) -> Tensor:
        y, scales = ctx.saved_tensors
        W, n = y.shape[-1], len(scales)
        d_x = torch.empty_like(y)
        with torch.cuda.device(y.device):
            _normalise_backward[(triton.cdiv(n, TOKENS),)](
                y, scales, d_y.contiguous(), d_beside.contiguous(), d_x, n, W, power_of_two(W), TOKENS,
                num_warps=4,
            )  # fmt: skip
        return d_x


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: Tensor | None, share: float, scale: float) -> Tensor:
        y, n, drops = torch.empty_like(x), x.numel(), seed is not None
        with torch.cuda.device(x.device):
            _activate[(triton.cdiv(n, 4 * NUMBERS),)](
                x, y, seed if drops else x, n, share, scale, drops, NUMBERS, num_warps=4
            )
        ctx.save_for_backward(x, seed)
        ctx.share, ctx.scale = share, scale
        return y

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, seed = ctx.saved_tensors
        d_x, n, drops = torch.empty_like(x), x.numel(), seed is not None
        with torch.cuda.device(x.device):
            _activate_backward[(triton.cdiv(n, 4 * NUMBERS),)](
                x, d_y.contiguous(), d_x, seed if drops else x, n, ctx.share, ctx.scale, drops, NUMBERS,
                num_warps=4,
            )  # fmt: skip
        return d_x, None, None, None


def attend(qkv: Tensor) -> Tensor:
    """Attention from every column of a row to every column.

    Shape: qkv [E, c, n, 3, heads, d], contiguous, c <= 128, d a power of two >= 16 -> [E, c, n, heads * d].
    """
    result: Tensor = _Attention.apply(qkv)
    return result


def normalise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens with mean zero and standard deviation one, and as they were, to be added to later.

    The sum of both gradients is then taken where the first one is computed.
    Shape: x [..., h], contiguous -> the same, twice.
    """
    result: tuple[Tensor, Tensor] = _Normalisation.apply(x)
    return result


def activate(x: Tensor, scale: float = 1.0, share: float = 0.0, seed: Tensor | None = None) -> Tensor:
    """silu(x) times a scale; with a seed on the device, a share of the numbers is dropped.

    Shape: x any, contiguous, seed [1] int32 -> as x.
    """
    result: Tensor = _Activation.apply(x, seed, share, scale)
    return result


def project(h: Tensor, weight: Tensor) -> Tensor:
    """norm(h) W; the normalised tokens do not go through memory.

    Shape: h [E, n, w], W [E, w, o], contiguous, w a power of two in 32..128, o a multiple of w -> [E, n, o].
    """
    (E, n, W), H = h.shape, weight.shape[2]
    out = h.new_empty(E, n, H)
    with torch.cuda.device(h.device):
        _project[(triton.cdiv(n, PROJECT_TOKENS), E)](
            h, weight, out, n, W, H, min(W, 64), PROJECT_TOKENS, num_warps=8
        )
    return out


def block(
    h: Tensor, inner: Tensor, outer: Tensor, scale: float, plus: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """h + scale silu(norm(h) W_1) W_2, written over h; nothing in between goes through memory.

    With plus = (y, W) it is done to h + y W.
    Shape: h, y [E, n, w], W [E, w, w], W_1 [E, w, i], W_2 [E, i, w], all contiguous, w a power of two in
    32..128, i a multiple of w -> as h.
    """
    E, n, W = h.shape
    added, merge = plus or (h, inner)
    with torch.cuda.device(h.device):
        _block[(triton.cdiv(n, BLOCK_TOKENS), E)](
            h, added, merge, inner, outer, h, n, scale, plus is not None, W, inner.shape[2], BLOCK_HIDDEN,
            BLOCK_TOKENS, num_warps=4,
        )  # fmt: skip
    return h


@triton.jit
def _condition(values, known, m, S, expected, rest, n_columns, jitter, D: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    there = i < n_columns
    both = there[:, None] & there[None, :]
    at = i[:, None] * n_columns + i[None, :]
    is_known = tl.load(known + row * n_columns + i, there, 0) != 0
    x = tl.load(values + row * n_columns + i, there, 0.0)
    middle = tl.load(m + i, there, 0.0)
    spread = tl.load(S + at, both, 0.0)
    for j in range(n_columns):
        here = i == j
        shared = tl.sum(tl.where(here[:, None], spread, 0.0), axis=0)
        own = tl.sum(tl.where(here, shared, 0.0), axis=0)
        counts = tl.sum(tl.where(here & is_known, 1.0, 0.0).to(tl.float64), axis=0)
        gain = shared * (counts / (own + jitter))
        middle += gain * tl.sum(tl.where(here, x - middle, 0.0), axis=0)
        spread -= gain[:, None] * shared[None, :]
    tl.store(expected + row * n_columns + i, tl.where(is_known, x, middle), there)
    kept = (is_known[:, None] | is_known[None, :]) == 0
    tl.store(rest + row * n_columns * n_columns + at, tl.where(kept, spread, 0.0), both)


def condition(values: Tensor, known: Tensor, m: Tensor, S: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
    """Expectation and covariance of rows of N(m, S) given their known part, a row in registers.

    Shape: values, known [n, d], m [d], S [d, d], d <= 64 -> [n, d], [n, d, d], zero where known.
    """
    n, d = values.shape
    values, known = values.contiguous(), known.to(torch.uint8).contiguous()
    expected, rest, D = torch.empty_like(values), values.new_empty(n, d, d), power_of_two(d)
    m, S, warps = m.contiguous(), S.contiguous(), {16: 1, 32: 2}.get(D, 8)
    with torch.cuda.device(values.device):
        _condition[(n,)](values, known, m, S, expected, rest, d, jitter, D, num_warps=warps)
    return expected, rest


def power_of_two(n: int) -> int:
    return max(16, 1 << (n - 1).bit_length())


def _warps(C: int) -> int:
    return {16: 1, 32: 1, 64: 4}.get(C, 8)


def try_out() -> None:
    """Compile and run every kernel once, on a few numbers; an error says that this cannot be done."""
    with torch.enable_grad():
        qkv = torch.ones(1, 2, 3, 3, 1, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        seed = torch.zeros(1, device="cuda", dtype=torch.int32)
        normal, beside = normalise(activate(activate(qkv), share=0.1, seed=seed))
        attend(normal + beside).sum().backward()
    weights = torch.ones(2, 1, 32, 32, device="cuda", dtype=torch.bfloat16)
    tokens = qkv.detach().view(1, -1, 32)
    block(tokens, weights[0], weights[1], 1.0, plus=(project(tokens, weights[0]), weights[1]))
    block(tokens, weights[0], weights[1], 1.0)
    halves = torch.eye(2, device="cuda", dtype=torch.float64) / 2 + 0.5
    known = torch.tensor([[True, False]], device="cuda")
    expected, rest = condition(known.double(), known, halves[0] * 0, halves, 0.0)
    found = [*expected.flatten().tolist(), *rest.flatten().tolist()]
    if found != [1.0, 0.5, 0.0, 0.0, 0.0, 0.75]:
        raise RuntimeError(f"A regression on one column gave {found}.")

"""The conditional denoiser: what is known of a row goes in clean, what is unknown noised or not at all.

A row is split into a condition c (clean), a target (blank: "sigma = infinity", or noised at sigma) and the
rest (blank). Numbers are predicted in their normal scores z (marginals.py). Blank rows come first: one
evaluation gives E[x | c], E[z | c], quantiles of z given c, and the probabilities of every level of a
category. What the quantiles leave open is a residual r (residuals.py) that is standard normal whatever the
condition; it is noised, r_t = r + sigma eps, and the same network, preconditioned for deviation one
(schedule.py), which is told middle m and spread s of each noised cell, gives

    D(r_t; sigma, c) = c_skip r_t + c_out F(c_in r_t; sigma, c, m, s)  ->  E[r | r_t, c]

For sigma -> infinity D -> E[r | c] = 0, what the blank answer says already: the blank row is the limit.
Categories are not noised but hidden and revealed one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .backbones import ColumnAttention, MemberLinear, ResidualMLP, exact_product
from .residuals import QUANTILES, Residuals, normal_quantiles
from .schedule import scalings

#: Standardised values are cut off here before the network sees them; their score z is beside them.
LARGEST_INPUT = 8.0
#: Numbers that describe a cell of a numeric column to the network.
FEATURES = 8
#: Intervals of equal probability in which a cell's place is told besides, in tables that are not too wide:
#: what changes abruptly with a column, or is not monotone in it, is then learnt sooner.
BINS, MOST_BINNED = 16, 64
#: What bfloat16 drops of a number near one is about this small.
FINE = 2.0**-7
#: Logits stay in this range, so that their exponentials can be added up as they are.
LARGEST_LOGIT = 30.0


@dataclass
class Rows:
    """What the network is told of n rows of p numeric and q categorical columns.

    Shape: x, z, known, noisy, is_noisy [n, p]; levels [n, q]; label, blank [n].
    """

    x: Tensor
    """Standardised values; the spread s where noised, 0 where blank."""
    z: Tensor
    """Normal scores; the middle m where noised, 0 where blank."""
    known: Tensor
    noisy: Tensor
    """c_in r_t where noised."""
    is_noisy: Tensor
    levels: Tensor
    """Level of each category, -1 where not known."""
    label: Tensor
    """c_noise."""
    blank: Tensor
    """Whether sigma is infinite."""

    def part(self, numbers: Tensor | slice) -> Rows:
        """Give some of the rows."""
        return Rows(**{name: values[numbers] for name, values in vars(self).items()})

    def put(self, numbers: Tensor, others: Rows) -> None:
        """Replace some of the rows, in new tensors: those that were given may be shared."""
        for name, values in vars(self).items():
            setattr(self, name, values.index_copy(0, numbers, getattr(others, name)))

    def to(self, device: torch.device) -> Rows:
        """Give the rows on another device."""
        return Rows(**{name: values.to(device) for name, values in vars(self).items()})


@dataclass
class Outputs:
    """What the network says of n rows by each of E members.

    Shape: denoised, mean [E, n, p]; quantiles [E, n, p, Q]; logits: q of [E, n, L_k].
    """

    denoised: Tensor
    """E[z | c] of blank rows, F of noised ones."""
    mean: Tensor
    """E[x | c], of blank rows."""
    quantiles: Tensor
    """Of z given c, of blank rows."""
    logits: list[Tensor]
    """Of the levels of every category."""

    def member(self, number: int) -> Outputs:
        """Give what one member says."""
        return self._each(lambda values: values[number : number + 1])

    def at(self, numbers: Tensor) -> Outputs:
        """Give what is said of some of the rows."""
        return self._each(lambda values: values[:, numbers])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Outputs:
        denoised, mean, quantiles = map(change, (self.denoised, self.mean, self.quantiles))
        return Outputs(denoised, mean, quantiles, list(map(change, self.logits)))


def describe(x: Tensor, z: Tensor, known: Tensor, levels: Tensor) -> Rows:
    """Describe blank rows.

    Shape: x, z, known [n, p]; levels [n, q], -1 where not known.
    """
    return Rows(
        x=x.clamp(-LARGEST_INPUT, LARGEST_INPUT) * known,
        z=z * known,
        known=known,
        noisy=torch.zeros_like(x),
        is_noisy=torch.zeros_like(known),
        levels=levels,
        label=torch.zeros(len(levels), device=levels.device),
        blank=torch.ones(len(levels), dtype=torch.bool, device=levels.device),
    )


def add_noise(
    blank: Rows, residuals: Residuals, noised: Tensor, r_t: Tensor, sigma: Tensor, levels: Tensor
) -> Rows:
    """Describe the same rows with noised cells, and categories that were revealed since.

    Shape: noised, r_t [n, p]; sigma [n, 1]; levels [n, q].
    """
    _, _, c_in, c_noise = scalings(sigma, 1.0)
    return Rows(
        x=torch.where(noised, residuals.spread, blank.x),
        z=torch.where(noised, residuals.middle, blank.z),
        known=blank.known,
        noisy=c_in * r_t * noised,
        is_noisy=noised,
        levels=levels,
        label=c_noise[:, 0],
        blank=torch.zeros_like(blank.blank),
    )


class NoiseFeatures(nn.Module):
    """A vector for the noise level: waves of c_noise through a layer, or one of its own for infinity.

    Shape: label, blank [E, n] -> [E, n, h].
    """

    frequencies: Tensor

    def __init__(self, members: int, width: int, waves: int = 16) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.logspace(-0.5, 1.5, waves), persistent=False)
        self.layer = MemberLinear(members, 2 * waves, width, bias=True)
        self.infinity = nn.Parameter(torch.zeros(members, 1, width))

    def forward(self, label: Tensor, blank: Tensor, dtype: torch.dtype) -> Tensor:
        angles = label[..., None] * self.frequencies
        vector = self.layer(torch.cat([angles.sin(), angles.cos()], dim=-1).to(dtype))
        return torch.where(blank[..., None], self.infinity.to(dtype), vector)


class ConditionalNetwork(nn.Module):
    """F: a backbone between the description of every column and its outputs, E members at once."""

    slot_column: Tensor
    slot_level: Tensor
    quantile_levels: Tensor
    normal_quantiles: Tensor
    bins: Tensor
    level_range: Tensor
    slots: Tensor

    def __init__(
        self,
        n_numeric: int,
        levels: Sequence[int],
        *,
        backbone: str,
        members: int,
        width: int,
        depth: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.p, self.levels, self.members, self.backbone = n_numeric, list(levels), members, backbone
        self.width, self.depth, self.dropout = width, depth, dropout
        slots = [(k, level) for k, n in enumerate(self.levels) for level in range(n)]
        pairs = torch.tensor(slots, dtype=torch.int64).reshape(-1, 2)
        self.register_buffer("slot_column", pairs[:, 0], persistent=False)
        self.register_buffer("slot_level", pairs[:, 1], persistent=False)
        self.register_buffer("quantile_levels", torch.tensor(QUANTILES), persistent=False)
        # A copy: what is given is kept for all.
        self.register_buffer("normal_quantiles", normal_quantiles().clone(), persistent=False)
        self.register_buffer("bins", torch.arange(BINS), persistent=False)
        self.n_features = FEATURES + (BINS if n_numeric <= MOST_BINNED else 0)
        self.n_outputs = 2 + len(QUANTILES)
        self.noise = NoiseFeatures(members, width)
        if backbone == "mlp":
            n_in = self.n_features * self.p + len(slots) + len(self.levels)
            n_out = self.p * self.n_outputs + len(slots)
            self.body: nn.Module = ResidualMLP(members, _rounded(n_in), width, depth, dropout)
            self.exit = MemberLinear(members, width, _rounded(n_out), bias=True)
        else:
            self.body = ColumnAttention(members, width, depth, max(1, width // 32), dropout)
            # One small layer a column in and out, as one product over columns; levels are filled up
            # to those of the column that has most, and the first input says that the level is unknown.
            most, q = max(self.levels, default=0), len(self.levels)
            self.entry_weight = nn.Parameter(torch.empty(members, self.p, self.n_features, width))
            self.exit_weight = nn.Parameter(torch.empty(members, self.p, width, _rounded(self.n_outputs)))
            self.exit_bias = nn.Parameter(torch.empty(members, self.p, _rounded(self.n_outputs)))
            self.level_entry = nn.Parameter(torch.empty(members, q, _rounded(most + 1), width))
            most = _rounded(most)
            self.level_exit = nn.Parameter(torch.empty(members, q, width, most))
            self.level_bias = nn.Parameter(torch.empty(members, q, most))
            self.register_buffer("level_range", torch.arange(self.level_entry.shape[2]) - 1, persistent=False)
            self.register_buffer("slots", pairs[:, 0] * most + pairs[:, 1], persistent=False)
        self.reset(torch.Generator().manual_seed(0))

    def forward(self, rows: Rows, dtype: torch.dtype | None = None, *, shared: bool = False) -> Outputs:
        """Evaluate, inside in the given precision (default: the weights').

        Each member has rows of its own, one member's after the other's, or all share the same.
        """
        E = self.members
        n = len(rows.label) // (1 if shared else E)
        dtype = dtype or self.noise.infinity.dtype
        # What bfloat16 would round away comes as numbers of its own.
        cells = (
            rows.x, rows.z, _fine(rows.x), _fine(rows.z), rows.known, rows.noisy, rows.is_noisy,
            torch.ones_like(rows.known),
        )  # fmt: skip
        numbers = torch.stack([cell.to(dtype) for cell in cells], dim=-1)
        if self.n_features > FEATURES:
            place = torch.special.ndtr(rows.z)[..., None] * BINS - self.bins
            filled = place.clamp(0, 1) * (rows.known | rows.is_noisy)[..., None]
            numbers = torch.cat([numbers, filled.to(dtype)], dim=-1)
        label, blank, levels = rows.label, rows.blank, rows.levels
        if shared:
            label, blank = label.repeat(E), blank.repeat(E)
            numbers, levels = numbers.repeat(E, 1, 1), levels.repeat(E, 1)
        noise = self.noise(label.view(E, n), blank.view(E, n), dtype)
        numeric, logits = (self._mlp if self.backbone == "mlp" else self._attention)(numbers, levels, noise)
        rest = numeric.shape[-1] - self.n_outputs
        denoised, mean, quantiles, _ = numeric.float().split([1, 1, len(QUANTILES), rest], dim=-1)
        logits = logits.float().clamp(-LARGEST_LOGIT, LARGEST_LOGIT)
        return Outputs(
            denoised.squeeze(-1), mean.squeeze(-1), quantiles, list(logits.split(self.levels, dim=-1))
        )

    def _mlp(self, numbers: Tensor, levels: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        E, n, _ = noise.shape
        indicators = (levels[:, self.slot_column] == self.slot_level).to(noise.dtype)
        parts = [numbers.flatten(1), indicators, (levels < 0).to(noise.dtype)]
        width = sum(part.shape[1] for part in parts)
        if rest := _rounded(width) - width:
            parts.append(indicators.new_zeros(E * n, rest))
        h = self.body(torch.cat(parts, dim=1).view(E, n, width + rest), noise)
        out = self.exit(h.float())  # bfloat16 would round the answers
        sizes = [self.p * self.n_outputs, len(self.slot_level)]
        numeric, logits, _ = out.split([*sizes, out.shape[-1] - sum(sizes)], dim=-1)
        return numeric.reshape(E, n, self.p, self.n_outputs), logits

    def _attention(self, numbers: Tensor, levels: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        # Columns come before rows: each column's own layers are then plain batched products.
        E, n, width = noise.shape
        dtype, p, q = noise.dtype, self.p, len(self.levels)

        def by_column(cells: Tensor) -> Tensor:
            columns, size = cells.shape[1:]
            return cells.view(E, n, columns, size).transpose(1, 2).reshape(E * columns, n, size)

        def times(cells: Tensor, weight: Tensor, product: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
            return product(cells, weight.flatten(0, 1)).view(E, weight.shape[1], n, weight.shape[3])

        def enter(cells: Tensor, weight: Tensor) -> Tensor:
            return times(by_column(cells), weight.to(dtype), torch.bmm)

        tokens = enter(numbers, self.entry_weight)
        if q:
            indicators = (levels[..., None] == self.level_range).to(dtype)
            tokens = torch.cat([tokens, enter(indicators, self.level_entry)], dim=1)
        h = self.body(tokens + noise[:, None])
        numeric = times(h[:, :p].reshape(E * p, n, width), self.exit_weight, exact_product)
        numeric = (numeric + self.exit_bias[:, :, None]).transpose(1, 2)
        if not q:
            return numeric, numeric.new_zeros(E, n, 0)
        logits = times(h[:, p:].reshape(E * q, n, width), self.level_exit, exact_product)
        logits = (logits + self.level_bias[:, :, None]).transpose(1, 2)
        return numeric, logits.flatten(2).index_select(2, self.slots)

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Draw fresh weights; what ends a residual branch starts small."""
        if self.noise.infinity.is_meta:  # made for its shapes only
            return
        for name, module in self.named_modules():
            if isinstance(module, MemberLinear):
                small = "outer" in name or "merge" in name
                module.reset(generator, 0.3 if small else 1.0)
        self.noise.infinity.zero_()
        if self.backbone != "mlp":
            # Answers start small beside their biases: as if they had 4,096 inputs.
            for parameter, fan_in in (
                (self.entry_weight, FEATURES), (self.exit_weight, 4096),
                (self.level_entry, FEATURES), (self.level_exit, 4096),
            ):  # fmt: skip
                values = torch.randn(parameter.shape, generator=generator) / math.sqrt(fan_in)
                parameter.copy_(values.to(parameter.device))
        # At first every cell is taken to be standard normal in z.
        bias = torch.cat([torch.zeros(2), self.normal_quantiles.cpu()])
        if self.backbone == "mlp":
            assert self.exit.bias is not None
            self.exit.bias[..., : self.p * self.n_outputs] = bias.repeat(self.p).to(self.exit.bias.device)
        else:
            self.exit_bias.zero_()
            self.exit_bias[..., : self.n_outputs] = bias.to(self.exit_bias.device)
            self.level_bias.zero_()

    def matrices(self) -> list[nn.Parameter]:
        """Give the weights between hidden layers, which orthogonalised steps are for."""
        return [p for name, p in self.body.named_parameters() if not name.startswith("entry")]

    def fresh(self, members: int, dtype: torch.dtype = torch.float32) -> ConditionalNetwork:
        """Give a network of the same shape with so many members, to be given weights, in a precision."""
        network = ConditionalNetwork(
            self.p,
            self.levels,
            backbone=self.backbone,
            members=members,
            width=self.width,
            depth=self.depth,
            dropout=self.dropout,
        )
        for parameter in network.parameters():
            parameter.data = parameter.data.to(dtype)
        return network.to(self.slot_level.device)

    def member(self, number: int) -> ConditionalNetwork:
        """Give a copy that holds one member only."""
        one = self.fresh(1)
        one.load_state_dict({key: value[number : number + 1] for key, value in self.state_dict().items()})
        return one.requires_grad_(False).eval()


def _fine(values: Tensor) -> Tensor:
    """Give what bfloat16 drops of numbers."""
    return (values - values.bfloat16().float()) / FINE


def _rounded(n: int) -> int:
    """Round up to a multiple of eight, which is what matrix units take."""
    return -(-n // 8) * 8

"""The network: from the known cells of a row to a distribution of every cell.

Each column has a softmax over its support and, if it is numeric, a mean. Logits start from the frequencies of
the classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...nn.layers import ColumnAttention, MemberLinear, ResidualMLP, exact_product
from ..base import Cells, Predictive, RowBatch

#: Standardised values beyond this are cut off where the network sees them; their normal scores are not.
LARGEST_INPUT = 8.0
#: Numbers that describe a cell of a numeric column, without its piecewise-linear encoding.
FEATURES = 6
#: Intervals of the piecewise-linear encoding, used for tables with at most so many numeric columns.
BINS, MOST_BINNED = 16, 64
#: What bfloat16 drops of a number near one is about this small.
FINE = 2.0**-7
#: Logits stay in this range.
LARGEST_LOGIT = 30.0


@dataclass(frozen=True)
class Outputs:
    """What E members say of every cell. Shape: mean [E, n, p], bins [E, n, p, B], levels [E, n, S]."""

    mean: Tensor
    bins: Tensor
    """Logits of the classes of numeric columns."""
    levels: Tensor
    """Logits of the categories of all categorical columns, side by side."""


def _rounded(n: int) -> int:
    """Round up to a multiple of eight, as matrix units want it."""
    return -(-n // 8) * 8


def _fine(values: Tensor) -> Tensor:
    """What bfloat16 drops of numbers."""
    return (values - values.bfloat16().float()) / FINE


class Network(nn.Module):
    """A backbone between the features of every column and its outputs, E members at once."""

    slot_column: Tensor
    slot_level: Tensor
    places: Tensor
    class_logits: Tensor
    level_logits: Tensor
    level_range: Tensor
    slots: Tensor

    def __init__(
        self,
        n_numeric: int,
        n_bins: int,
        levels: Sequence[int],
        *,
        backbone: str,
        members: int,
        width: int,
        depth: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.p, self.B, self.levels = n_numeric, n_bins, list(levels)
        self.members, self.backbone, self.width, self.depth = members, backbone, width, depth
        self.dropout = dropout
        slots = [(k, level) for k, n in enumerate(self.levels) for level in range(n)]
        pairs = torch.tensor(slots, dtype=torch.int64).reshape(-1, 2)
        self.register_buffer("slot_column", pairs[:, 0], persistent=False)
        self.register_buffer("slot_level", pairs[:, 1], persistent=False)
        self.register_buffer("places", torch.arange(BINS), persistent=False)
        # Logits start from the logarithms of frequencies; a class that does not exist has -1e4.
        self.register_buffer("class_logits", torch.zeros(n_numeric, n_bins))
        self.register_buffer("level_logits", torch.zeros(len(slots)))
        self.n_features = FEATURES + (BINS if n_numeric <= MOST_BINNED else 0)
        self.n_outputs = 1 + n_bins
        if backbone == "mlp":
            n_in = self.n_features * self.p + len(slots) + len(self.levels)
            n_out = self.p * self.n_outputs + len(slots)
            self.bias = nn.Parameter(torch.zeros(members, 1, width))
            self.body: nn.Module = ResidualMLP(members, _rounded(n_in), width, depth, dropout)
            self.exit = MemberLinear(members, width, _rounded(n_out), bias=True)
        else:
            most, q = max(self.levels, default=0), len(self.levels)
            heads = max(1, width // 32)
            self.body = ColumnAttention(members, width, depth, heads, dropout)
            self.entry_weight = nn.Parameter(torch.empty(members, self.p, self.n_features, width))
            self.exit_weight = nn.Parameter(torch.empty(members, self.p, width, _rounded(self.n_outputs)))
            self.exit_bias = nn.Parameter(torch.zeros(members, self.p, 1, _rounded(self.n_outputs)))
            self.level_entry = nn.Parameter(torch.empty(members, q, _rounded(most + 1), width))
            most = _rounded(most)
            self.level_exit = nn.Parameter(torch.empty(members, q, width, most))
            self.level_bias = nn.Parameter(torch.zeros(members, q, 1, most))
            self.register_buffer("level_range", torch.arange(self.level_entry.shape[2]) - 1, persistent=False)
            self.register_buffer("slots", pairs[:, 0] * most + pairs[:, 1], persistent=False)
        self.reset(torch.Generator().manual_seed(0))

    def forward(self, rows: RowBatch, dtype: torch.dtype = torch.float32, *, shared: bool = False) -> Outputs:
        """Evaluate, inside in the given precision.

        Each member has rows of its own, one member's after the other's, or all share the same.
        """
        E = self.members
        cells = (rows.x.clamp(-LARGEST_INPUT, LARGEST_INPUT), rows.z)
        flags = rows.known, torch.ones_like(rows.known)
        numbers = torch.stack([cell.to(dtype) for cell in (*cells, *map(_fine, cells), *flags)], dim=-1)
        if self.n_features > FEATURES:
            place = torch.special.ndtr(rows.z)[..., None] * BINS - self.places
            numbers = torch.cat([numbers, (place.clamp(0, 1) * rows.known[..., None]).to(dtype)], dim=-1)
        levels = rows.levels
        if shared:
            numbers, levels = numbers.repeat(E, 1, 1), levels.repeat(E, 1)
        numeric, logits = (self._mlp if self.backbone == "mlp" else self._attention)(numbers, levels, dtype)
        numeric = numeric.float()
        return Outputs(
            numeric[..., 0],
            numeric[..., 1 : self.n_outputs].clamp(-LARGEST_LOGIT, LARGEST_LOGIT) + self.class_logits,
            logits.float().clamp(-LARGEST_LOGIT, LARGEST_LOGIT) + self.level_logits,
        )

    @torch.no_grad()
    def predict(
        self, rows: RowBatch, cells: Cells, dtype: torch.dtype, *, in_turn: bool = False
    ) -> Predictive:
        """What the members predict together, or each of rows of its own, one member's after the other's."""
        outputs: Outputs = self(rows, dtype, shared=not in_turn)
        parts = outputs.mean, outputs.bins, outputs.levels
        mean, bins, levels = (one.flatten(0, 1)[None] for one in parts) if in_turn else parts
        mean, bins = (one[:, cells.rows, cells.columns] for one in (mean, bins))
        logits = levels.split(self.levels, dim=-1) if self.levels else ()
        return Predictive(
            mean.mean(dim=0),
            bins.softmax(dim=-1).mean(dim=0),
            [one.softmax(dim=-1).mean(dim=0) for one in logits],
        )

    @torch.no_grad()
    def take_frequencies(self, classes: Tensor, valid: Tensor, levels: Tensor) -> None:
        """Start from these frequencies. Shape: classes, valid [p, B], levels [S]."""
        self.class_logits.copy_(classes.clamp_min(1e-6).log().masked_fill(~valid, -1e4))
        self.level_logits.copy_(levels.clamp_min(1e-6).log())

    def _mlp(self, numbers: Tensor, levels: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        E, n = self.members, len(levels) // self.members
        indicators = (levels[:, self.slot_column] == self.slot_level).to(dtype)
        parts = [numbers.flatten(1), indicators, (levels < 0).to(dtype)]
        width = sum(part.shape[1] for part in parts)
        if rest := _rounded(width) - width:
            parts.append(indicators.new_zeros(E * n, rest))
        h = self.body(
            torch.cat(parts, dim=1).view(E, n, width + rest),
            self.bias.to(dtype).expand(E, n, -1).contiguous(),
        )
        out = self.exit(h.float())  # bfloat16 would round the answers
        sizes = [self.p * self.n_outputs, len(self.slot_level)]
        numeric, logits, _ = out.split([*sizes, out.shape[-1] - sum(sizes)], dim=-1)
        return numeric.reshape(E, n, self.p, self.n_outputs), logits

    def _attention(self, numbers: Tensor, levels: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        # Columns come before rows: each column's own layers are then plain batched products.
        E, n, p, q = self.members, len(levels) // self.members, self.p, len(self.levels)

        def by_column(cells: Tensor) -> Tensor:
            columns, size = cells.shape[1:]
            return cells.view(E, n, columns, size).transpose(1, 2).reshape(E * columns, n, size)

        def times(cells: Tensor, weight: Tensor, product: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
            return product(cells, weight.flatten(0, 1)).view(E, weight.shape[1], n, weight.shape[3])

        tokens = times(by_column(numbers), self.entry_weight.to(dtype), torch.bmm)
        if q:
            indicators = (levels[..., None] == self.level_range).to(dtype)
            tokens = torch.cat(
                [tokens, times(by_column(indicators), self.level_entry.to(dtype), torch.bmm)], dim=1
            )
        h = self.body(tokens)
        numeric = times(h[:, :p].reshape(E * p, n, self.width), self.exit_weight, exact_product)
        numeric = (numeric + self.exit_bias).transpose(1, 2)
        if not q:
            return numeric, numeric.new_zeros(E, n, 0)
        logits = times(h[:, p:].reshape(E * q, n, self.width), self.level_exit, exact_product)
        logits = (logits + self.level_bias).transpose(1, 2)
        return numeric, logits.flatten(2).index_select(2, self.slots)

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Draw fresh weights; what ends a residual branch starts small, and answers start at zero."""
        if next(self.parameters()).is_meta:
            return
        for name, module in self.named_modules():
            if isinstance(module, MemberLinear):
                small = "outer" in name or "merge" in name
                module.reset(generator, 0.3 if small else 1.0)
        if self.backbone == "mlp":
            self.bias.zero_()
            self.exit.weight.mul_(0.1)
            return
        for parameter, fan_in in (
            (self.entry_weight, FEATURES), (self.exit_weight, 4096),
            (self.level_entry, FEATURES), (self.level_exit, 4096),
        ):  # fmt: skip
            values = torch.randn(parameter.shape, generator=generator) / math.sqrt(fan_in)
            parameter.copy_(values.to(parameter.device))
        self.exit_bias.zero_()
        self.level_bias.zero_()

    def matrices(self) -> list[nn.Parameter]:
        """The weights between hidden layers, which take orthogonalised steps."""
        return [p for name, p in self.body.named_parameters() if not name.startswith("entry")]

    def fresh(self, members: int, dtype: torch.dtype = torch.float32) -> Network:
        """A network of the same shape with so many members, whose weights are yet to be drawn."""
        network = Network(
            self.p, self.B, self.levels, backbone=self.backbone, members=members, width=self.width,
            depth=self.depth, dropout=self.dropout,
        )  # fmt: skip
        for parameter in network.parameters():
            parameter.data = parameter.data.to(dtype)
        network.class_logits.copy_(self.class_logits)
        network.level_logits.copy_(self.level_logits)
        return network.to(self.places.device)

    def member(self, number: int) -> Network:
        """A copy that holds one member only."""
        one = self.fresh(1)
        own = {name: value[number : number + 1] for name, value in self.named_parameters()}
        one.load_state_dict(own, strict=False)
        return one.requires_grad_(False).eval()

"""Arithmetic on columns, written as text: + - * / and numbers, and nothing else; no code is run.

Python's own parser reads the text; only the parts named here are understood, everything else is an error.
Names that are not identifiers stand in backquotes, as in pandas: ``"`net price` * 1.2"``.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diffputer.errors import InputError
from diffputer.tables.cells import Floats

LONGEST = 1000  # characters: what is longer is no formula that a person wrote
_ALLOWED = "column names, numbers, + - * / and brackets; names that are no identifiers stand in backquotes"


class NotAffineError(Exception):
    """An expression is not linear in what is unknown."""


@dataclass(frozen=True)
class Expression:
    """A formula of columns.

    Attributes
    ----------
    text
        As it was written.
    names
        The columns that it needs, in order of appearance.

    Examples
    --------
    >>> total = parse_expression("a + 2 * `net price`")
    >>> total.names
    ('a', 'net price')
    >>> total.evaluate({"a": np.array([1.0]), "net price": np.array([10.0])})
    array([21.])
    >>> constant, slopes = total.solve_for({"a": np.array([1.0])}, ["net price"])
    >>> constant, slopes
    (array([1.]), {'net price': array([2.])})
    """

    text: str
    names: tuple[str, ...]
    _tree: ast.expr
    _quoted: tuple[str, ...]

    def evaluate(self, values: Mapping[str, Floats]) -> Floats:
        """Compute the formula, [n]; not finite where it divides by zero."""
        return self.solve_for(values, ())[0]

    def solve_for(
        self, values: Mapping[str, Floats], unknown: tuple[str, ...] | list[str]
    ) -> tuple[Floats, dict[str, Floats]]:
        """Write the formula as constant + Σ slope · unknown, for each row.

        Parameters
        ----------
        values
            The columns that are known, [n].
        unknown
            Names of the others.

        Returns
        -------
        constant, slopes
            [n], and for each unknown [n]. Raises :class:`NotAffineError` if the formula is not of this form.
        """
        n = len(next(iter(values.values()))) if values else 1
        with np.errstate(all="ignore"):
            constant, slopes = self._affine(self._tree, values, frozenset(unknown))
        full = np.broadcast_to(np.asarray(constant, dtype=np.float64), (n,)).copy()
        return full, {
            name: np.broadcast_to(np.asarray(slope, dtype=np.float64), (n,)).copy()
            for name, slope in slopes.items()
        }

    def _affine(
        self, node: ast.expr, values: Mapping[str, Floats], unknown: frozenset[str]
    ) -> tuple[Floats, dict[str, Floats]]:
        if isinstance(node, ast.Constant):
            return np.float64(node.value), {}  # type: ignore[arg-type, return-value]
        if isinstance(node, ast.Name):
            name = _name(node.id, self._quoted)
            return (np.float64(0.0), {name: np.float64(1.0)}) if name in unknown else (values[name], {})  # type: ignore[return-value, dict-item]
        if isinstance(node, ast.UnaryOp):
            constant, slopes = self._affine(node.operand, values, unknown)
            if isinstance(node.op, ast.UAdd):
                return constant, slopes
            return -constant, {name: -slope for name, slope in slopes.items()}
        assert isinstance(node, ast.BinOp)
        left, left_slopes = self._affine(node.left, values, unknown)
        right, right_slopes = self._affine(node.right, values, unknown)
        if isinstance(node.op, ast.Add | ast.Sub):
            sign = 1.0 if isinstance(node.op, ast.Add) else -1.0
            slopes = dict(left_slopes)
            for name, slope in right_slopes.items():
                slopes[name] = slopes.get(name, 0.0) + sign * slope
            return left + sign * right, slopes
        if isinstance(node.op, ast.Mult):
            if left_slopes and right_slopes:
                raise NotAffineError
            factor, slopes = (left, right_slopes) if right_slopes else (right, left_slopes)
            return left * right, {name: factor * slope for name, slope in slopes.items()}
        if right_slopes:
            raise NotAffineError
        return left / right, {name: slope / right for name, slope in left_slopes.items()}


def parse_expression(text: str) -> Expression:
    """Read a formula.

    Examples
    --------
    >>> parse_expression("(a - b) / 2").names
    ('a', 'b')
    >>> parse_expression("__import__('os')")
    Traceback (most recent call last):
    ...
    diffputer.errors.InputError: A formula must be made of column names, numbers, + - * / and brackets; \
names that are no identifiers stand in backquotes; "__import__('os')" has a call.
    """
    tree, quoted = _parse(text)
    names: list[str] = []
    _check(tree, text, quoted, names)
    if not names:
        raise InputError(
            f"A formula must name columns, however: {text!r} names none. Use bounds for constants."
        )
    return Expression(text, tuple(dict.fromkeys(names)), tree, quoted)


def parse_inequality(text: str) -> list[tuple[str, str]]:
    """Read an inequality between columns as pairs (smaller, larger).

    Examples
    --------
    >>> parse_inequality("start <= middle <= end"), parse_inequality("b >= a")
    ([('start', 'middle'), ('middle', 'end')], [('a', 'b')])
    """
    rule = "An inequality compares columns by <= or >=, such as 'start <= end'"
    tree, quoted = _parse(text, "An inequality", rule)
    if not isinstance(tree, ast.Compare):
        raise InputError(f"{rule}, however: {text!r} does not.")
    sides = [tree.left, *tree.comparators]
    if not all(isinstance(side, ast.Name) for side in sides):
        raise InputError(
            f"{rule}, however: {text!r} compares something else. Use bounds for constants, and derived for "
            "columns that are computed."
        )
    names = [_name(side.id, quoted) for side in sides if isinstance(side, ast.Name)]
    pairs = []
    for place, operator in enumerate(tree.ops):
        first, second = names[place], names[place + 1]
        if not isinstance(operator, ast.LtE | ast.GtE):
            raise InputError(f"{rule}, however: {text!r} has another comparison. Write <= or >=.")
        if first == second:
            raise InputError(f"{rule}, however: {text!r} compares {first!r} with itself.")
        pairs.append((first, second) if isinstance(operator, ast.LtE) else (second, first))
    return pairs


def _parse(
    text: str, what: str = "A formula", rule: str = f"A formula is made of {_ALLOWED}"
) -> tuple[ast.expr, tuple[str, ...]]:
    if not isinstance(text, str) or len(text) > LONGEST:
        shown = f"it has {len(text):,} characters" if isinstance(text, str) else f"it is {text!r}"
        raise InputError(f"{what} must be text of at most {LONGEST:,} characters, however: {shown}.")
    quoted: list[str] = []

    def keep(match: re.Match[str]) -> str:
        quoted.append(match[1])
        return f" {_placeholder(len(quoted) - 1)} "

    plain = re.sub(r"`([^`]+)`", keep, text)
    try:
        tree = ast.parse(plain.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InputError(f"{rule}, however: {text!r} cannot be read ({reason}).") from None
    return tree.body, tuple(quoted)


def _placeholder(number: int) -> str:
    return f"backquoted_name_{number}_"


def _name(identifier: str, quoted: tuple[str, ...]) -> str:
    match = re.fullmatch(r"backquoted_name_(\d+)_", identifier)
    return quoted[int(match[1])] if match and int(match[1]) < len(quoted) else identifier


def _check(node: ast.expr, text: str, quoted: tuple[str, ...], names: list[str]) -> None:
    """Refuse all but the few parts that are understood; collect the names."""
    if isinstance(node, ast.Name):
        names.append(_name(node.id, quoted))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        _check(node.left, text, quoted, names)
        _check(node.right, text, quoted, names)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        _check(node.operand, text, quoted, names)
    elif not (
        isinstance(node, ast.Constant)
        and type(node.value) in (int, float)
        and math.isfinite(_float(node.value))
    ):
        part = getattr(node, "op", node)
        sort = type(part).__name__.lower()
        article = "an" if sort[0] in "aeiou" else "a"
        raise InputError(f"A formula must be made of {_ALLOWED}; {text!r} has {article} {sort}.")


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf

"""Which figures results allow, and their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .bars import draw_bars
from .critical import draw_critical_difference
from .document import make_boards
from .drawing import save_png, save_svg
from .entries import Entry, Key
from .layout import Picture
from .leaderboard import Leaderboard, title_board
from .measures import MEASURES, OF_TIME
from .pareto import draw_error_against_seconds, draw_error_against_seconds_by_dataset, title_seconds
from .records import Record, Results, name_kind
from .series import draw_draws, draw_em_curve, draw_rates, draw_steps

_SECONDS = MEASURES["seconds"]


def draw_board(board: Leaderboard) -> tuple[Picture, ...]:
    """Draw the bars of a leaderboard and its critical-difference diagram, where there is one."""
    pictures = [Picture(f"bars-{_slug(board)}", f"Bars: {title_board(board)}", draw_bars(board))]
    critical = draw_critical_difference(board)
    if critical is not None:
        pictures.append(Picture(f"ranks-{_slug(board)}", f"Mean ranks: {title_board(board)}", critical))
    return tuple(pictures)


def draw_overviews(
    results: Results, entries: Mapping[Key, Entry], boards: Sequence[Leaderboard]
) -> tuple[Picture, ...]:
    """Draw error against seconds, and the curves that the rows hold."""
    pictures: list[Picture] = []

    def add(name: str, title: str, figure: object) -> None:
        if figure is not None:
            pictures.append(Picture(name, title, figure))

    everyone = list(entries.values())
    settings = list(dict.fromkeys(board.setting for board in boards))
    times = {
        (b.mechanism, b.rate, b.setting): b for b in make_boards(results, entries, ["seconds"], settings)
    }
    for board in boards:
        time = times.get((board.mechanism, board.rate, board.setting))
        if board.measure.name in OF_TIME or time is None:
            continue
        title = title_seconds(board)
        add(f"seconds-{_slug(board)}", f"{title}, average", draw_error_against_seconds(board, time, everyone))
        by_dataset = draw_error_against_seconds_by_dataset(board, time, everyone)
        add(f"seconds-by-dataset-{_slug(board)}", f"{title}, by data set", by_dataset)
    for measure in dict.fromkeys(board.measure for board in boards):
        if measure.name in OF_TIME:
            continue
        for setting in settings:
            where = f"{measure.title}, {setting.replace('_', ' ')}"
            slug = f"{measure.name}-{setting}"
            for kind, records in _by_kind(results.curve).items():
                curve = draw_em_curve(records, entries, measure, setting)
                add(f"em-rounds-{slug}-{kind}", f"EM rounds: {where}, {_name_kind(records)}", curve)
            for kind, records in _by_kind(results.final).items():
                draws = draw_draws(records, entries, measure, setting)
                add(f"draws-{slug}-{kind}", f"Number of draws: {where}, {_name_kind(records)}", draws)
                steps = draw_steps(records, entries, measure, _SECONDS, setting)
                add(f"steps-{slug}-{kind}", f"Sampling steps: {where}, {_name_kind(records)}", steps)
            for mechanism in dict.fromkeys(record.mechanism for record in results.final):
                rates = draw_rates(results.final, entries, measure, setting, mechanism)
                add(
                    f"rates-{slug}-{mechanism}",
                    f"Share of missing cells: {where}, {name_kind(mechanism)}",
                    rates,
                )
    return tuple(pictures)


def save_pictures(pictures: Iterable[Picture], folder: Path) -> dict[str, Path]:
    """Save pictures as PNG and SVG; give the PNG files by the names of the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = {}
    for picture in pictures:
        path = folder / f"{picture.name}.png"
        save_png(picture.figure, path)
        save_svg(picture.figure, path.with_suffix(".svg"))
        saved[picture.name] = path
    return saved


def _by_kind(records: Iterable[Record]) -> dict[str, list[Record]]:
    kinds: dict[str, list[Record]] = {}
    for record in records:
        kinds.setdefault(f"{record.mechanism}-{record.rate:g}", []).append(record)
    return kinds


def _name_kind(records: Sequence[Record]) -> str:
    return name_kind(records[0].mechanism, records[0].rate)


def _slug(board: Leaderboard) -> str:
    return f"{board.measure.name}-{board.setting}-{board.mechanism}-{board.rate:g}"

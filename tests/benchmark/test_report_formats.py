"""A report says everything that happened, in every format, and what it quotes stays text."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from diffputer.benchmark.datasets import PAPER_DATASETS
from diffputer.benchmark.report.document import make_boards, make_report
from diffputer.benchmark.report.entries import list_entries
from diffputer.benchmark.report.html import write_html
from diffputer.benchmark.report.latex import write_latex
from diffputer.benchmark.report.layout import Report
from diffputer.benchmark.report.markdown import write_markdown
from diffputer.benchmark.report.measures import MEASURES
from diffputer.benchmark.report.notes import Note, find_note, read_notes
from diffputer.benchmark.report.of_record import keep_record
from diffputer.benchmark.report.readme import replace_table, summarise
from diffputer.benchmark.report.records import admit_rows
from diffputer.benchmark.report.results_page import make_report as make_results
from diffputer.benchmark.report.results_page import write_page
from diffputer.benchmark.report.terminal import print_report
from diffputer.errors import InputError

from ..browser import BROWSER, DRIVER, Browser
from .report_rows import Row, fail, make_grid, make_row

#: As good as equal.
PAIR = (("knn", "0.5"), ("mice", "0.5000001"))
NASTY = "<script>alert(1)</script> 50 % & a_b $x$ {y} #1 | `c` *d* [e]"


def print_text(report: Report, width: int = 120) -> str:
    buffer = io.StringIO()
    print_report(report, Console(file=buffer, width=width))
    return buffer.getvalue()


WRITERS = {"terminal": print_text, "markdown": write_markdown, "latex": write_latex, "html": write_html}


def report(rows: list[Row], **more) -> Report:
    return make_report(admit_rows(rows), **more)


def words_of(text: str) -> str:
    return re.sub(r"[\s│┃]+", " ", text)


@pytest.fixture
def rows() -> list[Row]:
    datasets = ["california", "letter", "adult"]
    made = make_grid({"diffputer-paper": [0.3, 0.3, 0.47], "mice": [0.5, 0.5, 0.6]}, datasets, masks=2)
    made.append(fail(make_row("missforest", "letter"), "OutOfTime: 60 s were not enough"))
    made.append(make_row("missforest", "adult"))
    cannot = "InSampleOnlyError: completes only the table that it is fitted on"
    made.append(fail(make_row("hyperimpute", "letter"), cannot))
    made.append(make_row("mice", "letter", 1, mae="0.49"))
    made.append(make_row("knn", "letter", data_fingerprint="stale"))
    return made


@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_tells_what_happened(kind, rows):
    text = words_of(WRITERS[kind](report(rows)))
    for words in (
        "OutOfTime: 60 s were not enough",  # the reason of a failure
        "failed",
        "the last one counted",  # a repeated row
        "stale",  # a refused row
        "33.47",  # published
        "0.898",  # its ratio
        "Friedman over 3 data sets",
        "(exact: of all arrangements of the ranks)",
        "Wilcoxon",
        "Left out for want of results: missforest (has 1 of 6); hyperimpute (has 0 of 6).",
    ):
        assert words in text, words
    assert "Differs from the paper by more than 10" in text


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_far_from_the_paper_is_explained_below_its_table_or_said_to_be_unexplained(kind):
    rows = [
        make_row("mice", name, setting="in_sample", accuracy=accuracy)
        for name, accuracy in (("adult", "0.61"), ("default", "0.61"), ("shoppers", "0.43"))
    ]
    notes = read_notes(
        """
        [[note]]
        method = "mice"
        kind = "guess"
        why = "Perhaps the moon."
        [[note]]
        method = "mice"
        kind = "measured"
        datasets = ["adult", "shoppers"]
        measures = ["accuracy"]
        why = "Their categories are coded otherwise."
        """
    )

    def explain(*place: str) -> Note | None:
        return max((n for n in notes if n.is_about(*place)), key=lambda n: len(n.where), default=None)

    text = words_of(WRITERS[kind](report(rows, measures=["accuracy"], explain=explain)))
    assert "measured: Their categories are coded otherwise." in text  # adult
    assert "guess: Perhaps the moon." in text  # default
    assert text.count("coded otherwise") == 1  # shoppers is near the paper
    assert "not explained yet" not in text
    text = words_of(WRITERS[kind](report(rows, measures=["accuracy"], explain=lambda *_: None)))
    assert "Not explained yet, 2: mice on adult" in text


def test_notes_that_say_too_little_are_refused():
    for text in ('method = "knn"', 'method = "knn"\nkind = "sure"\nwhy = "x"', 'kind = "guess"\nwhy = "x"'):
        with pytest.raises(InputError, match="A note must have"):
            read_notes(f"[[note]]\n{text}")


def test_shipped_notes_are_about_methods_and_data_sets_that_there_are():
    from diffputer.benchmark.report.notes import read_shipped
    from diffputer.methods.table import METHODS

    assert read_shipped()
    for note in read_shipped():
        assert note.method in METHODS or note.method.startswith("diffputer-")
        assert note.why.endswith(".")
        assert set(note.where.get("measures", ())) <= set(MEASURES)
        assert set(note.where.get("settings", ())) <= {"in_sample", "out_of_sample"}
        assert set(note.where.get("mechanisms", ())) <= {"mcar", "mar", "mnar"}
        assert set(note.where.get("datasets", ())) <= set(PAPER_DATASETS)
        assert set(note.where.get("sides", ())) <= {"better", "worse"}


def test_a_note_of_one_side_does_not_explain_the_other():
    rows = [
        make_row("mice", name, setting="in_sample", accuracy=accuracy)
        for name, accuracy in (("adult", "0.61"), ("default", "0.31"))
    ]
    note = read_notes('[[note]]\nmethod = "mice"\nkind = "guess"\nsides = ["better"]\nwhy = "It is good."')[0]
    made = report(rows, measures=["accuracy"], explain=lambda *place: note if note.is_about(*place) else None)
    text = words_of(write_markdown(made))
    assert "Not explained yet, 1: mice on default" in text
    assert text.count("guess: It is good.") == 1


@pytest.mark.parametrize(
    ("place", "kind", "words"),
    [
        (("diffputer-conditional", "mnar", "in_sample", "rmse", "magic", "worse"), "measured", "Masks"),
        (("diffputer-conditional", "mar", "in_sample", "mae", "bean", "better"), "measured", "partly masks"),
        (("diffputer-conditional", "mcar", "in_sample", "mae", "news", "better"), "derived", "Another"),
        (("em-gaussian", "mar", "in_sample", "mae", "adult", "better"), "guess", "Not masks"),
        (("knn", "mcar", "in_sample", "accuracy", "news", "better"), "guess", "bit by bit"),
    ],
)  # fmt: skip
def test_shipped_notes_blame_what_was_found(place, kind, words):
    note = find_note(*place)
    assert note is not None
    assert note.kind == kind
    assert words in note.why


def test_no_shipped_note_explains_why_the_default_engine_should_be_worse_than_published():
    assert find_note("diffputer-conditional", "mcar", "in_sample", "mae", "california", "worse") is None


def test_partial_results_are_averaged_over_common_tasks_and_told():
    datasets = ["california", "letter", "adult"]
    rows = make_grid({"mean": [0.7, 0.8, 0.9], "mice": [0.5, 0.5, 0.6]}, datasets, masks=3)
    rows += make_grid({"knn": [0.4, 0.4, 0.4]}, datasets)  # a single mask
    rows += make_grid({"missforest": [0.1]}, ["letter"])  # hardly begun
    text = words_of(write_markdown(report(rows, measures=["mae"])))
    assert "2 entries on the 9 tasks" in text
    assert "knn (has 3 of 9); missforest (has 1 of 9)" in text
    rows = [row for row in rows if row["method"] != "mice"]
    text = words_of(write_markdown(report(rows, measures=["mae"])))
    assert "2 entries on the 3 tasks" in text
    assert "Results are there of 9 tasks" in text
    assert "| knn | **40.00** | **40.00** | **40.00** | **40.00** | 1.00 | 1 |" in text


@pytest.mark.parametrize("kind", WRITERS)
def test_in_sample_only_methods_have_a_dash(kind, rows):
    lines = [line for line in WRITERS[kind](report(rows)).splitlines() if "hyperimpute" in line]
    assert any(re.search(r"(–|--)", line) for line in lines)


@pytest.mark.parametrize("kind", WRITERS)
def test_energy_distances_without_draws_are_marked(kind):
    rows = [make_row("diffputer-paper", energy="0.01", rows_drawn="9"), make_row("mice", energy="0.02")]
    text = words_of(WRITERS[kind](report(rows, measures=["energy"])))
    assert text.count("of the table filled in once, not of draws") == 1
    drawn = [row | {"rows_drawn": "9"} for row in rows]
    assert "filled in once" not in WRITERS[kind](report(drawn, measures=["energy"]))


def test_of_many_that_are_left_out_some_are_named():
    rows = make_grid({"mean": [0.7, 0.8], "mice": [0.5, 0.5]}, ["california", "letter"], masks=9)
    rows += [make_row(f"rival-{i}") for i in range(9)]
    text = write_markdown(report(rows, measures=["mae"]))
    assert "rival-5 (has 1 of 18); and 3 more." in text
    assert "rival-6 (has" not in text


def test_entries_to_rank_that_share_nothing_are_named():
    rows = [make_row("a"), make_row("b", mask=1), make_row("c"), make_row("c", mask=1)]
    text = write_markdown(report(rows, measures=["mae"], rank=["a", "b"]))
    assert "Nobody is ranked: a; b have no task in common." in text


def test_nothing_is_bold_where_fewer_than_two_are_ranked():
    text = write_markdown(report([make_row("a"), make_row("b", mask=1)], measures=["mae"]))
    table = text.split("lower is better**")[1]
    assert "**" not in table
    assert "<u>" not in table


def test_doubtful_numbers_are_marked(rows):
    text = write_markdown(report(rows, lookup=lambda *_: (0.1, True)))
    assert "10.00?, 3.005" in text
    assert "mean ratio" not in text
    assert "0 of 0 measurements" in text


def test_best_and_second_are_set_apart(rows):
    made = report(rows)
    assert "**30.05** ± 0.07" in write_markdown(made)
    assert "<u>49.50</u>" in write_markdown(made)
    assert r"\textbf{30.05} $\pm$ 0.07" in write_latex(made)
    assert r"\underline{49.50}" in write_latex(made)
    assert "<b>30.05</b>" in write_html(made)
    assert "30.05** ±0.07" in print_text(made)


def test_wide_tables_are_split_in_the_terminal(rows):
    made = report(make_grid({"mean": [0.5] * 9, "knn": [0.4] * 9}, [f"data set {i}" for i in range(9)]))
    lines = print_text(made, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(any(f"data set {i}" in line for line in lines) for i in range(9))


def test_latex_is_balanced_and_escaped():
    text = write_latex(report([make_row(label=NASTY), fail(make_row("mice"), NASTY), make_row("a_b")]))
    assert r"50 \% \& a\_b \$x\$ \{y\} \#1" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") > 0
    assert text.count(r"\toprule") == text.count(r"\bottomrule") > 0
    bare = re.sub(r"\\[{}%&_#$]", "", "\n".join(t for t in text.splitlines() if not t.startswith("%")))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    for line in bare.splitlines():
        if line.endswith(r"\\"):
            assert "_" not in line
            assert "%" not in line


def test_rows_of_latex_tables_have_as_many_cells_as_columns(rows):
    text = write_latex(report(rows)).replace(r"\&", "")
    for columns, body in re.findall(r"\\begin{tabular}{(\w+)}(.*?)\\end{tabular}", text, re.DOTALL):
        for line in body.splitlines():
            if line.endswith(r"\\"):
                assert line.count("&") == len(columns) - 1


class Tags(HTMLParser):
    """Collects tags and complains of those that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_is_whole_needs_no_network_and_is_escaped():
    rows = [make_row(label=NASTY), fail(make_row("mice"), NASTY), make_row("<b>bold</b>", "<i>")]
    text = write_html(report(rows, title=NASTY, pictures=True))
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    names = [tag for tag, _ in tags.seen]
    assert names.count("script") == 1
    assert "i" not in names
    sources = [attributes["src"] for tag, attributes in tags.seen if tag == "img"]
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert not any("href" in attributes for _, attributes in tags.seen)
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", text)


@pytest.mark.skipif(not (DRIVER and BROWSER), reason="needs chromium and chromedriver: no page was opened")
def test_html_needs_no_sideways_scrolling_in_a_narrow_window(rows, tmp_path):
    long = "results_of_a_suite_whose_name_goes_on_and_on_and_on_without_any_place_to_break_a_line.csv"
    page = tmp_path / "page.html"
    page.write_text(write_html(report([*rows, fail(make_row("em"), long)], title=long)), encoding="utf-8")
    with Browser() as phone:
        phone.become_a_phone(420)
        phone.open(page)
        assert phone.run("return document.documentElement.scrollWidth") <= 420


def test_markdown_tables_have_as_many_cells_as_columns():
    rows = [make_row(label=NASTY), fail(make_row("mice"), NASTY), make_row("a|b")]
    text = write_markdown(report(rows))
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) > 2
    for lines in tables:
        assert len({line.replace(r"\|", "").count("|") for line in lines.splitlines()}) == 1
    assert "<script>" not in write_markdown(report(rows))


def test_reports_of_little_do_not_fail():
    for rows in ([make_row()], [fail(make_row())], [make_row(em_round="1")], [make_row(mae="", rmse="")]):
        for write in WRITERS.values():
            assert "Entries" in write(report(rows))


def test_seconds_of_a_busy_machine_and_of_other_devices_are_marked():
    rows = [make_row("mean", alone="False"), make_row("knn", device="GPU")]
    text = write_markdown(report(rows, measures=["seconds"]))
    assert "the machine did other work at the same time" in text
    assert "Seconds of different devices do not compare" in text


def test_other_rates_are_counted():
    rows = [make_row(), make_row(mask=1), make_row(rate="0.7")]
    assert "70 % (1)" in write_markdown(report(rows))
    both = write_markdown(report(rows, rates=(0.3, 0.7)))
    assert "MCAR 70 %" in both


def test_headings_name_mechanisms_as_people_do_and_nothing_is_minus_nothing():
    rows = [make_row(m, mechanism=k, mae=e) for k in ("self_masking", "mcar") for m, e in PAIR]
    text = write_markdown(report(rows, measures=["mae"]))
    assert "out of sample, self-masking 30 %" in text
    assert "out of sample, MCAR 30 %" in text
    assert "| 0/0/1 | 0.00 |" in text or "| 1/0/0 | 0.00 |" in text
    assert not re.search(r"[-+]0\.00", text)


def test_a_failure_after_the_scores_is_a_footnote():
    text = write_markdown(report([make_row(error="RuntimeError: no draws"), make_row("mice")]))
    assert "failed afterwards: RuntimeError: no draws" in text
    assert "**50.00**<sup>1</sup>" in text


def test_the_readme_gets_averages_and_a_figure(rows):
    table, figure = summarise(admit_rows(rows), measures=("mae",))
    assert "| diffputer-paper | **35.72** | 1.00 | 0.945 | 3.00 |" in table
    assert "| mice | <u>53.20</u> | 2.00 | 1.443 | 3.00 |" in table  # to DiffPuter's number, whoever it is
    assert "averages over 3 data sets, 6 tasks that all have" in table
    assert (
        "hyperimpute (completes only the table that it is fitted on); missforest (has 1 of 6 tasks)." in table
    )
    assert "1 result failed." in table
    assert figure is not None
    assert summarise(admit_rows(rows), mechanism="mar") == ("Out of sample, MAR 30 %: no results.\n", None)


def test_the_readme_keeps_what_diffputer_has_and_tells_devices():
    rows = make_grid({"mean": [0.7, 0.8], "knn": [0.5, 0.6]}, ["california", "letter"], masks=2, threads="1")
    rows += make_grid(
        {"diffputer-conditional": [0.3]}, ["letter"], device="GPU", threads="4", label="diffputer-balanced"
    )
    rows += [make_row("diffputer-conditional", "letter", mae="0.1", label="an experiment", settings={"a": 1})]
    kept = keep_record(admit_rows(rows))
    table, figure = summarise(kept, measures=("mae",))
    assert "| diffputer-conditional | **30.00** | 1.00 | 0.978 | 3.00 | GPU |" in table
    assert "| knn | <u>60.00</u> | 2.00 | 1.955 | 3.00 | CPU, 1 thread |" in table
    assert "1 data set, 1 task" in table
    assert "Seconds of different devices do not compare: GPU; CPU, 1 thread." in table
    assert "The machine did other work" not in table
    busy = [row | {"alone": "False"} if row["method"] == "knn" else row for row in rows]
    table, _ = summarise(keep_record(admit_rows(busy)), measures=("mae",))
    assert "so that seconds are too many: knn." in table
    undisturbed = [row | {"alone": "True"} if row["mask_seed"] == "1" else row for row in busy]
    slow = [row | {"fit_seconds": "900"} if row["alone"] == "False" else row for row in undisturbed]
    table, _ = summarise(keep_record(admit_rows(slow)), measures=("mae",))
    assert "| knn | <u>60.00</u> | 2.00 | 1.955 | 3.00 | CPU, 1 thread |" in table
    assert "The machine did other work" not in table
    assert figure is not None
    with pytest.raises(InputError, match="once each"):
        replace_table("no marks", table)


def test_the_record_ranks_on_common_masks_and_fills_cells_from_all():
    rows = make_grid({"diffputer-conditional": [0.3]}, ["letter"], masks=5, label="diffputer-best")
    rows += make_grid({"knn": [0.5]}, ["letter"], masks=2) + make_grid({"em": [0.4]}, ["adult"], masks=2)
    kept = keep_record(admit_rows(rows))
    (board,) = make_boards(kept, list_entries(kept.final), ["mae"], ["out_of_sample"])
    ours = next(entry for entry in board.entries if entry.ours)
    assert board.tasks == (("letter", 0), ("letter", 1))
    assert board.average(ours) == pytest.approx(0.3005)
    score = board.score(ours, "letter")
    assert score is not None
    assert score.mean == pytest.approx(0.302)
    assert score.ratio == pytest.approx(0.302 / 0.3069)
    table = write_markdown(make_report(kept, measures=["mae"]))
    assert re.search(r"\| diffputer-conditional \| \*\*30.20\*\* ± 0.16<br>30.69, 0.984 \|.*\| 5 \|", table)
    assert "em (has 0 of 2)" in table


def test_the_papers_other_methods_can_be_listed(rows):
    text = write_markdown(report(rows, published=True))
    assert "| remasker | 33.97 | 34.03 |" in text
    assert "\n| diffputer |" not in text
    assert "Published only" not in write_markdown(report(rows))


def test_methods_that_a_board_has_nothing_of_are_not_in_it():
    cannot = "InSampleOnlyError: completes only the table that it is fitted on"
    rows = [make_row("mean", "adult", accuracy="0.5"), fail(make_row("hyperimpute", "letter"), cannot)]
    text = write_markdown(report(rows, measures=["accuracy"]))
    assert text.count("hyperimpute") == text.split("## Leaderboards")[0].count("hyperimpute")


def test_the_terminal_and_latex_show_odd_text_as_it_is():
    rows = [make_row(label="[bold]x[/bold] [/]"), make_row("mice", label="\N{SNOWMAN}")]
    assert "[bold]x[/bold] [/]" in print_text(report(rows), width=200)
    assert "(U+2603)" in write_latex(report(rows))


def test_the_page_of_results_has_both_settings_of_every_mechanism():
    suites = {}
    for mechanism in ("mcar", "mar", "mnar"):
        rows = [
            make_row(method, "california", setting=setting, mechanism=mechanism, mae=mae)
            for method, mae in (("diffputer-conditional", "0.3"), ("mean", "0.7"))
            for setting in ("in_sample", "out_of_sample")
        ]
        suites[f"paper-{mechanism}"] = admit_rows(rows)
    page = write_page(make_results(suites))
    for mechanism in ("MCAR", "MAR", "MNAR"):
        for setting in ("in sample", "out of sample"):
            assert page.count(f"### MAE (× 100), {setting}, {mechanism} 30 %") == 1
    assert "## At random, rows not seen in the fit" in page
    assert "## Not at random, rows not seen in the fit" in page
    assert "2,000 rows" not in page  # a suite that has no results
    assert "Sampling steps" not in page
    assert "Not run: ablation-draws, ablation-em-rounds, " in page


def test_the_page_of_results_has_the_curves_that_there_are():
    curve = [
        make_row("diffputer-paper", "california", setting="out_of_sample", mae=mae, em_round=em_round)
        for em_round, mae in (("1", "0.5"), ("2", "0.4"), ("", "0.3"))
    ]
    report = make_results({"ablation-em-rounds": admit_rows(curve)})
    page = write_page(report)
    assert "## EM rounds" in page
    assert "So far: california; mask 0." in page
    assert "](images/ablation-em-rounds.png)" in page
    assert [picture.name for picture in report.pictures] == ["ablation-em-rounds"]
    rates = [make_row("mean", rate=rate) for rate in ("0.3", "0.5")]
    known = {name: admit_rows(rates) for name in ("ablation-missing-ratio", "ablation-generators")}
    page = write_page(make_results(known))
    assert "diffputer bench table ablation-generators has the numbers." in page
    absent = "ablation-draws, ablation-em-rounds, ablation-sampling-steps, ablation-training-time"
    assert f"Not run: {absent}. " in page

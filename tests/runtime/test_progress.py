from __future__ import annotations

import io

from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TextColumn

from diffputer.runtime.progress import LineProgress, Progress, TerminalProgress, show_progress


def test_a_task_shows_its_steps_and_facts_and_goes_away() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with RichProgress(TextColumn("{task.description} {task.fields[facts]}"), console=console) as display:
        progress = TerminalProgress(display)
        progress.begin("EM round 1/5  M-step", 1500)
        progress.advance(50, loss=0.6907)
        (task,) = display.tasks
        assert (task.description, task.completed, task.total) == ("EM round 1/5  M-step", 50, 1500)
        assert task.fields["facts"] == "loss 0.6907"
        progress.advance(50)  # without facts the last ones stay
        assert (task.completed, task.fields["facts"]) == (100, "loss 0.6907")
        progress.begin("EM round 1/5  E-step", 92)
        assert [task.description for task in display.tasks] == ["EM round 1/5  E-step"]
        progress.end()
        assert not display.tasks
        progress.advance()  # after the end nothing happens


def test_progress_is_silent_unless_somebody_watches() -> None:
    with show_progress(None) as progress:  # standard error is not a terminal in tests
        assert type(progress) is Progress
        progress.begin("task", 3)
        progress.advance(loss=1.0)
        progress.end()
    with show_progress(True) as progress:
        assert isinstance(progress, LineProgress)

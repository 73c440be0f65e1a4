"""What a command says on standard error: notes, warnings as plain lines, errors as a sentence and a code."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..errors import DiffputerError

EXIT_FAILURE, EXIT_USAGE = 1, 2
#: After Ctrl-C and after a request to end: 128 and the number of the signal, as shells have it.
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143
_QUOTED = r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""


@dataclass
class Reporter:
    """One command's voice, and its memory of what it has written.

    Attributes
    ----------
    quiet : bool
        Say only warnings and errors.
    debug : bool
        Show the traceback of an error.
    names : mapping
        What the library's warnings and errors call things that have another name on the command line.
    interrupted : str
        What to say when stopped as long as nothing was written.
    checkpoint : str or None
        A file from which the same command can go on, if it exists by then.
    written : list of str
        Files that are complete.
    interrupt_code : int
        With what to exit when stopped: it differs between Ctrl-C and a request to end.
    warnings, error : list of str, str or None
        What was said of that kind; a command that was stopped has that as its error.
    facts : dict
        What a command adds to its summary.
    """

    quiet: bool = False
    debug: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    interrupted: str = "nothing was written"
    checkpoint: str | None = None
    written: list[str] = field(default_factory=list)
    interrupt_code: int = EXIT_INTERRUPTED
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)

    def say(self, words: Any, kind: str = "") -> None:
        """Say something on one line, once; ``kind`` comes before it: note, warning, error."""
        line = " ".join(str(words).split())
        if kind in ("warning", "error"):
            line = self._with_names_of_here(line)
        if kind == "warning" and line not in self.warnings:
            self.warnings.append(line)
        if kind in ("error", "interrupted"):
            self.error = line
        line = f"{kind}: {line}" if kind else line
        if line not in self._said and not (self.quiet and kind in ("", "note")):
            self._said.add(line)
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def _with_names_of_here(self, line: str) -> str:
        """Replace the library's names where they are words, not in paths or in quotes, which hold columns.

        Of two names of which one begins with the other, the longer is meant.
        """
        names = "|".join(re.escape(name) for name in sorted(self.names, key=len, reverse=True))
        if not names:
            return line
        word = rf"(?<![\w./-])(?:{names})(?:(?<=\W)|(?![\w/-]|\.\w))"
        return re.sub(f"{_QUOTED}|{word}", lambda match: self.names.get(match[0], match[0]), line)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Run a command: its warnings become lines, its errors and its end a sentence and an exit code."""
        try:
            with self._ending_like_ctrl_c(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", UserWarning)  # those of the library among them
                warnings.showwarning = lambda message, *_, **__: self.say(message, "warning")
                yield
        except KeyboardInterrupt:
            # A second request must not cut short the answer to the first.
            with _handling(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM):
                done = f"{' and '.join(self.written)} was written" if self.written else self.interrupted
                if self.checkpoint and os.path.exists(self.checkpoint):
                    done += f"; the same command goes on from {self.checkpoint}"
                self.say(done, "interrupted")
            sys.exit(self.interrupt_code)
        except BrokenPipeError:  # whoever read our output has left: nobody to tell
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(EXIT_FAILURE)
        except Exception as error:  # noqa: BLE001 - a program's last resort
            if self.debug:
                traceback.print_exc()
            expected = isinstance(error, DiffputerError)
            words = str(error) if expected else f"unexpected {type(error).__name__}: {error}"
            if not (expected or self.debug):
                words += " (--debug shows where it happened)"
            if self.written:
                words += f" ({' and '.join(self.written)} was written before.)"
            self.say(words, "error")
            sys.exit(EXIT_USAGE if expected else EXIT_FAILURE)

    @contextmanager
    def _ending_like_ctrl_c(self) -> Iterator[None]:
        """Let a request to end (SIGTERM, of a batch system say) stop the work as cleanly as Ctrl-C does."""

        def interrupt(*_: Any) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # asked again, go on with the cleaning up
            self.interrupt_code = EXIT_TERMINATED
            raise KeyboardInterrupt

        with _handling(interrupt, signal.SIGTERM):
            yield


@contextmanager
def _handling(handler: Any, *signals: signal.Signals) -> Iterator[None]:
    """Answer signals by a handler for a while; ones that were ignored before stay ignored."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield
        return
    before = {one: signal.getsignal(one) for one in signals}
    before = {one: answer for one, answer in before.items() if answer not in (None, signal.SIG_IGN)}
    for one in before:
        signal.signal(one, handler)
    try:
        yield
    finally:
        for one, answer in before.items():
            signal.signal(one, answer)


def leave_at_once(code: int) -> NoReturn:
    """End the process without waiting for threads that are still at work."""
    with suppress(OSError, ValueError):  # whoever read our output may have left
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)

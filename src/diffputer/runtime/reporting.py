"""What a command says on standard error: notes, warnings as plain lines, errors as a sentence and a code."""

from __future__ import annotations

import errno
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
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import DiffputerError, InputError
from .memory import enough_memory

if TYPE_CHECKING:
    from rich.console import Console

EXIT_FAILURE, EXIT_USAGE = 1, 2
#: After Ctrl-C, a request to end and the end of the terminal: 128 and the number of the signal, as shells
#: have it.
EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_HUNG_UP = 130, 143, 129
_ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
#: Characters that a terminal obeys instead of showing them, those that turn the direction of text, and those
#: that no stream takes (of file names that are not UTF-8).
_CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_QUOTED = r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""


def visible(text: str) -> str:
    r"""Text with its control characters escaped, so that a terminal shows them; line ends stay.

    Examples
    --------
    >>> print(visible("\x1b]0;title\x07"))
    \x1b]0;title\x07
    """
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


def make_console(**options: Any) -> Console:
    """A console of rich that sends no control characters but its own."""
    from rich.console import Console
    from rich.segment import Segment

    class VisibleConsole(Console):
        def render(self, renderable: Any, options: Any = None) -> Any:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    return VisibleConsole(**options)


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
            self.error = line if kind == "error" else f"{kind}: {line}"
        line = f"{kind}: {line}" if kind else line
        if line not in self._said and not (self.quiet and kind in ("", "note")):
            self._said.add(line)
            if sys.stderr is not None:  # it was not closed before the start
                sys.stderr.write(f"{visible(line)}\n")
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
                with enough_memory("The work", "Take fewer rows or fewer draws, or free memory."):
                    yield
                _flush_output()
        except KeyboardInterrupt:
            # A second request must not cut short the answer to the first; nobody may be left to read it.
            with _handling(signal.SIG_IGN, signal.SIGINT, *_ENDS), suppress(OSError):
                done = f"{' and '.join(self.written)} was written" if self.written else self.interrupted
                if self.checkpoint and os.path.exists(self.checkpoint):
                    done += f"; the same command goes on from {self.checkpoint}"
                self.say(done, "interrupted")
            sys.exit(self.interrupt_code)
        except BrokenPipeError:  # whoever read our output has left: nobody to tell
            self.error = "A stream was closed by its reader before all was written."
            _discard_output()
            sys.exit(self._failure)
        except Exception as error:  # noqa: BLE001 - a program's last resort
            _discard_output()
            with suppress(OSError):
                self._tell(error)
            sys.exit(EXIT_USAGE if isinstance(error, DiffputerError) else self._failure)

    @property
    def _failure(self) -> int:
        """The exit code of a failure; one that follows a request to end is part of that end."""
        return EXIT_FAILURE if self.interrupt_code == EXIT_INTERRUPTED else self.interrupt_code

    def _tell(self, error: Exception) -> None:
        """Say what went wrong."""
        if self.debug and sys.stderr is not None:
            sys.stderr.write(visible(traceback.format_exc()))
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            error = InputError(
                f"What is written must fit on the disk, but it does not ({error.strerror}). Make room."
            )
        expected = isinstance(error, DiffputerError)
        words = str(error) if expected else f"unexpected {type(error).__name__}: {error}"
        if not (expected or self.debug):
            words += " (--debug shows where it happened)"
        if self.written:
            words += f" ({' and '.join(self.written)} was written before.)"
        self.say(words, "error")

    @contextmanager
    def _ending_like_ctrl_c(self) -> Iterator[None]:
        """Let a request to end (SIGTERM, of a batch system say) stop the work as cleanly as Ctrl-C does.

        The end of the terminal (SIGHUP) is one, unless nohup lets it be ignored.
        """

        def interrupt(number: int, _: Any) -> None:
            for one in _ENDS:
                signal.signal(one, signal.SIG_IGN)  # asked again, go on with the cleaning up
            self.interrupt_code = 128 + number
            raise KeyboardInterrupt

        with _handling(interrupt, *_ENDS):
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


def leave(code: int) -> NoReturn:
    """End the process: one that was stopped at once, without waiting for threads that are still at work."""
    try:
        _flush_output()
    except BrokenPipeError:
        code = code or EXIT_FAILURE
    except DiffputerError as error:
        if not code and sys.stderr is not None:
            with suppress(OSError):
                sys.stderr.write(f"error: {error}\n")
        code = code or EXIT_FAILURE
    _discard_output()
    if code in (EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_HUNG_UP):
        os._exit(code)
    sys.exit(code)


def _flush_output() -> None:
    """Write what is still kept back for standard output; say so if that fails, and not at the very end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(
            f"Standard output must take what is written, but it does not ({error.strerror}). Make room, or "
            "write to a file."
        ) from error


def _discard_output() -> None:
    """Drop what cannot be written any more: Python would complain of it when the process ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
                stream.flush()

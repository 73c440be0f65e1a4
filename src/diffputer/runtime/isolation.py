"""Processes that import nothing from the current folder, where anybody may have put a ``numpy.py``.

This module is the first that a command imports: it needs nothing but what Python has loaded by then.
"""

import os
import sys

#: Folder that holds the package.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: Environment variable by which Python, and all that it starts, leaves out the current folder.
SAFE_PATH = "PYTHONSAFEPATH"


def leave_current_folder() -> None:
    """Remove the current folder from the import path (``python -m``, empty entries of PYTHONPATH).

    If it holds the package itself, it is searched last.
    """
    os.environ[SAFE_PATH] = "1"
    kept = [path for path in sys.path if not _is_current(path)]
    if len(kept) < len(sys.path) and _is_current(_ROOT):
        kept.append(_ROOT)
    sys.path[:] = kept


def worker_command(module: str, *arguments: str) -> list[str]:
    """Command that calls ``main`` of a module of the package in another process.

    The package is the one of this process. Other packages are searched where Python finds them by itself and
    then in the folders of this process, but for the current one.
    """
    others = [path for path in sys.path if os.path.isabs(path) and not _is_current(path)]
    code = (
        f"import sys; known = sys.path; sys.path = [{_ROOT!r}]; import diffputer; "
        f"sys.path = known + [path for path in {others!r} if path not in known]; "
        f"from {module} import main; main()"
    )
    return [sys.executable, "-P", "-c", code, *arguments]


def worker_environment() -> dict[str, str]:
    """Environment of a worker: whatever it starts leaves out the current folder as well."""
    environment = {**os.environ, SAFE_PATH: "1"}
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if not _is_current(path)]
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))
    return environment


def extend_path(paths: list[str]) -> None:
    """Search folders of another process after all that are searched already."""
    sys.path.extend(path for path in map(os.path.abspath, paths) if path not in sys.path)


def _is_current(path: str) -> bool:
    """Whether an entry of an import path means the current folder."""
    try:
        return not path or os.path.realpath(path) == os.path.realpath(os.getcwd())
    except OSError:  # the current folder is gone
        return not path

"""The command line, as a program and as ``python -m diffputer``."""

from .runtime.isolation import leave_current_folder


def start() -> None:
    """Run the command line, which imports nothing from the current folder."""
    leave_current_folder()  # before anything else is imported
    from .cli import main

    main()


if __name__ == "__main__":
    start()

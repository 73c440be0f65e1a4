"""``python -m diffputer``: the command line, where its script is not on the path."""

if __name__ == "__main__":
    from .runtime.isolation import leave_current_folder

    leave_current_folder()  # before anything else is imported

    from .cli import main

    main()

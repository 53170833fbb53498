"""The command line: one file per command, each a thin delegate."""

# It imports no more than Python itself has imported or built in: see `_leave_working_directory`.
import gc
import os
import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run one command line (default: that of the process) and return the exit code."""
    try:
        if arguments is None:  # the process is ours
            _leave_working_directory()
            # Nearly all objects that a command makes, modules first, are still needed when they
            # would be searched for cycles.
            gc.set_threshold(100_000)
        from launchscope.cli.app import main
    except KeyboardInterrupt:
        return 130
    return main(arguments)


def _leave_working_directory() -> None:
    """Takes it off `sys.path`, where `python -m` or PYTHONPATH has put it, ahead of the standard
    library: no file of the person may run in place of a library."""
    library = "python{}{}.zip".format(*sys.version_info)
    ahead = next((n for n, entry in enumerate(sys.path) if entry.endswith(library)), 1)
    sys.path[:ahead] = [entry for entry in sys.path[:ahead] if not _is_here(entry)]


def _is_here(folder: str) -> bool:
    try:
        return os.path.samefile(folder or os.curdir, os.curdir)
    except OSError:  # there is no such folder
        return False

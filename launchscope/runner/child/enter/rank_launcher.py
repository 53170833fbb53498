"""The program that `--nproc-per-node` turns into: torch's own launcher.

It is a file for the reason that start.py is one, and runs no file of the working directory in place
of a library either. The interpreter may have no launchscope.
"""

import os
import sys


def _said(text: str) -> int:
    print("error:", ascii(text)[1:-1], file=sys.stderr)  # launchscope.visible may not be here
    return 2


def _is_here(folder: str) -> bool:
    return os.path.exists(folder) and os.path.samefile(folder, os.curdir)


def _launch() -> None:
    """What the launcher refuses is one line, and a rank that failed has said why."""
    try:
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.run import main
    except ImportError as error:
        sys.exit(_said(f"the launcher of torch cannot be imported by {sys.executable}: {error}"))
    try:
        main()
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        sys.exit(code if code > 0 else 128 - code)
    except SignalException as error:  # the ranks had it, too
        sys.exit(128 + error.sigval)
    except (ValueError, RuntimeError, OSError) as error:
        sys.exit(_said(f"torch's launcher: {error}"))


if __name__ == "__main__":
    if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
        del sys.path[0]
    sys.path[:] = [entry for entry in sys.path if not _is_here(entry or os.curdir)]
    _launch()

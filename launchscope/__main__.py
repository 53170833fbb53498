"""python -m launchscope."""

import sys

# Python has put the working directory there: no file of the person may run in place of a library.
if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
    del sys.path[0]

try:
    from launchscope.cli import main
except KeyboardInterrupt:
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())

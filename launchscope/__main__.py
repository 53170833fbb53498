"""python -m launchscope."""

import sys

from launchscope.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""python -m launchscope."""

from __future__ import annotations

import sys

from launchscope.cli import main

if __name__ == "__main__":
    sys.exit(main())

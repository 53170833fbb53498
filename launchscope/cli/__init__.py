"""The command line: one file per command, each a thin delegate."""

from __future__ import annotations

from launchscope.cli.app import main

__all__ = ["main"]

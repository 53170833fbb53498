"""A value -> text or bytes. One output format per file, each exposing one REPORTER."""

from __future__ import annotations

from launchscope.report.loader import all_reporters, render, reporter_for_path, reporter_named
from launchscope.report.reporter import RenderOptions, Reporter

__all__ = [
    "RenderOptions",
    "Reporter",
    "all_reporters",
    "render",
    "reporter_for_path",
    "reporter_named",
]

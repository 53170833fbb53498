"""Comparison -> text or bytes. One output format per file, each exposing one REPORTER."""

from __future__ import annotations

from launchscope.report.comparison.loader import (
    all_reporters,
    render,
    reporter_for_path,
    reporter_named,
)
from launchscope.report.comparison.reporter import ComparisonReporter

__all__ = ["ComparisonReporter", "all_reporters", "render", "reporter_for_path", "reporter_named"]

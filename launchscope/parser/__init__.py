"""Files in, frames and values out: traces, recordings and Profiles."""

from __future__ import annotations

from launchscope.parser.files import (
    parse_profile,
    read_comparison,
    read_profile,
    read_recording,
)
from launchscope.parser.sources import Reading, is_trace, read_trace

__all__ = [
    "Reading",
    "is_trace",
    "parse_profile",
    "read_comparison",
    "read_profile",
    "read_recording",
    "read_trace",
]

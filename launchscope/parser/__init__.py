"""Files in, tables and values out: traces, recordings and Profiles."""

from __future__ import annotations

from launchscope.parser.files import SAVED, parse_saved, read_profile, read_recording, read_saved
from launchscope.parser.sources import Reading, is_trace, read_trace

__all__ = [
    "SAVED",
    "Reading",
    "is_trace",
    "parse_saved",
    "read_profile",
    "read_recording",
    "read_saved",
    "read_trace",
]

"""Files in, frames and values out: traces, recordings and Profiles."""

from __future__ import annotations

from launchscope.parser.files import (
    parse_profile,
    read_comparison,
    read_profile,
    read_recording,
)
from launchscope.parser.sources import read_trace

__all__ = ["parse_profile", "read_comparison", "read_profile", "read_recording", "read_trace"]

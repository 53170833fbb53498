"""Trace and Recording in, Profile out. Nothing here prints, plots or exits."""

from __future__ import annotations

from launchscope.analysis.from_recording import build_profile as build_profile
from launchscope.analysis.from_trace import profile_of_trace as profile_of_trace

"""Arguments for the samples that take long without a GPU."""

from __future__ import annotations

# Many CPUs have no instructions for bfloat16.
SMALLER = {"small_gpt": ("--batch-size", "2", "--length", "16", "--width", "64")}

"""Tests. A package, so that helpers are imported as `tests.<folder>.<module>`."""

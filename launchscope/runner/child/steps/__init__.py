"""Where a step begins and ends: detection in the warm-up, then tracking."""

"""Captures the step, replays it, and holds what it computes against eager."""

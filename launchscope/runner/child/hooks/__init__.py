"""Finds the step of an unmodified script and follows it, event by event."""

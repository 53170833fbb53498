"""The report of a check: its content, and one renderer per format."""

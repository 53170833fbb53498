"""Numbers and markup as text."""

"""What the report of a comparison says, and how it is laid out for each format."""

"""Starts the script in this process, attaches to its torch, and ends it."""

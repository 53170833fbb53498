"""Runs a person's script and records it. Nothing is exported here."""

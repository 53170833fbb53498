"""Adapters that run the training step of a trainer under `graphed`. Nothing imports them: a script
imports the one for its library."""

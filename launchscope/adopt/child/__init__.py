"""Runs a training script and its patched version alike, in the script's process, and writes down
what each step made."""

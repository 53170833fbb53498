"""Runs a training script and its patched version alike, and writes down what each step made."""

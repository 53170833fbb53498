"""The gate: compares a Profile with its baseline within limits. Reads and writes baselines."""

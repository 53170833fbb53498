"""What each command does, usable from Python: no terminal, no exit codes."""

"""What each command does, as Python functions: no terminal, no exit codes."""

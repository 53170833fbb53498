"""What crosses the boundary between the parent and the child process."""

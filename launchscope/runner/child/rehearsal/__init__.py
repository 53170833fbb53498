"""Has the CPU stand for a GPU that the machine lacks."""

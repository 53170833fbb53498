"""What runs inside the person's process: standard library, torch and nvtx only."""

"""What a step does: operations, blockers, memory, and whose code asks for them."""

"""Which steps a trace holds, and where each begins and ends."""

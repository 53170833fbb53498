"""What a step does, operator by operator: blockers, waits, device work; on the CPU a rehearsal."""

"""What a replay would take, predicted from a trace or measured."""

"""What torch does in the script, as events."""

"""Ends the script from inside without losing what it has written."""

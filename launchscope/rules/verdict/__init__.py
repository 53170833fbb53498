"""Weighs findings into one verdict, and says it."""

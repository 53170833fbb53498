"""The lines of the step, from the script: what a recipe is written with."""

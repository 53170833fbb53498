"""Some fifty steps of many kinds of models: is the advice right, and how far off the prediction?

Run from the top of the checkout: python -m tests.benchmarks.zoo [--results DIR]
"""

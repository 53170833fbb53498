"""Sample workloads that adopted the graph by hand, to hold projected iteration times against.

Run from the top of the checkout: python -m tests.benchmarks.twins [--output PATH]
"""

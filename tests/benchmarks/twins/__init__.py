"""Sample workloads with what `launchscope adopt` changes, to hold projected iterations against.

Run from the top of the checkout: python -m tests.benchmarks.twins [--output PATH]
"""

"""Runs one step of the benchmarks' zoo again and again: NAME and a device are its arguments."""

import sys

import torch

from tests.benchmarks.zoo.catalog import find

torch.manual_seed(0)
step = find(sys.argv[1]).build(torch.device(sys.argv[2]), 2)
for _ in range(60):
    step.run(*step.inputs)

"""Runs one step of the zoo again and again: NAME and a device are its arguments."""

import sys

import torch

from tests.goldens.zoo.catalog import STEPS

torch.manual_seed(0)
step = STEPS[sys.argv[1]](torch.device(sys.argv[2]), 2)
for _ in range(60):
    step.run(*step.inputs)

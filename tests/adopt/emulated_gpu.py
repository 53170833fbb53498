"""A script that imports this gets CUDA graphs that are emulated on the CPU."""

from tests.graphed.emulation import emulated

emulated(setattr)

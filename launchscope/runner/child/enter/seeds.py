"""Seeds for runs that are compared with one another; a script that sets its own replaces them."""

from __future__ import annotations

import random
import sys

from launchscope.runner.child.facts.torch_types import Torch

SEED = 20_260_115


def seed_python() -> None:
    random.seed(SEED)


def seed_torch(torch: Torch) -> None:
    """And NumPy, which torch has imported where it is installed."""
    torch.manual_seed(SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(SEED)

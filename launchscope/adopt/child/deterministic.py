"""Makes runs of one script repeat to the last bit, where torch can."""

from __future__ import annotations

import sys

from launchscope.runner.child.facts.torch_types import Torch

# Has to be in the environment before the first cuBLAS call (PyTorch: notes on reproducibility).
# A warning would say the number of its line, which the patch may change.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONWARNINGS": "ignore",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}


def be_deterministic(torch: Torch) -> None:
    """Again at each iteration, because the script may choose otherwise."""
    if not torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def generator_states(torch: Torch) -> dict[str, bytes]:
    """Of the generators that a script draws from without naming one."""
    import random

    states = {"random": repr(random.getstate()).encode()}
    states["torch"] = bytes(torch.get_rng_state().numpy().tobytes())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["torch.cuda"] = bytes(torch.cuda.get_rng_state().numpy().tobytes())
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        states["numpy.random"] = repr(numpy.get_state()).encode()
    return states

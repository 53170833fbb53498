"""For ranks on a machine without GPUs: `torch.accelerator` is the CPU, once for each rank.

Python imports this at its start. What CUDA alone can do is not replaced.
"""

from __future__ import annotations

import functools
import os
from typing import Any

if "LOCAL_WORLD_SIZE" in os.environ:
    import torch
    from torch import distributed

    accelerator: Any = torch.accelerator
    accelerator.is_available = lambda: True
    accelerator.device_count = lambda: int(os.environ["LOCAL_WORLD_SIZE"])
    accelerator.current_accelerator = lambda check_available=False: torch.device("cpu")
    accelerator.device_index = accelerator.set_device_index = lambda index: None
    original: Any = distributed.init_process_group

    @functools.wraps(original)
    def without_device(*args: Any, device_id: object = None, **kwargs: Any) -> None:
        original(*args, **kwargs)

    distributed.init_process_group = without_device

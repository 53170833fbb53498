"""With which flags a CUDA graph can hold the step of an optimizer of torch.optim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

OptimizerFlag: TypeAlias = Literal["capturable", "fused"]


@dataclass(frozen=True)
class CaptureFlags:
    """The flags of one class. With each of them, the step reads nothing on the host."""

    optimizer: str
    flag: OptimizerFlag
    with_scaler: tuple[OptimizerFlag, ...] = ()  # behind a GradScaler; empty: impossible there
    required: bool = True  # PyTorch refuses a capture without the flag
    follows_rate: bool = True  # with the flag, a replay reads a tensor `lr` on the GPU


_ADAM: tuple[OptimizerFlag, ...] = "fused", "capturable"
CAPTURE_FLAGS = (
    CaptureFlags("Adam", "capturable", with_scaler=_ADAM),
    CaptureFlags("AdamW", "capturable", with_scaler=_ADAM),
    CaptureFlags("NAdam", "capturable"),
    CaptureFlags("RAdam", "capturable"),
    CaptureFlags("Adamax", "capturable"),
    CaptureFlags("Adadelta", "capturable"),
    CaptureFlags("RMSprop", "capturable"),
    CaptureFlags("ASGD", "capturable", follows_rate=False),
    CaptureFlags("Rprop", "capturable", follows_rate=False),
    CaptureFlags("SGD", "fused", with_scaler=("fused",), required=False),
)

"""launchscope: what GPU launch overhead costs a PyTorch step, and what CUDA graphs would give back.

The public API is four names. Nothing heavy is imported until one of them is used, so
that `import launchscope` is free inside a training script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["load", "measure", "region", "step"]

if TYPE_CHECKING:
    from launchscope.api import load, measure
    from launchscope.markers import region, step


def __getattr__(name: str) -> Any:
    if name in ("step", "region"):
        from launchscope import markers

        return getattr(markers, name)
    if name in ("measure", "load"):
        from launchscope import api

        return getattr(api, name)
    raise AttributeError(f"module 'launchscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

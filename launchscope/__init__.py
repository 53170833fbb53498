"""launchscope: what GPU launch overhead costs a PyTorch step, and what CUDA graphs would give back.

Nothing heavy is imported until one of the functions is used, so that `import launchscope` costs
nothing inside a training script. A script may be pytest, which would warn that this module was
imported before it (PYTEST_DONT_REWRITE).
"""

__version__ = "0.1.0"
__all__ = [
    "check", "compare", "graphed", "load", "measure", "on_trace_ready", "profile", "region", "save",
    "show", "step", "tables",
]  # fmt: skip

# Under `python -m launchscope` the working directory is still on sys.path: a typing.py or a
# __future__.py in it would be imported here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from launchscope.api import (
        check,
        compare,
        load,
        measure,
        on_trace_ready,
        profile,
        save,
        show,
        tables,
    )
    from launchscope.graphed import graphed
    from launchscope.markers import region, step


def __getattr__(name: str) -> "Any":
    if name not in (*__all__, "load_ipython_extension"):
        raise AttributeError(f"module 'launchscope' has no attribute {name!r}")
    from importlib import import_module

    if name == "graphed":
        return import_module("launchscope.graphed")  # can be called like the function
    places = {"load_ipython_extension": "integrations.notebook"}
    module = "markers" if name in ("step", "region") else places.get(name, "api")
    return getattr(import_module(f"launchscope.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

"""The modules whose forwards are running, by name."""

from __future__ import annotations

from itertools import pairwise
from types import FrameType

from launchscope.runner.child.facts.plain_values import loaded_torch
from launchscope.runner.child.facts.torch_types import Module


class ModuleNames:
    """Of one step: it looks for the modules below each one once."""

    def __init__(self) -> None:
        self._below: dict[int, dict[int, str]] = {}

    def stack(self, frame: FrameType | None) -> tuple[str, ...]:
        """The class of the outermost module among the callers of a frame, then the place of each
        inner one below the one around it: ("GPT", "blocks.0", "attention")."""
        file = loaded_torch().nn.modules.module.__file__
        running: list[Module] = []
        while frame is not None:
            code = frame.f_code  # torch's, whatever the script has put around it
            if code.co_name == "_call_impl" and code.co_filename == file:
                running.append(frame.f_locals.get("self"))
            frame = frame.f_back
        running.reverse()
        names = (self._name(*pair) for pair in pairwise(running))
        return (type(running[0]).__name__, *names) if running else ()

    def _name(self, outer: Module, inner: Module) -> str:
        below = self._below.get(id(outer))
        if below is None:
            below = {id(module): name for name, module in outer.named_modules()}
            self._below[id(outer)] = below
        return below.get(id(inner)) or type(inner).__name__

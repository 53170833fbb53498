"""The modules whose forwards are running, by name."""

from __future__ import annotations

from itertools import pairwise
from types import FrameType

from launchscope.runner.child.plain_values import loaded_torch
from launchscope.runner.child.torch_types import Module, Value


class ModuleNames:
    """Of one step: it looks for each pair of modules once."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}

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
        key = id(outer), id(inner)
        if key not in self._names:
            self._names[key] = _place(outer, inner) or type(inner).__name__
        return self._names[key]


def _place(outer: Module, inner: Module) -> str | None:
    """Where `inner` is below `outer`, as an attribute path; None if it is not there."""
    left, seen = [("", outer)], {id(outer)}
    for path, module in left:
        children: Value = module.__dict__.get("_modules")
        for name, child in dict.items(children) if isinstance(children, dict) else ():
            if child is inner:
                return f"{path}{name}"
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                left.append((f"{path}{name}.", child))
    return None

"""What holds several tensors of a batch together, and the lines that make the same of static ones.

Where the whole cannot be written down before the first batch is there (a namedtuple, a
dataclass, an object of some library), it is made from that batch, with its tensors exchanged.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from launchscope.model import StepInput

__all__ = ["Batch", "batch_of"]

_DEEPEST = 4
_LITERALS = (dict, list, tuple)


@dataclass
class Batch:
    """`code` gives the static batch: before the first one is there, unless it `needs_one`."""

    inputs: list[StepInput] = field(default_factory=list)
    code: str = ""
    exchanges: list[str] = field(default_factory=list)  # lines, for what is copied as a whole
    needs_one: bool = False
    kept: list[str] = field(default_factory=list)  # what stays as the first batch has it
    unseen: list[str] = field(default_factory=list)  # what has inputs that no line can exchange


def batch_of(
    torch: Any,
    value: Any,
    origin: str,
    static_name: str,
    is_input: Callable[[Any], bool],
    described: Callable[[str, str, Any], StepInput],
    made_anew: bool,
) -> Batch | None:
    """None where the value is no batch. `described` notes an input by its path in the batch, its
    base name and itself.

    What the loop made anew may be anything; else it has to hold nothing but inputs.
    """
    batch = Batch()
    fields_of = _fields if made_anew else _no_fields

    def as_it_is(part: Any, path: str) -> str:
        batch.needs_one = True
        if _holds(torch, part, is_input):
            batch.unseen.append(origin + path)
        elif _may_matter(part):
            batch.kept.append(origin + path)
        return origin + path

    def built(part: Any, path: str, base: str, depth: int = 0) -> str:
        if isinstance(part, torch.Tensor) and is_input(part):
            batch.inputs.append(described(path, base, part))
            return batch.inputs[-1].static_name
        if depth > _DEEPEST or not _holds(torch, part, is_input):
            return as_it_is(part, path)
        if type(part) is dict and all(isinstance(key, str | int) for key in part):
            entries = {
                key: built(entry, f"{path}[{key!r}]", _named(key, base), depth + 1)
                for key, entry in part.items()
            }
            return "{" + ", ".join(f"{key!r}: {code}" for key, code in entries.items()) + "}"
        if type(part) in (list, tuple):
            inner = [built(e, f"{path}[{i}]", base, depth + 1) for i, e in enumerate(part)]
            listed = f"[{', '.join(inner)}]"
            return listed if type(part) is list else f"tuple({listed})"
        fields = fields_of(part)
        if fields is None:
            return as_it_is(part, path)
        batch.needs_one = True
        whole = origin + path
        made = {key: built(e, f"{path}.{key}", key, depth + 1) for key, e in fields.items()}
        changed = ", ".join(f"{k}={code}" for k, code in made.items() if code != f"{whole}.{k}")
        if isinstance(part, tuple):
            return f"{whole}._replace({changed})"
        return f"dataclasses.replace({whole}, {changed})"

    if isinstance(value, torch.Tensor) or not _holds(torch, value, is_input, made_anew):
        return None
    if type(value) in _LITERALS or fields_of(value) is not None:
        batch.code = built(value, "", "")
    else:
        batch.code, batch.needs_one = f"copy.copy({origin})", True
        for path, key, part in _exchangeable(torch, value):
            code = built(part, path, _named(key, ""))
            if code != origin + path:
                batch.exchanges.append(f"{static_name}{path} = {code}")
    if not batch.inputs:
        batch.unseen = [origin]
    if not made_anew and (batch.needs_one or batch.unseen):
        return None
    return batch


def _named(key: str | int, base: str) -> str:
    return key if isinstance(key, str) and key.isidentifier() else base


def _may_matter(part: Any) -> bool:
    """Whether a step could compute another result with another one of these."""
    if isinstance(part, list | tuple):
        return any(_may_matter(entry) for entry in part)
    return part is not None and not isinstance(part, str | bytes)


def _holds(
    torch: Any, value: Any, is_input: Callable[[Any], bool], anything: bool = True, depth: int = 0
) -> bool:
    """Whether there is an input in it; `anything`: objects are looked into as well."""
    if isinstance(value, torch.Tensor):
        return is_input(value)
    if isinstance(value, Mapping):
        parts = list(value.values()) if anything or type(value) is dict else []
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        parts = list(_attributes(torch, value).values()) if anything else []
    return depth <= _DEEPEST and any(
        _holds(torch, part, is_input, anything, depth + 1) for part in parts
    )


def _no_fields(value: Any) -> dict[str, Any] | None:
    return None


def _fields(value: Any) -> dict[str, Any] | None:
    """Of what can be copied with other fields in one expression, without code of the class's own
    that might make further tensors of them."""
    if isinstance(value, tuple) and hasattr(value, "_fields") and hasattr(value, "_replace"):
        return {key: getattr(value, key) for key in value._fields}
    if not dataclasses.is_dataclass(value) or isinstance(value, type | Mapping):
        return None
    fields = dataclasses.fields(value)
    if hasattr(value, "__post_init__") or not all(entry.init for entry in fields):
        return None
    return {entry.name: getattr(value, entry.name) for entry in fields}


def _exchangeable(torch: Any, value: Any) -> list[tuple[str, str | int, Any]]:
    """Path, name and value of what a shallow copy of an object can have another one of, the
    object itself staying as it is: that is tried out. Empty where it cannot be."""
    found: list[tuple[str, str | int, Any]]
    if isinstance(value, MutableMapping):
        keys = [key for key in value if isinstance(key, str | int)]
        found = [(f"[{key!r}]", key, value[key]) for key in keys]
    else:
        found = [(f".{key}", key, part) for key, part in _attributes(torch, value).items()]
    try:
        for path, key, part in found:
            other = copy.copy(value)
            _put(other, path, key, None)
            if _got(value, path, key) is not part:
                _put(value, path, key, part)
                return []
    except Exception:  # the class's own code may raise anything
        return []
    return found


def _attributes(torch: Any, value: Any) -> dict[str, Any]:
    """An object's public attributes; of one that keeps them elsewhere, as the data of a graph
    library does, those that it tells itself."""
    opaque = torch.nn.Module | torch.optim.Optimizer | type | str | bytes | int | float
    if isinstance(value, opaque) or inspect.isroutine(value) or inspect.ismodule(value):
        return {}
    own = getattr(value, "__dict__", {})
    public = {key: part for key, part in own.items() if not key.startswith("_")}
    if any(isinstance(part, torch.Tensor) for part in public.values()):
        return public
    told = value.to_dict() if hasattr(value, "to") and hasattr(value, "to_dict") else None
    if not isinstance(told, Mapping):
        return public
    return {key: part for key, part in told.items() if getattr(value, str(key), None) is part}


def _got(holder: Any, path: str, key: str | int) -> Any:
    return holder[key] if path.startswith("[") else getattr(holder, str(key))


def _put(holder: Any, path: str, key: str | int, part: Any) -> None:
    if path.startswith("["):
        holder[key] = part
    else:
        setattr(holder, str(key), part)

"""The Python values that code which ran can reach by name, found by one walk."""

from __future__ import annotations

import contextlib
import dis
import functools
import operator
import sys
import types
from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

import torch

from .arguments import Tensor, is_plain
from .stats import is_installed, is_library

Optimizer = torch.optim.Optimizer
Codes = dict[tuple[types.CodeType, str], dict[str, Any]]  # with the file: equal text is equal code

_MOST_PARTS = 1000  # elements of a container that are looked into
_ALWAYS = frozenset(("forward", "training", "__call__"))
_contents = operator.attrgetter("cell_contents")


class Names(NamedTuple):
    """What code names: globals; attributes and texts; those of them that are not only called."""

    of_globals: frozenset[str]
    of_attributes: frozenset[str]
    read: frozenset[str]


@functools.cache
def names_in(code: types.CodeType) -> Names:
    """`self.optimizer.step()` does not read a counter that is called `self.step`."""
    texts = {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}
    loaded = [i for i in dis.get_instructions(code) if i.argval in code.co_names]
    of_globals = {i.argval for i in loaded if i.opname.endswith(("_GLOBAL", "LOAD_NAME"))}
    read = texts | {i.argval for i in loaded if not _is_method(i)}
    nested = [names_in(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return Names(
        frozenset(of_globals).union(*(n.of_globals for n in nested)),
        frozenset((*code.co_names, *texts)).union(*(n.of_attributes for n in nested)),
        frozenset(read).union(*(n.read for n in nested)),
    )


def _is_method(instruction: dis.Instruction) -> bool:
    flagged = sys.version_info >= (3, 12) and instruction.opname == "LOAD_ATTR"
    return instruction.opname == "LOAD_METHOD" or (flagged and bool((instruction.arg or 0) & 1))


@functools.cache
def _names_of_class(kind: Any) -> frozenset[str]:
    """What the methods of a module's class use, beside what only makes or describes the module."""
    apart = {"__init__", "__setstate__", "reset_parameters", "extra_repr"}
    return frozenset[str]().union(
        *(
            names_in(method.__code__).of_attributes
            for base in kind.__mro__
            if base not in (torch.nn.Module, object)
            for name, method in vars(base).items()
            if isinstance(method, types.FunctionType) and name not in apart
        )
    )


class Reach:
    """Of an object only those attributes count whose names occur in the code that ran."""

    def __init__(self, codes: Codes, roots: Iterable[tuple[str, Any]]):
        self.modules: dict[int, torch.nn.Module] = {}
        self.optimizers: list[Optimizer] = []
        self.scalers: list[Any] = []
        self.slots: dict[tuple[int, str], tuple[Any, str, str]] = {}  # namespace, key, label
        self.cells: list[tuple[Any, str]] = []
        self.containers: list[tuple[Any, str]] = []
        self.objects: list[tuple[Any, str]] = []  # their attributes: a new one may hide another
        self.tensors: dict[int, tuple[Tensor, str]] = {}
        self.compiled: list[Any] = []  # what torch.compile has given
        self._known: dict[int, Any] = {}
        self._classes: set[type] = set()
        self._codes = codes
        names = [names_in(code) for code, _ in codes]
        self.names = frozenset[str]().union(*(n.of_attributes for n in names))
        self._read = frozenset[str]().union(*(n.read for n in names))
        for (code, _), space in codes.items():
            for name in names_in(code).of_globals.intersection(space):
                self._slot(space, name, name)
        for label, root in roots:
            self._visit(root, label)
        for group in chain.from_iterable(o.param_groups for o in self.optimizers):
            for parameter in group["params"]:
                self._visit(parameter, "a parameter")

    def _slot(self, space: Any, key: str, label: str) -> None:
        if (id(space), key) not in self.slots:
            self.slots[id(space), key] = space, key, label
            self._visit(space[key], label)

    def _visit(self, value: Any, label: str) -> None:
        if is_plain(value) or id(value) in self._known:
            return
        self._known[id(value)] = value
        if isinstance(value, Tensor):
            self.tensors[id(value)] = value, label
            for table in (value._backward_hooks, value._post_accumulate_grad_hooks):
                self._visit(table, f"a hook of {label}")
        elif isinstance(value, Optimizer):  # its groups and state have guards of their own
            self.optimizers.append(value)
            self._visit_hooks(value, label)
        elif isinstance(value, torch.amp.GradScaler):
            self.scalers.append(value)
        elif isinstance(value, torch.nn.Module):
            for name, module in value.named_modules():
                self._visit_module(module, f"{label}.{name}".rstrip("."))
        elif isinstance(value, types.FunctionType):
            self._visit_function(value)
        else:
            self._visit_parts(value, label)

    def _visit_hooks(self, owner: Any, label: str) -> None:
        """Of a module or an optimizer that has some."""
        for key, table in vars(owner).items():
            if key.endswith("_hooks") and table:
                self._visit(table, f"a hook of {label}")

    def _visit_parts(self, value: Any, label: str) -> None:
        parts: Iterable[Any] = ()
        if isinstance(value, types.MethodType | types.BuiltinMethodType):
            parts = getattr(value, "__func__", None), value.__self__
        elif isinstance(value, functools.partial):
            parts = value.func, *value.args, value.keywords
        elif isinstance(value, property):
            parts = (value.fget,)
        elif isinstance(value, list | dict | set | deque | bytearray):
            self.containers.append((value, label))
            parts = list(value.values() if isinstance(value, dict) else value)[:_MOST_PARTS]
        elif isinstance(value, tuple | frozenset):
            parts = value
        elif not isinstance(value, types.ModuleType) or not _is_foreign(value):
            self._visit_object(value, label)
        for part in parts:
            self._visit(part, label)

    def _visit_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        disabled = getattr(function, "_torchdynamo_disable", False)  # by torch.compiler.disable
        if hasattr(function, "_torchdynamo_orig_callable") and not disabled:
            self.compiled.append(function)
        for held in vars(function).values():  # what it wraps, say
            self._visit(held, code.co_name)
        if (code, code.co_filename) not in self._codes and not is_library(code.co_filename):
            return  # it did not run
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._visit(default, f"a default of {function.__name__}()")
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            with contextlib.suppress(ValueError):  # not filled yet
                self._visit(cell.cell_contents, name)
                self.cells.append((cell, name))

    def _visit_object(self, value: Any, label: str) -> None:
        """A class, a module of Python, or an instance."""
        kind = value if isinstance(value, type) else type(value)
        space: Any = getattr(value, "__dict__", None)
        if space is not None and not isinstance(value, type):
            self._visit_names(space, self.names, label)
            self._visit(space.get("__wrapped__"), label)
        self._visit_classes(kind)

    def _visit_classes(self, kind: type) -> None:
        for base in kind.__mro__:
            file = getattr(sys.modules.get(base.__module__), "__file__", None)
            if base in self._classes or (base.__module__ != "__main__" and not file):
                continue
            if base.__module__ == "__main__" or not is_library(str(file)):
                self._classes.add(base)
                self._visit_names(vars(base), self.names | _ALWAYS, base.__name__)

    def _visit_names(self, space: Any, names: frozenset[str], label: str) -> None:
        """The attributes that code names. What cannot be called is not what was called."""
        self.objects.append((space, label))
        for key in names.intersection(space):
            value = space[key]
            if key in self._read or key in _ALWAYS or not is_plain(value):
                value = getattr(value, "__func__", value)  # of a static or a class method
                self._slot(space, key, f"{label}.{key}")
                self._visit(value, f"{label}.{key}")

    def _visit_module(self, module: torch.nn.Module, label: str) -> None:
        if id(module) in self.modules:
            return
        self._known[id(module)] = self.modules[id(module)] = module
        kind: Any = type(module)
        space = vars(module)
        self._visit_hooks(module, label)
        self.objects.append((space, label))
        if space.get("_compiled_call_impl") is not None or "_orig_mod" in module._modules:
            self.compiled.append(module)
        named = (self.names | _names_of_class(kind) | _ALWAYS).intersection(space)
        for key in named - {"_parameters", "_buffers", "_modules"}:
            if not key.endswith("_hooks"):
                self._slot(space, key, f"{label}.{key}")
        for table in (module._parameters, module._buffers):
            for key, tensor in table.items():
                self._visit(tensor, f"{label}.{key}")
        self._visit_classes(kind)


def _is_foreign(module: types.ModuleType) -> bool:
    """Whether the values of a module of Python are not the script's own."""
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return not file or is_library(file) or is_installed(file)


class Values:
    """The Python values of a walk, to be read again and compared."""

    def __init__(self, reach: Reach, apart: Iterable[tuple[int, str]] = (), more: Any = ()):
        """`apart` are slots to leave out, `more` are slots to add."""
        slots = [slot for at, slot in reach.slots.items() if at not in apart]
        self.slots = [*slots, *more]
        self._spaces, self._keys = [s[0] for s in self.slots], [s[1] for s in self.slots]
        self._cells = [cell for cell, _ in reach.cells]
        views: list[tuple[Any, str]] = []
        for part, label in reach.containers:
            views += [(part, label)] + ([(part.values(), label)] if isinstance(part, dict) else [])
        short = [(view, label) for view, label in views if len(view) <= _MOST_PARTS]
        self._views = [view for view, _ in short]
        self._sized = [*views, *reach.objects]
        self._sized_views = [view for view, _ in self._sized]
        self._sizes, self.held = list(map(len, self._sized_views)), self.read()
        self._labels = [s[2] for s in self.slots] + [label for _, label in reach.cells]
        self._labels += [label for view, label in short for _ in view]

    def read(self) -> list[Any]:
        return [
            *map(operator.getitem, self._spaces, self._keys),
            *map(_contents, self._cells),
            *chain.from_iterable(self._views),
        ]

    def hold(self) -> bool:
        try:
            now = self.read()
        except (KeyError, ValueError, AttributeError):  # a name is gone
            return False
        return list(map(len, self._sized_views)) == self._sizes and (
            all(map(operator.is_, now, self.held)) or all(map(equal, now, self.held))
        )

    def changed(self) -> list[str]:
        """The names of what has changed."""
        sizes = zip(self._sized, map(len, self._sized_views), self._sizes)
        labels = [label for (_, label), now, then in sizes if now != then]
        if labels:
            return labels
        try:
            now = self.read()
        except (KeyError, ValueError, AttributeError):
            return ["a name"]
        values = zip(self._labels, now, self.held)
        return [label for label, new, old in values if not equal(new, old)]

    def rebound(self) -> list[tuple[Any, str, str, Tensor]]:
        """The names that hold another tensor than they did: namespace, key, label and tensor."""
        return [
            (space, key, label, new)
            for (space, key, label), old in zip(self.slots, self.held)
            if isinstance(old, Tensor) and isinstance(space, dict)
            if isinstance(new := space.get(key), Tensor) and new is not old
        ]


def equal(now: Any, then: Any) -> bool:
    """One and the same object, or equal values of one immutable kind."""
    return now is then or (
        type(now) is type(then) and is_plain(now) and is_plain(then) and bool(now == then)
    )

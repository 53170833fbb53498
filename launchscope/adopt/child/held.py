"""What a script holds at one moment: the numbers, texts, tensors and arrays that its variables lead
to, by how its code would name them.

Nothing of the script is called. It looks into the script's frames and modules, its classes and
their objects, containers, and what torch and Python's library keep for a script.
"""

from __future__ import annotations

import argparse
import array
import contextvars
import ctypes
import functools
import io
import itertools
import os
import queue
import random
import sys
import threading
import types
import weakref
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from traceback import walk_stack
from types import FrameType
from typing import Any

from launchscope.adopt.child.digests import Digests
from launchscope.adopt.observation import ITERATION, HeldValue, HeldValues
from launchscope.runner.child.facts.plain_values import (
    computes_itself,
    loaded_torch,
    part_here,
)
from launchscope.runner.child.facts.source_lines import is_persons
from launchscope.runner.child.facts.torch_types import Tensor, Torch, Value

# In all, and below one variable or attribute of it: a corpus in memory must not hide a meter.
_MOST_VALUES, _MOST_BELOW, _MOST_OBJECTS = 60_000, 5_000, 100_000
# Of a long list: the first ones and the last.
_LONG, _FIRST, _LAST = 400, 50, 200
# Elements of one tensor and of all: in the processor's memory, where a data set is no result of
# training, and on a GPU.
_LARGEST = {"cpu": 1 << 20, "cuda": 1 << 26}
_MOST_ELEMENTS = {"cpu": 1 << 26, "cuda": 1 << 28}
_LONGEST_KEY, _LONGEST_TEXT = 60, 2000  # characters
_KEYS = (str, int, float, bool, type(None))
_EXACT_INT = 1 << 53  # larger ones are no floats
_DEPTH_OF_BRANCHES = 2  # a variable, and its attributes
# How an optimizer computes, and not what.
_OF_OPTIMIZERS = ("params", "fused", "capturable", "foreach", "differentiable")
_OF_TORCH = ("_dynamo", "_fsdp", "_ddp", "_is_")  # attributes that torch sets on tensors
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")


def held_values(
    torch: Torch,
    digests: Digests,
    frame: FrameType,
    known: Iterable[Tensor],
    unit: int,
    is_own: Callable[[str], bool],
) -> HeldValues:
    """What the code of `frame`, its callers and the modules whose files are the project's own hold,
    without `known` tensors, which are compared elsewhere. Names without anything before them are
    those that the code of `frame` binds."""
    walk = HeldWalk(torch, digests, known)
    walk.add_environment()
    modules: dict[int, tuple[str, dict[str, Value]]] = {}
    for name, found in _own_modules(is_own):  # the script's own has two names
        if name == "__main__" or id(found) not in modules:
            modules[id(found)] = name, found
    innermost, in_module = True, False
    for each, _ in walk_stack(frame):
        if not is_persons(each.f_code.co_filename):
            continue
        if each.f_locals is each.f_globals:
            in_module = in_module or innermost
            modules.setdefault(id(each.f_globals), ("__main__", each.f_globals))
            if modules[id(each.f_globals)][0] == "__main__":
                break  # nothing before it is the script's
        else:
            walk.add("" if innermost else f"{each.f_code.co_name}(): ", dict(each.f_locals))
        innermost = False
    for name, names in sorted(modules.values(), key=lambda found: found[0]):
        is_innermost = in_module and name == "__main__"
        walk.add("" if is_innermost else f"module {name}: ", dict(names))
    return walk.found(unit)


def _own_modules(is_own: Callable[[str], bool]) -> Iterator[tuple[str, dict[str, Value]]]:
    for name, module in list(sys.modules.items()):
        if type(module) is types.ModuleType:
            file = module.__dict__.get("__file__")
            if type(file) is not str or not is_persons(file) or not is_own(file):
                continue
            if not is_runtime(module):
                yield name, module.__dict__


def is_runtime(module: types.ModuleType) -> bool:
    """Whether a module is of a copy of our folder `graphed`, beside the script."""
    package = vars(module).get("__package__")
    names = vars(sys.modules.get(package, module)) if isinstance(package, str) else vars(module)
    return isinstance(names.get("GraphedStep"), type) and "EagerReason" in names


def _has_threads() -> bool:
    """Whether the script runs in other threads as well. What they have done by now depends on how
    fast this one is."""
    own = threading.get_ident()
    return any(
        is_persons(each.f_code.co_filename)
        for thread, frame in sys._current_frames().items()
        if thread != own
        for each, _ in walk_stack(frame)
    )


class HeldWalk:
    """Goes from what is added to what that holds, what is near first."""

    def __init__(self, torch: Torch, digests: Digests, known: Iterable[Tensor] = ()):
        self._torch, self._digests = torch, digests
        self._known = {id(tensor) for tensor in known}
        self._seen: dict[int, Value] = {}  # kept alive: an id may be given again
        # Paths and values, with how deep they are and what they are counted with.
        self._left: deque[tuple[str, Value, int, str]] = deque()
        self._depth, self._branch = 0, ""  # of the value that is looked at
        self._below: Counter[str] = Counter()
        self._values: dict[str, HeldValue] = {}
        self._tensors: dict[str, Tensor] = {}
        self._elements = dict.fromkeys(_LARGEST, 0)
        self._whole = True
        self._alone = not _has_threads()

    def add(self, before: str, names: Mapping[str, Value]) -> None:
        """Variables, with what goes before each name."""
        for name in sorted(name for name in names if type(name) is str):
            if not name.startswith("__"):
                path = before + name
                branch = path if self._depth < _DEPTH_OF_BRANCHES else self._branch
                self._left.append((path, names[name], self._depth + 1, branch))

    def add_value(self, path: str, value: Value) -> None:
        """It counts with what it was found in."""
        self._left.append((path, value, self._depth + 1, self._branch))

    def add_environment(self) -> None:
        """The generators that a host draws from, and the variables of the process."""
        for name, value in sorted(os.environ.items()):
            # A secret is not to be seen in a file.
            self._note_bytes(f"os.environ[{name!r}]", value.encode(errors="replace"))
        if not self._alone:
            return
        self._note_bytes("random numbers of torch", self._torch.get_rng_state().numpy().tobytes())
        self._note_state("random numbers of Python", random.getstate())
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            with suppress(Exception):
                self._note_state("random numbers of NumPy", numpy.get_state())

    def found(self, unit: int) -> HeldValues:
        while self._left:
            values = len(self._values) + len(self._tensors)
            if values > _MOST_VALUES or len(self._seen) > _MOST_OBJECTS:
                self._whole = False
                break
            path, value, self._depth, self._branch = self._left.popleft()
            self._below[self._branch] += 1
            if self._below[self._branch] > _MOST_BELOW:
                self._whole = False
                continue
            with suppress(Exception):  # an object of another kind than its class says
                self._take(path, value)
        names, tensors = [*self._tensors], [*self._tensors.values()]
        digests, sketches = self._digests.digests(tensors), self._digests.sketches(tensors)
        for name, tensor, digest, sketch in zip(names, tensors, digests, sketches):
            kind = str(tensor.dtype).removeprefix("torch.")
            text = f"{kind} tensor of {tuple(tensor.shape)}"
            self._values[name] = HeldValue(text, None, digest, sketch)
        return HeldValues(unit, self._values, self._whole)

    # ----------------------------------------------------------------------------- one value

    def _take(self, path: str, value: Value) -> None:
        kind = type(value)
        if value is None or kind is bool:
            self._note_text(path, str(value))
        elif kind is int or kind is float:
            self._note_number(path, value)
        elif kind is str:
            if ITERATION in value:
                return  # the source of the script
            text = value[:_LONGEST_TEXT]
            rest = f", {zlib.crc32(value.encode(errors='replace')):08x}" if text != value else ""
            self._note_text(path, repr(text) + rest)
        elif kind is bytes or kind is bytearray or kind is array.array:
            self._note_bytes(path, bytes(value))
        elif kind is Decimal or kind is Fraction or kind is range or kind is itertools.count:
            self._note_text(path, str(value))
        elif isinstance(value, (PurePath, self._torch.dtype, self._torch.device)):
            self._note_text(path, repr(str(value)))
        elif isinstance(value, Enum):
            self._note_text(path, f"{type(value).__name__}.{value._name_}")
        elif isinstance(value, self._torch.Tensor):
            self._take_tensor(path, value)
        elif not self._take_of_numpy(path, value) and id(value) not in self._seen:
            self._seen[id(value)] = value
            self._take_object(path, value)

    def _note_text(self, path: str, text: str) -> None:
        self._values[path] = HeldValue(text)

    def _note_number(self, path: str, value: int | float) -> None:
        if type(value) is int and abs(value) > _EXACT_INT:
            self._note_text(path, str(value)[:_LONGEST_TEXT])
        else:
            number = float(value)
            # JSON has no NaN, and all readers have this number.
            text = "number" if number - number == 0 else str(number)
            self._values[path] = HeldValue(text, number if text == "number" else None)

    def _note_bytes(self, path: str, content: bytes) -> None:
        self._note_text(path, f"{len(content)} bytes, {zlib.crc32(content):08x}")

    def _note_state(self, path: str, state: Value) -> None:
        self._note_bytes(path, repr(state).encode())

    def _take_tensor(self, path: str, value: Tensor) -> None:
        torch = self._torch
        tensor = part_here(value)
        with torch._C.DisableTorchFunction():
            set_on_it = dict(value.__dict__)
        self._take_names(
            path, {n: held for n, held in set_on_it.items() if not n.startswith(_OF_TORCH)}
        )
        if id(value) in self._known or id(tensor) in self._known:
            return
        if computes_itself(torch, tensor) or tensor.is_nested:
            return
        with torch.no_grad(), torch._C.DisableTorchFunction():
            if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
                return
            tensor = tensor.detach()
            count = int(tensor.numel())
            if count == 1 and not tensor.is_complex() and not tensor.is_quantized:
                self._note_number(path, tensor.reshape(()).cpu().tolist())
                return
            if count and not tensor.untyped_storage().nbytes():
                return  # sharded, and not gathered now
            if not self._has_room(tensor.device.type, count):
                self._note_text(path, f"large tensor of {tuple(tensor.shape)}")
                return
            self._tensors[path] = tensor

    def _has_room(self, device: str, count: int) -> bool:
        taken = self._elements[device] + count
        fits = count <= _LARGEST[device] and taken <= _MOST_ELEMENTS[device]
        self._elements[device] = taken if fits else self._elements[device]
        return fits

    def _take_of_numpy(self, path: str, value: Value) -> bool:
        numpy: Any = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, (numpy.generic, numpy.ndarray)):
            return False
        if value.dtype.names is not None:
            for name in value.dtype.names:
                self.add_value(f"{path}[{name!r}]", value[name])
            return True
        if value.dtype.kind in "SUcmM":  # texts, complex numbers, times
            if self._has_room("cpu", value.nbytes):
                self._note_bytes(path, value.tobytes())
            return True
        if value.dtype.kind not in "biuf":
            return True
        if value.size == 1:
            self._note_number(path, value.item())
        elif self._has_room("cpu", value.size):
            kind = numpy.float64 if value.dtype.kind == "f" else numpy.int64
            copied = numpy.array(value, dtype=kind, order="C", subok=False)
            self._tensors[path] = self._torch.from_numpy(copied)
        return True

    # ------------------------------------------------------------------------------- objects

    def _take_object(self, path: str, value: Value) -> None:
        if isinstance(value, (list, tuple, deque)):
            self._take_sequence(path, value)
        elif isinstance(value, dict):
            self._take_mapping(path, value)
        elif isinstance(value, (set, frozenset)):
            members = [each for each in value if _is_plain(each)]
            self._note_text(path, f"{len(value)} members: {sorted(map(repr, members))[:_LAST]}")
        elif isinstance(value, functools.partial):
            self._take_names(path, {"args": value.args, "keywords": value.keywords})
        elif isinstance(value, types.MethodType):
            self.add_value(f"{path}.__self__", value.__self__)
        elif isinstance(value, types.FunctionType):
            self._take_function(path, value)
        elif isinstance(value, types.GeneratorType):
            self._take_generator(path, value)
        elif isinstance(value, type):
            if _is_own(value):
                self._take_names(path, dict(vars(value)))
        elif not (
            self._take_generator_of_numbers(path, value) or self._take_of_library(path, value)
        ):
            self._take_instance(path, value)

    def _take_sequence(self, path: str, value: Value) -> None:
        kind = next(kind for kind in (list, tuple, deque) if isinstance(value, kind))
        items = list(kind.__iter__(value))
        self._note_text(f"len({path})", str(len(items)))
        whole = len(items) <= _LONG
        chosen = range(len(items)) if whole else [*range(_FIRST), *range(-_LAST, 0)]
        for at in chosen:
            self.add_value(f"{path}[{at}]", items[at])
        self._take_instance(path, value)

    def _take_mapping(self, path: str, value: Value) -> None:
        items = list(dict.items(value))
        if value.get("params") is not None and value.get("lr") is not None:
            items = [(name, held) for name, held in items if name not in _OF_OPTIMIZERS]
        self._note_text(f"len({path})", str(len(items)))
        chosen = items if len(items) <= _LONG else [*items[:_FIRST], *items[-_LAST:]]
        for at, (key, held) in enumerate(chosen):
            name = repr(key)[:_LONGEST_KEY] if _is_plain(key) else f"#{at}"
            self.add_value(f"{path}[{name}]", held)
        self._take_instance(path, value)

    def _take_function(self, path: str, value: Value) -> None:
        if not is_persons(value.__code__.co_filename):
            return
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
            with suppress(ValueError):  # not bound yet
                self.add_value(f"{path}: {name}", cell.cell_contents)
        self._take_names(path, value.__dict__)
        for name in ("__defaults__", "__kwdefaults__"):
            if (defaults := getattr(value, name)) is not None:
                self.add_value(f"{path}.{name}", defaults)

    def _take_generator(self, path: str, value: Value) -> None:
        frame = value.gi_frame
        if frame is not None and is_persons(frame.f_code.co_filename):
            self.add(f"{path}: ", dict(frame.f_locals))

    def _take_generator_of_numbers(self, path: str, value: Value) -> bool:
        """Whether it draws random numbers."""
        numpy: Any = sys.modules.get("numpy.random")
        if isinstance(value, self._torch.Generator):
            self._note_bytes(path, value.get_state().numpy().tobytes())
        elif isinstance(value, random.Random):
            self._note_state(path, random.Random.getstate(value))
        elif numpy is not None and isinstance(value, numpy.Generator):
            self._note_state(path, value.bit_generator.state)
        elif numpy is not None and isinstance(value, numpy.RandomState):
            self._note_state(path, value.get_state())
        else:
            return False
        return True

    def _take_of_library(self, path: str, value: Value) -> bool:
        """What Python itself offers to count in, or to keep values."""
        own = getattr(value, "__dict__", {})
        shared = sys.modules.get("multiprocessing.sharedctypes")
        if shared is not None and isinstance(value, shared.SynchronizedBase):
            self.add_value(path, own.get("_obj"))
        elif isinstance(value, ctypes._SimpleCData):
            self.add_value(path, value.value)
        elif isinstance(value, (ctypes.Array, ctypes.Structure)):
            self._note_bytes(path, bytes(value))
        elif isinstance(value, contextvars.ContextVar):
            self.add_value(path, value.get(None))
        elif isinstance(value, (io.StringIO, io.BytesIO)):
            self.add_value(path, value.getvalue())
        elif isinstance(value, threading.Semaphore) and self._alone:
            self.add_value(path, own.get("_value"))
        elif isinstance(value, queue.Queue) and self._alone:
            self.add_value(path, own.get("queue"))
        elif isinstance(value, queue.SimpleQueue) and self._alone:
            self._note_number(path, value.qsize())
        elif (database := sys.modules.get("sqlite3")) and isinstance(value, database.Connection):
            self._note_number(f"{path}.total_changes", value.total_changes)
        elif isinstance(value, weakref.WeakKeyDictionary):
            self._take_mapping(path, own.get("data", {}))
        else:
            return False
        return True

    def _take_instance(self, path: str, value: Value) -> None:
        torch, own = self._torch, getattr(value, "__dict__", {})
        if isinstance(value, torch.optim.Optimizer):
            for at, group in enumerate(value.param_groups):
                self._take_mapping(f"{path}.param_groups[{at}]", group)
            self._take_names(path, {n: held for n, held in own.items() if not _is_of_optimizers(n)})
        if isinstance(value, torch.nn.Module):
            for part in _MODULE_PARTS:
                found = own.get(part)
                if found is not None and isinstance(found, dict):
                    self._take_names(path, found)
            self._note_text(f"{path}.training", str(own.get("training")))
            if _is_own(type(value)) or _is_plain_layer(type(value)):
                hidden = _of_modules()
                self._take_names(path, {n: held for n, held in own.items() if n not in hidden})
        if _is_own(type(value)):
            if not isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
                self._take_names(path, own)
            self._take_names(path, _slots(value))
        elif isinstance(value, torch.optim.lr_scheduler.LRScheduler):
            self._take_names(path, {n: held for n, held in own.items() if n != "optimizer"})
        elif isinstance(value, torch.utils.data.DataLoader):
            names = ("dataset", "sampler", "batch_sampler", "collate_fn", "generator")
            self._take_names(path, {n: own[n] for n in names if n in own})
        elif isinstance(
            value,
            (
                torch.utils.data.Dataset,
                torch.utils.data.Sampler,
                argparse.Namespace,
                types.SimpleNamespace,
            ),
        ):
            self._take_names(path, own)
        elif _is_metric(type(value)):
            self._take_names(path, {n: held for n, held in own.items() if n[:1] != "_"})

    def _take_names(self, path: str, names: Mapping[str, Value]) -> None:
        self.add(f"{path}.", names)


def _is_plain(value: Value) -> bool:
    """Whether a key or a member says what it is."""
    if type(value) is tuple:
        return all(type(part) in _KEYS for part in value)
    return type(value) in _KEYS


@functools.cache
def _of_modules() -> frozenset[str]:
    """What torch keeps in each module."""
    return frozenset(vars(loaded_torch().nn.Module())) - {"training"}


def _is_of_optimizers(name: str) -> bool:
    return name[0] == "_" or name in ("defaults", "state", "param_groups")


def _is_own(kind: type) -> bool:
    """Whether the class is defined in a file of the person's."""
    module = sys.modules.get(str(getattr(kind, "__module__", None)))
    if module is None:
        return False
    file = getattr(module, "__file__", None)
    return type(file) is str and is_persons(file) and not is_runtime(module)


def _is_plain_layer(kind: type) -> bool:
    """Whether the class has no attributes that change by themselves; DDP counts its calls."""
    module = str(getattr(kind, "__module__", None))
    known = ("torch.nn.modules.", "torch.optim.swa_utils")
    return module.startswith(known) or not module.startswith("torch.")


def _is_metric(kind: type) -> bool:
    package = str(getattr(kind, "__module__", None)).partition(".")[0]
    return package in ("torchmetrics", "torcheval")


def _slots(value: Value) -> dict[str, Value]:
    found = {}
    for parent in type(value).__mro__:
        for name, made in vars(parent).items():
            if type(made) is types.MemberDescriptorType:
                with suppress(AttributeError):
                    found[name] = made.__get__(value)
    return found

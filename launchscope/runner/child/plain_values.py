"""Reads what objects of the script hold without calling any code of the script.

A property, `__getattr__`, `__class__`, `__eq__`, `__hash__` or the iteration of a class may draw
random numbers or read a queue. So only instance dictionaries, slots, and containers and tensors
of Python and torch are read, by the functions of their own classes. What is left is unknown: None.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import Literal

from launchscope.model import TensorShape
from launchscope.runner.child.torch_types import (
    Args,
    Function,
    Kwargs,
    Module,
    Optimizer,
    ParamGroup,
    Tensor,
    Torch,
    Value,
)

_class_dict = type.__dict__["__dict__"].__get__
_mro = type.__dict__["__mro__"].__get__
_class_name = type.__dict__["__name__"].__get__
# Not `issubclass`: an abstract class of Python hashes and compares the class that it is asked
# about, and asks its own subclasses, by methods of their metaclass.
is_subclass = type.__subclasscheck__
_NAMED_FIELD = type(_class_dict(namedtuple("_Named", "field"))["field"])
_CONTAINERS = (list, tuple)
_MAPPINGS = (dict, OrderedDict, defaultdict)
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")
_KEYS = (int, str, bool, float)  # their comparison is Python's own


@functools.cache
def loaded_torch() -> Torch:
    """The script's torch. Imported once: the script may count imports, or take it out again."""
    import torch

    return torch


def is_a(value: Value, *kinds: type) -> bool:
    """`isinstance` by the real type: neither the value nor a metaclass of the script is asked."""
    kind = type(value)
    for wanted in kinds:  # noqa: SIM110 - `any` with a generator takes twice the time
        if is_subclass(wanted, kind):
            return True
    return False


def is_exactly(value: Value, kinds: Iterable[type]) -> bool:
    """Whether the class of the value is one of these. Not `in`: it compares classes that are not
    the same, by a method of their metaclass."""
    kind = type(value)
    for wanted in kinds:  # noqa: SIM110 - as in `is_a`
        if kind is wanted:
            return True
    return False


def objects_of(wanted: Callable[[type], bool]) -> list[Value]:
    """Everything alive whose class is `wanted`, as far as the garbage collector lists it.

    There may be millions of objects: `wanted` is asked once per class. Classes are
    compared by identity, because a metaclass may compare and hash in its own way.
    """
    objects = gc.get_objects()
    examples = dict(zip(map(id, map(type, objects)), objects))
    found = {number for number, one in examples.items() if wanted(type(one))}
    if not found:  # to go through them again takes half of the time
        return []
    return list(compress(objects, map(found.__contains__, map(id, map(type, objects)))))


def objects_below(base: type, *, youngest: bool = False) -> list[Value]:
    """Everything alive whose class is `base` or below it: `objects_of` in one pass. With `youngest`
    only what no search for garbage has seen yet."""
    kinds: dict[int, type] = {}
    left = [base]
    while left:
        kind = left.pop()
        kinds[id(kind)] = kind
        left += type.__subclasses__(kind)
    objects = gc.get_objects(0 if youngest else None)
    return list(compress(objects, map(kinds.__contains__, map(id, map(type, objects)))))


def is_tensor(torch: Torch, value: Value) -> bool:
    return issubclass(type(value), torch.Tensor)


def computes_itself(torch: Torch, tensor: Tensor) -> bool:
    """Whether the class of a tensor runs code of its own even for its shape."""
    impl = class_attribute(type(tensor), "__torch_dispatch__")
    return impl is not torch._C._disabled_torch_dispatch_impl


def is_distributed(tensor: Tensor) -> bool:
    """Whether each rank has a part of a tensor, as with tensor parallelism and FSDP2."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and type(tensor) is getattr(module, "DTensor", None)


def part_here(value: Value) -> Value:
    """A tensor in parts has no memory but that of this rank's part; anything else as it is."""
    return value._local_tensor if is_distributed(value) else value


def tensor_field(tensor: Tensor, name: str) -> Value:
    """A property of torch.Tensor; no subclass and no function mode of the script gets to know, nor
    what it has put in the place of the property."""
    torch = loaded_torch()
    with torch._C.DisableTorchFunction():
        return getattr(torch._C.TensorBase, name).__get__(tensor)


def tensor_call(tensor: Tensor, name: str) -> Value:
    """What a method of torch.Tensor without arguments gives, in the same way."""
    torch = loaded_torch()
    with torch._C.DisableTorchFunction():
        return getattr(torch._C.TensorBase, name)(tensor)


def sizes_of(tensor: Tensor) -> Args:
    """The sizes of a tensor, which may be symbols; of a nested one, whose parts have sizes of their
    own, how many numbers it holds."""
    nested = tensor_field(tensor, "is_nested")
    return (tensor_call(tensor, "numel"),) if nested else tuple(tensor_field(tensor, "shape"))


def dims_of(tensor: Tensor) -> tuple[int, ...]:
    """The same as numbers."""
    return tuple(map(int, sizes_of(tensor)))


def shape_of(tensor: Tensor) -> TensorShape:
    dtype = str(tensor_field(tensor, "dtype"))
    return TensorShape(dims_of(tensor), dtype.removeprefix("torch."))


def class_attribute(kind: type, name: str) -> Value:
    """What the class or its nearest parent defines under a name, as it is in their dictionaries."""
    found = (_class_dict(parent).get(name) for parent in _mro(kind))
    return next((value for value in found if value is not None), None)


def class_names(kind: type) -> list[str]:
    """The names of a class and of its parents."""
    return [_class_name(parent) for parent in _mro(kind)]


def class_name(value: Value) -> str:
    """The name of the value's class, for which no metaclass of the script is asked."""
    return _class_name(type(value))  # type: ignore[no-any-return]


def own_attributes(value: Value) -> dict[str, Value]:
    """The dictionary of an instance itself; an empty one if it has none."""
    entry = class_attribute(type(value), "__dict__")
    if not is_exactly(entry, (types.GetSetDescriptorType, types.MemberDescriptorType)):
        return {}  # a property of that name
    found = entry.__get__(value)
    return found if type(found) is dict else {}


def attribute(torch: Torch, value: Value, name: str) -> Value:
    """What `value.name` is, if that needs no code of a class. Of tensors and classes: None."""
    kind = type(value)
    if is_a(value, type, torch.Tensor):
        return None
    if type(class_attribute(kind, "__getattribute__")) is not types.WrapperDescriptorType:
        return None
    entry = class_attribute(kind, name)
    if is_exactly(entry, (types.MemberDescriptorType, _NAMED_FIELD)):
        try:
            return entry.__get__(value)
        except AttributeError:
            return None
    if class_attribute(type(entry), "__set__") is not None:
        return None
    own = own_attributes(value)
    if found := values_of(own, name):
        return found[0]
    if entry is not None:
        return entry if class_attribute(type(entry), "__get__") is None else None
    missing = class_attribute(kind, "__getattr__")
    if is_a(value, torch.nn.Module) and missing is _class_dict(torch.nn.Module)["__getattr__"]:
        parts = (values_of(own.get(group), name) for group in _MODULE_PARTS)
        return next((part[0] for part in parts if part), None)
    return None


def element(value: Value, key: Value) -> Value:
    """What `value[key]` is for a container of Python itself and a plain key."""
    if type(key) is int and is_exactly(value, _CONTAINERS) and -len(value) <= key < len(value):
        return value[key]
    if is_exactly(key, (int, str)) and is_exactly(value, _MAPPINGS):
        return entry(value, key)
    return None


def values_of(container: Value, key: Value = None) -> Args:
    """The values of a dictionary, with `key` only that one's, or of a list or tuple; else ()."""
    if is_a(container, dict):
        if key is None:
            return tuple(dict.values(container))
        entries = dict.items(container)
        # A list first: a tuple that grows fails if another thread asks for all objects meanwhile.
        return (*[found for name, found in entries if is_exactly(name, _KEYS) and name == key],)
    if key is None and is_a(container, list):
        return tuple(list.__iter__(container))
    return tuple(tuple.__iter__(container)) if key is None and is_a(container, tuple) else ()


def entry(mapping: dict[str, Value], key: str) -> Value:
    """`mapping.get(key)`, also where the mapping's class is one of the script."""
    return next(iter(values_of(mapping, key)), None)


def is_set(mapping: dict[str, Value], key: str) -> bool:
    """Whether a flag in a mapping is set; an object of the script is not asked for its truth."""
    value = entry(mapping, key)
    return is_exactly(value, (bool, int)) and bool(value)


def tensors_in(torch: Torch, value: Value) -> Iterator[Tensor]:
    """The tensors in nested containers of Python. A container that comes again is left out: a node
    of a tree may hold its parent."""
    left, seen = [value], set()
    while left:
        part = left.pop()
        if is_tensor(torch, part):
            yield part
        elif id(part) not in seen and (parts := values_of(part)):
            seen.add(id(part))
            left += reversed(parts)


def parts_of(value: Value) -> Args:
    """The values that a batch holds directly: those of a container or an object's attributes."""
    if is_a(value, UserDict):
        value = own_attributes(value).get("data")
    return values_of(value if is_a(value, dict, list, tuple) else own_attributes(value))


def module_attributes(module: Module) -> dict[str, Value]:
    """As `own_attributes`, in the time that a step has."""
    return _module_dict()(module)  # type: ignore[no-any-return]


@functools.cache
def _module_dict() -> Function:
    return _class_dict(loaded_torch().nn.Module)["__dict__"].__get__


def modules_of(module: Module) -> Iterator[Module]:
    """A module and those below it, each once; of TorchScript only the outermost one."""
    torch = loaded_torch()
    seen, left = set(), [module]
    while left:
        current = left.pop()
        if id(current) not in seen and is_a(current, torch.nn.Module):
            seen.add(id(current))
            yield current
            left += reversed(values_of(module_attributes(current).get("_modules")))


def module_tensors(module: Module, kind: Literal["parameters", "buffers"]) -> Iterator[Tensor]:
    """The parameters or buffers of a module, at any depth."""
    torch = loaded_torch()
    for part in modules_of(module):
        if is_a(part, torch.jit.ScriptModule):  # they are not in Python's dictionaries
            yield from getattr(torch.jit.ScriptModule, kind)(part)
        else:
            values = values_of(module_attributes(part).get(f"_{kind}"))
            yield from (value for value in values if is_tensor(torch, value))


def gradient_of(tensor: Tensor) -> Tensor | None:
    """None for what is no leaf: torch warns about those."""
    return tensor_field(tensor, "grad") if tensor_field(tensor, "is_leaf") else None


def parameter_groups(optimizer: Optimizer) -> list[ParamGroup]:
    groups = values_of(own_attributes(optimizer).get("param_groups"))
    return [group for group in groups if is_a(group, dict)]


# In torch's optimizers: means or sums of squared gradients, by whose root an update is divided. Of
# several, the first.
_SQUARES = ("max_exp_avg_sq", "exp_avg_sq", "square_avg", "sum")


def name_of_squares(state: Kwargs) -> str | None:
    """Under which name the state of a parameter has its mean squared gradients."""
    return next((name for name in _SQUARES if entry(state, name) is not None), None)


def parameters_with_state(
    optimizer: Optimizer,
) -> Iterator[tuple[ParamGroup, Tensor, Kwargs]]:
    """Each parameter with its group and its state, an empty dictionary if it has none."""
    states = own_attributes(optimizer).get("state")
    entries = dict.items(states) if states is not None and is_a(states, dict) else ()
    known = {id(parameter): state for parameter, state in entries if is_a(state, dict)}
    for group in parameter_groups(optimizer):
        for parameter in values_of(entry(group, "params")):
            yield group, parameter, known.get(id(parameter), {})

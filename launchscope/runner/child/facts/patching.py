"""Puts functions of launchscope in the place of others, and takes them out again."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from launchscope.runner.child.facts.torch_types import Function, Module, Value

Undo: TypeAlias = Callable[[], None]
Around: TypeAlias = Callable[[Function], Function]
MakeContext: TypeAlias = Callable[[], AbstractContextManager[object]]
# Where torch.nn.Module looks for a call that replaces its own. Unlike a hook, it does not make
# the call of the module slower, and torch leaves it out of copies.
_CALL = "_compiled_call_impl"


def put_in_place(owner: Value, name: str, ours: Function) -> Undo:
    """Replace an attribute of an object; the result takes that back, unless somebody else has put
    something there meanwhile."""
    own = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, ours)

    def take_back() -> None:
        if vars(owner).get(name) is ours:
            if own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)

    return take_back


def wrap(owner: Value, name: str, around: Around) -> Undo:
    """Replace a function by what `around` makes of it."""
    original = getattr(owner, name)
    return put_in_place(owner, name, functools.wraps(original)(around(original)))


def within(context: MakeContext, original: Function) -> Function:
    """A function that is called within `context`."""

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Value:
        with context():
            return original(*args, **kwargs)

    return called


def take_out(handle: Value) -> None:
    """Take a hook of ours out of its table. torch may be iterating over the table, which fails if
    an entry before the last one goes: then an empty function takes its place."""
    table = handle.hooks_dict_ref()
    if handle.id == next(reversed(table), None):
        handle.remove()
    elif handle.id in table:
        table[handle.id] = lambda *args: None


class ReplacedCall(functools.partial[Value]):
    """A call that replaces a module's own; in a copy or a pickle of the module it is None."""

    inner: Function  # the call that was there before; None for the module's own
    is_over = False

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def replace_call(module: Module, around: Around) -> Undo:
    """Replace a module's call by what `around` makes of it; the result takes that back.

    Several may be put around each other. None of them keeps the module alive, unless `around` does.
    """
    space, reference = module.__dict__, weakref.ref(module)
    inner = space.get(_CALL)
    original = _own_call(module) if inner is None else inner
    call = space[_CALL] = ReplacedCall(around(original))
    call.inner = inner

    def restore() -> None:
        call.is_over = True
        call.__setstate__((original, (), {}, vars(call)))  # type: ignore[attr-defined]
        if (module := reference()) is None:
            return
        top = module.__dict__.get(_CALL)
        while isinstance(top, ReplacedCall) and top.is_over:
            top = top.inner
        module.__dict__[_CALL] = top
        if top is None:
            del module.__dict__[_CALL]

    return restore


def _own_call(module: Module) -> Function:
    call, reference = type(module)._call_impl, weakref.ref(module)
    return lambda *args, **kwargs: call(reference(), *args, **kwargs)

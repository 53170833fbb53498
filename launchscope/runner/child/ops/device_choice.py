"""Finds the line at which a script that used no GPU chooses its device."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from launchscope.model import GpuObstacle, SourceLine, UnusedGpu
from launchscope.runner.child.ops.source_code import parsed
from launchscope.runner.child.source_lines import is_persons, short_path, source_text
from launchscope.runner.child.source_tree import module_files

# How a line chooses: by hiding the GPU, by the default of an option, by what a name or an argument
# of a call is, by moving a tensor, or by asking whether there is a GPU.
Way: TypeAlias = Literal["hides", "option", "name", "argument", "moves", "asks"]
# The surest first. Where the GPU is out of reach, the script was told so when it asked.
_IN_REACH: tuple[Way, ...] = ("option", "name", "argument", "moves", "asks")
_OUT_OF_REACH: tuple[Way, ...] = ("hides", "asks", *_IN_REACH[:-1])
_DEVICE = re.compile(r"(.*[._-])?(device|dev|accelerator)", re.IGNORECASE)
_WITHOUT_GPU = ("--cpu", "--use-cpu", "--no-cuda", "--no-gpu")


def unused_gpu(obstacle: GpuObstacle) -> UnusedGpu:
    """What the command line, and the files of the person that were run, say of the device."""
    words = sys.argv[1:]
    option = chosen_option(words) if obstacle == "script" else None
    found: dict[Way, SourceLine] = {}
    for file in dict.fromkeys(file for _, file in module_files() if is_persons(file)):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            for way, line in choices(parsed(file), option):
                found.setdefault(way, SourceLine(short_path(file), line))
    order = _IN_REACH if obstacle == "script" else _OUT_OF_REACH
    if option is not None:
        order = ("option",)
    where = next((found[way] for way in order if way in found), None)
    return UnusedGpu(obstacle, where, source_text(where), option)


def chosen_option(words: Sequence[str]) -> str | None:
    """The option of a command line that chooses the CPU: `--device cpu`, `device=cpu`, `--cpu`."""
    for word, after in zip(words, [*words[1:], ""]):
        name, given, value = word.partition("=")
        if _is_device(name) and (value if given else after).partition(":")[0] == "cpu":
            return name
        if word.replace("_", "-") in _WITHOUT_GPU:
            return word
    return None


def choices(tree: ast.Module, option: str | None = None) -> Iterator[tuple[Way, int]]:
    """The lines that choose the CPU, or may do so, and how. An `option` that was given counts
    whatever its default is."""
    for node in ast.walk(tree):
        for way, name, value in _bound(node):
            if way == "hides" or (_is_device(name) and _is_cpu(value)):
                yield way, value.lineno
        if isinstance(node, ast.Call):
            yield from ((way, node.lineno) for way in _called(node, option))


def _called(node: ast.Call, option: str | None) -> Iterator[Way]:
    first = next(iter(node.args), None)
    match node.func:
        case ast.Attribute(ast.Attribute(_, "cuda") | ast.Name("cuda"), "is_available"):
            yield "asks"
        case ast.Attribute(_, "to"):
            if _is_cpu(first):
                yield "moves"
        case ast.Attribute(_, "device" | "set_default_device") | ast.Name("device"):
            if _is_cpu(first):
                yield "argument"
        case _:
            names = {name for name in map(_name, node.args) if name.startswith("-")}
            default = next((k.value for k in node.keywords if k.arg == "default"), None)
            if option in names or (_is_cpu(default) and any(map(_is_device, names))):
                yield "option"


def _bound(node: ast.AST) -> Iterator[tuple[Way, str, ast.expr]]:
    """Names that get a value: of variables, attributes, entries, arguments and their defaults."""
    match node:
        case ast.Assign(targets, value):
            for target in targets:
                name = _name(target)
                yield "hides" if name == "CUDA_VISIBLE_DEVICES" else "name", name, value
        case ast.AnnAssign(target, _, ast.expr() as value) | ast.NamedExpr(target, value):
            yield "name", _name(target), value
        case ast.Dict(keys, values):
            yield from (("name", _name(key), value) for key, value in zip(keys, values))
        case ast.arguments():
            positional = [*node.posonlyargs, *node.args]
            last = positional[len(positional) - len(node.defaults) :]
            pairs = zip([*last, *node.kwonlyargs], [*node.defaults, *node.kw_defaults])
            yield from (("argument", arg.arg, value) for arg, value in pairs if value is not None)
        case ast.keyword(str() as name, value):
            yield "argument", name, value


def _name(node: ast.AST | None) -> str:
    """The last name in an expression, or the text that it is; empty if there is none."""
    match node:
        case ast.Name(name) | ast.Attribute(_, name) | ast.Constant(str() as name):
            return name
        case ast.Subscript(_, key):
            return _name(key)
    return ""


def _is_device(name: str) -> bool:
    return _DEVICE.fullmatch(name) is not None


def _is_cpu(node: ast.expr | None) -> bool:
    """Whether an expression is the CPU, or may be: `"cuda" if has_gpu else "cpu"`."""
    match node:
        case ast.Constant(str() as name):
            return name.partition(":")[0] == "cpu"
        case ast.IfExp(_, first, second):
            return _is_cpu(first) or _is_cpu(second)
        case ast.BoolOp(_, values):
            return any(map(_is_cpu, values))
        case ast.Call(function, [first, *_]):
            return _name(function) == "device" and _is_cpu(first)
    return False

"""Finds the line at which a script that used no GPU chooses its device."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from launchscope.model import GpuObstacle, SourceLine, UnusedGpu
from launchscope.python_source import last_name, parsed
from launchscope.runner.child.facts.source_lines import (
    is_persons,
    short_path,
    source_of,
    source_text,
)
from launchscope.runner.child.facts.source_tree import module_files

# How a line chooses: by hiding the GPU, by an option or its default, by naming a device and the
# CPU, by moving a tensor, or by asking whether there is a GPU.
Way: TypeAlias = Literal["hides", "option", "names", "moves", "asks"]
# The surest first. Where the GPU is out of reach, the script was told so when it asked.
_IN_REACH: tuple[Way, ...] = ("option", "names", "moves", "asks")
_OUT_OF_REACH: tuple[Way, ...] = ("hides", "asks", "option", "names", "moves")
_DEVICE = re.compile(r"(.*[._-])?(device|dev|accelerator)", re.IGNORECASE)
_WITHOUT_GPU = ("--cpu", "--use-cpu", "--no-cuda", "--no-gpu")
_PLACES = (ast.arguments, ast.keyword, ast.Call, ast.Dict, ast.Assign, ast.AnnAssign, ast.NamedExpr)


def persons_files() -> dict[str, ast.Module]:
    """The files of the person that were run, and their trees."""
    trees = {}
    for file in [file for _, file in module_files() if is_persons(file)]:
        with contextlib.suppress(SyntaxError, ValueError):
            trees[file] = parsed("".join(source_of(file)))
    return trees


def unused_gpu(obstacle: GpuObstacle) -> UnusedGpu:
    """What the command line, and the files of the person that were run, say of the device."""
    words = sys.argv[1:]
    option = chosen_option(words) if obstacle == "script" else None
    found: dict[Way, SourceLine] = {}
    for file, tree in persons_files().items():
        for way, line in choices(tree, option):
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
        if _DEVICE.fullmatch(name) and _is_cpu(value if given else after):
            return name
        if word.replace("_", "-") in _WITHOUT_GPU:
            return word
    return None


def choices(tree: ast.Module, option: str | None = None) -> Iterator[tuple[Way, int]]:
    """The lines that choose the CPU, or may do so, and how. An `option` that was given counts
    whatever its default is."""
    for node in ast.walk(tree):
        if isinstance(node, _PLACES):
            texts = [n for n in ast.walk(node) if isinstance(n, ast.Constant)]
            cpu = next((text for text in texts if _is_cpu(text.value)), None)
            way = _way(node, set(_words(node)), cpu is not None, option)
            if way is not None:
                yield way, getattr(cpu or node, "lineno", 0)


def _words(node: ast.AST) -> Iterator[str]:
    """Every name and text in a node."""
    for part in ast.walk(node):
        for field in ("id", "attr", "arg", "value"):
            if isinstance(word := getattr(part, field, None), str):
                yield word


def _way(node: ast.AST, words: set[str], names_cpu: bool, option: str | None) -> Way | None:
    called = last_name(node.func) if isinstance(node, ast.Call) else ""
    chooses = names_cpu and any(map(_DEVICE.fullmatch, words))
    if isinstance(node, ast.Assign) and "CUDA_VISIBLE_DEVICES" in words:
        return "hides"
    if called == "is_available" and "cuda" in words:
        return "asks"
    if called == "add_argument":
        return "option" if option in words or chooses else None
    if called == "to" and names_cpu:
        return "moves"
    return "names" if chooses else None


def _is_cpu(word: object) -> bool:
    return isinstance(word, str) and word.partition(":")[0] == "cpu"

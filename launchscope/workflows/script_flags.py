"""Which options a script takes, read from its source without running it.

What argparse, click, typer, absl and dataclass parsers declare in the script, or in the
person's own modules that it imports.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from launchscope.model import Target

_DECLARING = {"add_argument", "option", "Option"}
_ABSL = {"DEFINE_integer", "DEFINE_string", "DEFINE_float", "DEFINE_bool", "DEFINE_enum"}
# Parsers that make options of the fields of a dataclass.
_OF_FIELDS = {"HfArgumentParser", "tyro", "simple_parsing", "jsonargparse", "chz", "draccus"}
_FUNCTIONS = {"fire", "typer", "jsonargparse"}
_OPAQUE = {"hydra", "omegaconf", "sacred", "gin", "ml_collections"}
_MOST_FILES = 40


@dataclass(frozen=True)
class ScriptOptions:
    """`flags` with their dashes; `words` are the strings of the source. `opaque`: how options
    are read by something whose names the source does not show; None if nothing does. `found`:
    whether there is a source at all."""

    flags: frozenset[str]
    words: frozenset[str]
    opaque: str | None = None
    found: bool = True

    def spelled(self, name: str) -> str | None:
        """The flag of that name as the script spells it; None if it has none."""
        plain = name.lstrip("-")
        forms = (plain, plain.replace("_", "-"), plain.replace("-", "_"))
        for dashes in ("--", "-"):
            for form in forms:
                if dashes + form in self.flags:
                    return dashes + form
        return None


def options_of(target: Target) -> ScriptOptions:
    """The options of a script or module. One that cannot be read has none that are known."""
    flags: set[str] = set()
    words: set[str] = set()
    opaque: str | None = None
    seen: set[Path] = set()
    file = _file_of(target)
    left = [] if file is None else [file]
    folders = [Path.cwd()] if file is None else [file.resolve().parent, Path.cwd()]
    while left and len(seen) < _MOST_FILES:
        path = left.pop(0).resolve()
        if path in seen:
            continue
        seen.add(path)
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        imported = set(_imported(tree))
        roots = {name.split(".")[0] for name in imported}
        flags |= _declared(tree, roots | _names(tree))
        words |= {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        if opaque is None:
            opaque = next((name for name in sorted(_OPAQUE) if name in roots), None)
            if opaque is None and _reads_argv(tree):
                opaque = "sys.argv"
        left += _own_modules(imported, folders)
    return ScriptOptions(frozenset(flags), frozenset(words), opaque, file is not None)


def _file_of(target: Target) -> Path | None:
    if target.kind == "script":
        return Path(target.name)
    return _source_of([*target.name.split("."), "__main__"]) or _source_of(target.name.split("."))


def _source_of(parts: list[str]) -> Path | None:
    """The file of a module, found folder by folder: importlib.util.find_spec of the whole name
    would import the packages above it, and so run the person's code in this process."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(parts[0])
        for depth in range(2, len(parts) + 1):
            if spec is None or spec.submodule_search_locations is None:
                return None
            spec = PathFinder.find_spec(
                ".".join(parts[:depth]), list(spec.submodule_search_locations)
            )
    except (ImportError, ValueError, AttributeError):
        return None
    finally:
        sys.path.pop(0)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)


def _declared(tree: ast.Module, known: set[str]) -> set[str]:
    flags: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _called(node)
            strings = [
                arg.value
                for arg in node.args
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            ]
            if name in _DECLARING:
                flags |= {text.split()[0] for text in strings if text.startswith("-")}
            elif name in _ABSL and strings:
                flags.add(f"--{strings[0]}")
        elif isinstance(node, ast.ClassDef) and known & _OF_FIELDS:
            flags |= {
                f"--{field.target.id}"
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            }
        elif isinstance(node, ast.FunctionDef) and known & _FUNCTIONS:
            flags |= set(_parameters(node, dashed="typer" in known))
    return flags


def _parameters(function: ast.FunctionDef, *, dashed: bool) -> Iterator[str]:
    """Flags that typer and fire make of a function's parameters.

    Not of those for which an Option in the default or the annotation names its own.
    """
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: dict[str, ast.expr | None] = dict(
        zip((argument.arg for argument in reversed(plain)), reversed(arguments.defaults))
    )
    defaults.update(zip((argument.arg for argument in arguments.kwonlyargs), arguments.kw_defaults))
    for argument in (*plain, *arguments.kwonlyargs):
        name = argument.arg
        if not any(_names_a_flag(place) for place in (defaults.get(name), argument.annotation)):
            yield f"--{name.replace('_', '-')}" if dashed else f"--{name}"


def _names_a_flag(place: ast.expr | None) -> bool:
    return place is not None and any(
        isinstance(arg, ast.Constant) and isinstance(arg.value, str) and arg.value.startswith("-")
        for node in ast.walk(place)
        if isinstance(node, ast.Call) and _called(node) in _DECLARING
        for arg in node.args
    )


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _names(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _reads_argv(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "argv" for node in ast.walk(tree))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _own_modules(names: set[str], folders: list[Path]) -> list[Path]:
    """Files beside the script, or below the working directory, that it imports."""
    found = []
    for name in sorted(names):
        parts = [part for part in name.split(".") if part]
        if not parts or parts[0] in sys.stdlib_module_names:
            continue
        for folder in folders:
            place = folder.joinpath(*parts)
            candidates = (place.with_suffix(".py"), place / "__init__.py")
            found += [path for path in candidates if path.is_file()]
    return found

"""Which options a script takes, read from its source and its own modules without running them: what
argparse, click, typer and fire declare."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from launchscope.frozen import dataclass
from launchscope.host import working_directory
from launchscope.model import Target
from launchscope.python_source import last_name, parsed

_DECLARING = {"add_argument", "option", "Option"}
_FUNCTIONS = {"fire", "typer", "jsonargparse"}
_OPAQUE = {
    "hydra", "omegaconf", "sacred", "gin", "ml_collections", "absl", "HfArgumentParser", "tyro",
    "simple_parsing", "chz", "draccus",
}  # fmt: skip
_OF_SETTINGS = {"hydra", "omegaconf"}  # arguments are `name=value`, by the path of a setting
_MOST_FILES = 40


@dataclass(frozen=True)
class ScriptOptions:
    """`declared` are the flags of each option, with their dashes; `words` are the strings of the
    source. `settings` are what a value is written behind without a space: `data.batch_size=`.
    `opaque`: how options are read by something whose names the source does not show; None if
    nothing does. `found`: whether there is a source at all."""

    declared: frozenset[tuple[str, ...]]
    words: frozenset[str]
    opaque: str | None = None
    found: bool = True
    settings: frozenset[str] = frozenset()

    @property
    def flags(self) -> frozenset[str]:
        return frozenset(flag for flags in self.declared for flag in flags)

    def spelled(self, name: str) -> str | None:
        """The flag or setting of that name as the script spells it; None if it has none."""
        plain = name.lstrip("-").removesuffix("=")
        forms = (plain, plain.replace("_", "-"), plain.replace("-", "_"))
        known = self.flags | self.settings
        spellings = (f"{dashes}{form}" for dashes in ("--", "-") for form in forms)
        settings = (f"{dashes}{form}=" for dashes in ("--", "") for form in forms)
        return next((word for word in (*spellings, *settings) if word in known), None)


def options_of(target: Target) -> ScriptOptions:
    """The options of a script or module. One that cannot be read has none that are known."""
    declared: set[tuple[str, ...]] = set()
    words: set[str] = set()
    settings: set[str] = set()
    opaque: str | None = None
    seen: set[Path] = set()
    file = _file_of(target)
    left = [] if file is None else [file]
    here = Path(working_directory())
    folders = [here] if file is None else [file.resolve().parent, here]
    while left and len(seen) < _MOST_FILES:
        path = left.pop(0).resolve()
        if path in seen:
            continue
        seen.add(path)
        try:
            tree = parsed(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # nested too deep
            continue
        nodes = list(ast.walk(tree))
        imported = set(_imported(nodes))
        parts = {part for name in imported for part in name.split(".")}
        declared |= set(_flags_of_calls(nodes))
        if parts & _FUNCTIONS:
            for node in nodes:
                if isinstance(node, ast.FunctionDef):
                    names = _parameters(node, dashed="typer" in parts)
                    declared |= {(name,) for name in names}
        if "HfArgumentParser" in parts and any("TrainingArguments" in part for part in parts):
            declared.add(("--per_device_train_batch_size",))  # of a class of the library
        if parts & _OF_SETTINGS:
            settings |= {f"{path}=" for path in _paths(nodes)}
        if any(map(_executes_file, nodes)):
            settings |= {f"--{name}=" for name in _globals(tree)}
        words |= set(_strings(nodes))
        if opaque is None:
            opaque = min(_OPAQUE & parts, default=None)
            if opaque is None and any(getattr(node, "attr", None) == "argv" for node in nodes):
                opaque = "sys.argv"
        left += _own_modules(imported, folders)
    return ScriptOptions(
        frozenset(declared), frozenset(words), opaque, file is not None, frozenset(settings)
    )


def _file_of(target: Target) -> Path | None:
    if target.kind == "script":
        return Path(target.name)
    return _source_of([*target.name.split("."), "__main__"]) or _source_of(target.name.split("."))


def _source_of(parts: list[str]) -> Path | None:
    """The file of a module, found folder by folder: importlib.util.find_spec
    would import the packages above it, and so run the person's code in this process."""
    places: list[str] | None = [working_directory(), *sys.path]
    origin = None
    for depth in range(1, len(parts) + 1):
        spec = None if places is None else PathFinder.find_spec(".".join(parts[:depth]), places)
        if spec is None:
            return None
        origin, inside = spec.origin, spec.submodule_search_locations
        places = None if inside is None else list(inside)
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _flags_of_calls(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ...]]:
    """The flags of each option that a call such as `add_argument` declares."""
    for node in nodes:
        if isinstance(node, ast.Call):
            function, strings = node.func, list(_strings(node.args))
            name = last_name(function)
            if name in _DECLARING:
                flags = tuple(text.split()[0] for text in strings if text.startswith("-"))
                if flags:
                    yield flags


def _paths(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """What the source reads from its settings: `data.lr` of `cfg.data.lr` or `cfg["data"]["lr"]`,
    and of a dictionary of dictionaries that gives their defaults."""
    inside = {id(value) for node in nodes if isinstance(node, ast.Dict) for value in node.values}
    for node in nodes:
        names: list[str] = []
        inner = node
        while isinstance(inner, ast.Attribute | ast.Subscript):
            name = inner.attr if isinstance(inner, ast.Attribute) else _text(inner.slice)
            names.insert(0, name or "")
            inner = inner.value
        if isinstance(inner, ast.Name) and all(names):
            own = names[1:] if inner.id in ("self", "cls") else names
            if own:
                yield ".".join(own)
        if isinstance(node, ast.Dict) and id(node) not in inside:
            yield from _keys(node)


def _keys(table: ast.Dict) -> Iterator[str]:
    for key, value in zip(table.keys, table.values):
        name = _text(key)
        if name and isinstance(value, ast.Dict):
            yield from (f"{name}.{path}" for path in _keys(value))
        elif name:
            yield name


def _text(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _executes_file(node: ast.AST) -> bool:
    """Whether it is `exec(open(...).read())`, which reads `--name=value` into the globals."""
    return (
        isinstance(node, ast.Call)
        and getattr(node.func, "id", None) == "exec"
        and any(getattr(inner, "id", None) == "open" for inner in ast.walk(node))
    )


def _globals(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _parameters(function: ast.FunctionDef, *, dashed: bool) -> Iterator[str]:
    """Flags that typer and fire make of a function's parameters, but for those whose Option, in the
    default or the annotation, names its own."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    for argument, default in (*zip(plain, defaults), *zip(given.kwonlyargs, given.kw_defaults)):
        places = [place for place in (default, argument.annotation) if place is not None]
        if not any(True for place in places for _ in _flags_of_calls(ast.walk(place))):
            yield f"--{argument.arg.replace('_', '-') if dashed else argument.arg}"


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
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

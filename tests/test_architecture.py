"""Which package may import which others, and how large each may be, read from the sources."""

from __future__ import annotations

import ast
import functools
import importlib
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "launchscope"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Nothing imports these: they are what a person starts.
TOP = {"cli", "__main__", "pytest_plugin"}
BASE = {
    "errors", "git", "host", "plugins", "model", "python_source", "reason_text",
    "recorded", "visible", "wording",
}  # fmt: skip

# What each part of the package may import of the others. Any other arrow goes back.
ALLOWED: dict[str, set[str]] = {
    "__init__": {"api", "graphed", "markers"},
    "__main__": {"cli"},
    "errors": {"visible"},
    "git": {"errors", "host"},
    "host": set(),
    "plugins": set(),
    "python_source": set(),
    "visible": set(),
    "model": {"errors"},
    "recorded": {"host", "model"},
    "wording": {"model"},
    "reason_text": {"model", "wording"},
    "config": BASE,
    "graphed": set(),
    "markers": BASE,
    "runner": BASE | {"graphed", "markers"},
    "adopt": BASE | {"runner", "graphed"},
    "parser": BASE | {"config"},
    "analysis": BASE | {"config", "parser"},
    "rules": BASE | {"config", "parser", "analysis"},
    "gate": BASE | {"config", "parser", "analysis"},
    "report": BASE | {"config", "parser", "analysis", "rules", "gate"},
}
ALLOWED["workflows"] = {*ALLOWED} - TOP - {"__init__"}
ALLOWED["api"] = ALLOWED["integrations"] = ALLOWED["workflows"] | {"workflows"}
ALLOWED["cli"] = ALLOWED["api"] | {"api"}
ALLOWED["pytest_plugin"] = ALLOWED["cli"]

# Libraries that only some pieces may use.
LIBRARIES: dict[str, set[str]] = {
    "torch": {
        "adopt/child", "runner", "graphed", "integrations", "markers", "api", "cli", "workflows",
        "pytest_plugin",
    },
    "transformers": {"integrations"},
    "IPython": {"integrations"},
    "pytest": {"pytest_plugin"},
    "nvtx": {"runner", "markers"},
    "pandas": {"parser", "report"},
    "numpy": {"parser", "analysis"},
    "isal": {"parser"},
    "msgspec": {
        "model", "adopt", "parser", "config", "analysis", "rules", "report", "gate", "api", "cli",
        "workflows", "runner/parent",
    },
    "typer": {"cli"},
    "rich": {"cli", "report", "integrations"},
    "jinja2": {"report"},
    "markupsafe": {"report"},
    "tomli": {"config"},
    "tomllib": {"config"},
}  # fmt: skip

# What runs in the process of the person's script. It brings no other library into it, and of the
# packages that have code there, imports only what runs there or is named here.
IN_SCRIPT = (
    "runner/child/", "runner/protocol/", "adopt/child/", "adopt/record.py", "adopt/observation.py",
)  # fmt: skip
LIBRARIES_IN_SCRIPT = {"torch", "nvtx"}

# What the sides of the runner may import of one another, and within the child its packages;
# the files directly in `child` may import all of them.
RUNNER_SIDES: dict[str, set[str]] = {
    "protocol": set(),
    "parent": {"protocol"},
    "child": {"protocol"},
}
CHILD_PACKAGES: dict[str, set[str]] = {
    "facts": set(),
    "events": {"facts"},
    "steps": {"facts", "events"},
    "rehearsal": {"facts"},
    "enter": {"facts", "events", "rehearsal"},
    "capture": {"facts", "events"},
    "passes": {"facts", "events", "steps", "rehearsal", "enter", "capture"},
}

# Budgets start at the size of today and are never raised. One that is above the size by more than
# 3 %, and by more than this, has to be lowered.
SLACK = {"lines": 100, "files": 2}
PACKAGE_LINES = {
    "top-level modules": 1_452,
    "model": 1_418,
    "graphed": 3_129,
    "integrations": 631,
    "watch": 266,
    "runner": 11_622,
    "runner/protocol": 376,
    "runner/parent": 1_705,
    "runner/child": 9_540,
    "parser": 1_820,
    "analysis": 4_880,
    "rules": 2_600,
    "adopt": 4_460,
    "gate": 1_087,
    "report": 3_302,
    "workflows": 2_226,
    "cli": 1_295,
    "api and pytest_plugin": 382,
}
TEST_LINES = 39_071
FILE_LINES = 500
LARGER_FILES: dict[str, int] = {}
FOLDER_FILES = 15  # without __init__.py
LARGER_FOLDERS = {
    "adopt": 22,
    "workflows": 17,
}
FUNCTION_LINES_MEDIAN, FUNCTION_LINES_90TH = 10, 25

TOP_LEVEL = {
    ".ci", ".github", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile",
    "README.md", "docs", "launchscope", "pyproject.toml", "sample_workloads", "tests",
}  # fmt: skip


@dataclass(frozen=True)
class Import:
    module: str  # absolute dotted name
    line: int
    typing_only: bool


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def piece(path: Path) -> str:
    """The part of the package a file belongs to: its top-level folder or module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def text(path: Path) -> str:
    return path.read_text()


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text(path), str(path))))


def calls(path: Path) -> Iterator[tuple[str, int]]:
    for node in nodes(path):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


@functools.cache
def imports(path: Path) -> list[Import]:
    """Every import of a file, inside functions too, made absolute."""
    typing_only = {
        id(inner)
        for node in nodes(path)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    here = ("launchscope", *path.relative_to(PACKAGE).parts)[:-1]
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            # `from launchscope import x` may name a module: judge it by its full name.
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [Import(name, node.lineno, id(node) in typing_only) for name in names]
    return found


def pieces_imported(path: Path) -> Iterator[tuple[str, int]]:
    for found in imports(path):
        parts = found.module.split(".")
        if parts[0] == "launchscope" and len(parts) > 1 and is_piece(parts[1]):
            yield parts[1], found.line


@functools.cache
def is_piece(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def check(wrong: Iterable[str]) -> None:
    """Fail with every one of them, which pytest would shorten."""
    said = "\n".join(wrong)
    assert not said, said


def test_every_part_of_the_package_has_a_place_in_the_design() -> None:
    assert {piece(path) for path in MODULES} == ALLOWED.keys()


def test_every_import_goes_to_an_earlier_layer() -> None:
    check(
        f"{relative(path)}:{line} imports {other}"
        for path in MODULES
        for other, line in pieces_imported(path)
        if other not in {piece(path), *ALLOWED[piece(path)]}
    )


def test_a_library_is_used_only_where_it_belongs() -> None:
    wrong = []
    for path in MODULES:
        for found in imports(path):
            root = found.module.split(".")[0]
            if root == "launchscope" or root in sys.stdlib_module_names or found.typing_only:
                continue
            places = LIBRARIES.get(root, set())
            here = relative(path)
            fits = piece(path) in places or any(here.startswith(f"{p}/") for p in places)
            if not fits or (here.startswith(IN_SCRIPT) and root not in LIBRARIES_IN_SCRIPT):
                wrong.append(f"{here}:{found.line} imports {root}")
    check(wrong)


def test_only_the_command_line_prints_and_exits() -> None:
    check(
        f"{relative(path)}:{line} calls {name}"
        for path in MODULES
        if piece(path) in {"parser", "analysis", "rules", "gate", "report"}
        for name, line in calls(path)
        if name in {"print", "exit", "quit", "sys.exit", "os._exit"}
    )


def test_code_of_others_is_parsed_where_warnings_that_quote_it_are_held_back() -> None:
    places = {"python_source.py"}
    check(
        f"{relative(path)}:{line} calls ast.parse"
        for path in MODULES
        if relative(path) not in places
        for name, line in calls(path)
        if name == "ast.parse"
    )


def wrong_arrows(root: Path, allowed: dict[str, set[str]]) -> list[str]:
    """Imports between the packages of `root` that `allowed` does not name."""
    prefix = ".".join(("launchscope", *root.relative_to(PACKAGE).parts, ""))
    return [
        f"{relative(path)}:{found.line} imports {other}"
        for folder, others in allowed.items()
        for path in sorted((root / folder).rglob("*.py"))
        for found in imports(path)
        if found.module.startswith(prefix)
        and (other := found.module.removeprefix(prefix).split(".")[0]) != folder
        and other in allowed
        and other not in others
    ]


def test_what_runs_in_the_script_imports_nothing_that_does_not() -> None:
    there = tuple(f"launchscope.{p.removesuffix('.py').replace('/', '.')}" for p in IN_SCRIPT)
    check(
        f"{relative(path)}:{found.line} imports {found.module}"
        for path in MODULES
        if relative(path).startswith(IN_SCRIPT)
        for found in imports(path)
        if found.module.startswith(("launchscope.runner.", "launchscope.adopt."))
        and not found.module.startswith(there)
    )


def test_parent_and_child_know_only_their_protocol() -> None:
    wrong = wrong_arrows(PACKAGE / "runner", RUNNER_SIDES)
    # It runs the passes of the child in the caller's process.
    check(arrow for arrow in wrong if "parent/in_process.py" not in arrow)


def test_packages_of_the_child_import_one_another_one_way() -> None:
    check(wrong_arrows(PACKAGE / "runner" / "child", CHILD_PACKAGES))


def test_no_modules_of_the_runner_import_one_another_in_a_circle() -> None:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES}
    within = {name: path for name, path in names.items() if piece(path) == "runner"}
    graph: dict[str, set[str]] = {}
    for name, path in within.items():
        found = [one.module for one in imports(path)]  # the last part may be a name in the module
        found += [module.rpartition(".")[0] for module in found]
        found += [f"{module}.__init__" for module in found]
        graph[name.removesuffix(".__init__")] = {
            module.removesuffix(".__init__") for module in found if module in within
        }
    TopologicalSorter({name: others - {name} for name, others in graph.items()}).prepare()


def test_the_runner_has_no_package_without_a_place() -> None:
    for root, known in (
        (PACKAGE / "runner", RUNNER_SIDES),
        (PACKAGE / "runner/child", CHILD_PACKAGES),
    ):
        assert {path.parent.name for path in root.glob("*/__init__.py")} == set(known)


def test_everything_in_all_can_be_imported() -> None:
    wrong = []
    for path in MODULES:
        if path.name == "__main__.py" or piece(path) == "integrations":  # each needs its library
            continue
        name = ".".join(("launchscope", *path.relative_to(PACKAGE).with_suffix("").parts))
        module = importlib.import_module(name.removesuffix(".__init__"))
        exported = getattr(module, "__all__", [])
        wrong += [f"{name}.{n}" for n in exported if not hasattr(module, n)]
        wrong += [f"{name}.{n} twice" for n, times in Counter(exported).items() if times > 1]
    check(wrong)


@pytest.mark.child
def test_the_top_level_holds_only_what_the_design_names() -> None:
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    assert {name.split("/")[0] for name in listing.stdout.splitlines()} <= TOP_LEVEL


def lines(path: Path) -> int:
    return text(path).count("\n")


def package_lines() -> Counter[str]:
    sizes = Counter[str]()
    for path in MODULES:
        mine = piece(path)
        if path.stem == "watch" and mine != "graphed":  # the command, which has a file per layer
            sizes["watch"] += lines(path)
            continue
        if mine in {"api", "pytest_plugin"}:
            mine = "api and pytest_plugin"
        elif path.parent == PACKAGE:
            mine = "top-level modules"
        sizes[mine] += lines(path)
        if mine == "runner" and path.parent != PACKAGE / "runner":
            sizes["/".join(path.relative_to(PACKAGE).parts[:2])] += lines(path)
    return sizes


def misfits(
    sizes: Mapping[str, int], budgets: Mapping[str, int], unit: str, usual: int = 0
) -> list[str]:
    """What is larger than its budget, or so much smaller that the budget has to follow. What has
    none of its own is measured against the `usual` one."""
    wrong = [f"{name} is gone: remove its budget" for name in budgets.keys() - sizes.keys()]
    for name, size in sizes.items():
        budget = budgets.get(name, usual)
        if size > budget:
            wrong.append(
                f"{name} has {size:,} {unit}, {size - budget:,} above its budget of {budget:,}, "
                "which only goes down (CONTRIBUTING.md)"
            )
        elif name in budgets and size <= usual:
            wrong.append(f"{name} has {size:,} {unit}, as all others may: remove its own budget")
        elif name in budgets and budget - size > max(0.03 * budget, SLACK[unit]):
            wrong.append(f"{name} has {size:,} {unit}: lower its budget from {budget:,}")
    return wrong


def test_every_package_is_within_its_budget_of_lines() -> None:
    check(misfits(package_lines(), PACKAGE_LINES, "lines"))


def test_no_file_is_longer_than_its_budget() -> None:
    sizes = {relative(path): lines(path) for path in MODULES}
    check(misfits(sizes, LARGER_FILES, "lines", FILE_LINES))


def test_no_folder_holds_more_files_than_its_budget() -> None:
    files = (path.relative_to(PACKAGE) for path in MODULES if path.name != "__init__.py")
    sizes = Counter(path.parent.as_posix() for path in files)
    check(misfits(sizes, LARGER_FOLDERS, "files", FOLDER_FILES))


def test_functions_are_short() -> None:
    sizes = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert statistics.median(sizes) <= FUNCTION_LINES_MEDIAN
    assert statistics.quantiles(sizes, n=10)[-1] <= FUNCTION_LINES_90TH


def test_the_tests_are_within_their_budget_of_lines() -> None:
    size = sum(path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py"))
    check(misfits({"tests": size}, {"tests": TEST_LINES}, "lines"))

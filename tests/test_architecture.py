"""Which package may import which others, read from the sources."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from launchscope.cli.app import COMMANDS

pytestmark = pytest.mark.real_start

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "launchscope"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Nothing imports these: they are what a person starts.
TOP = {"cli", "__main__", "pytest_plugin"}
BASE = {
    "errors", "frozen", "git", "host", "plugins", "model", "python_source", "reason_text",
    "recorded", "visible", "wording",
}  # fmt: skip

# What each part of the package may import of the others. Any other arrow goes back.
ALLOWED: dict[str, set[str]] = {
    "__init__": {"api", "graph_step", "markers"},
    "__main__": {"cli"},
    "errors": {"visible"},
    "frozen": {"visible"},
    "git": {"errors", "host"},
    "host": {"frozen"},
    "plugins": set(),
    "python_source": set(),
    "visible": set(),
    "model": {"errors", "frozen", "visible"},
    "recorded": {"host", "model"},
    "wording": {"model"},
    "reason_text": {"model", "wording"},
    "config": BASE,
    "graph_step": set(),
    "markers": BASE,
    "runner": BASE | {"graph_step", "markers"},
    "adopt": BASE | {"runner"},
    "parser": BASE | {"config"},
    "analysis": BASE | {"config", "parser"},
    "rules": BASE | {"config", "parser", "analysis"},
    "gate": BASE | {"config", "parser", "analysis"},
    "report": BASE | {"config", "parser", "analysis", "rules", "gate"},
}
ALLOWED["workflows"] = {*ALLOWED} - TOP - {"__init__"}
ALLOWED["api"] = ALLOWED["workflows"] | {"workflows"}
ALLOWED["cli"] = ALLOWED["api"] | {"api"}
ALLOWED["pytest_plugin"] = ALLOWED["cli"]

# Libraries that only some pieces may use. What runs inside the person's own process
# (runner, markers) brings nothing but torch and nvtx into it.
LIBRARIES: dict[str, set[str]] = {
    "torch": {"runner", "graph_step", "markers", "api", "cli", "workflows", "pytest_plugin"},
    "pytest": {"pytest_plugin"},
    "nvtx": {"runner", "markers"},
    "libcst": {"adopt"},
    "pandas": {"parser"},
    "numpy": {"parser", "analysis"},
    "isal": {"parser"},
    "msgspec": {"parser", "config", "report", "gate", "api", "cli", "workflows", "runner/parent"},
    "typer": {"cli"},
    "rich": {"cli", "report"},
    "jinja2": {"report"},
    "markupsafe": {"report"},
    "tomli": {"config"},
    "tomllib": {"config"},
}

# What the sides of the runner may import of one another, and within the child its packages;
# the files directly in `child` may import all of them.
RUNNER_SIDES: dict[str, set[str]] = {
    "protocol": set(),
    "parent": {"protocol", "child"},
    "child": {"protocol"},
}
CHILD_PACKAGES: dict[str, set[str]] = {
    "hooks": set(),
    "shutdown": {"hooks"},
    "steps": {"hooks"},
    "ops": {"hooks", "steps"},
    "observe": {"hooks", "shutdown"},
    "capture": {"hooks", "steps", "ops"},
    "passes": {"hooks", "steps", "ops", "capture"},
}

TOP_LEVEL = {
    ".ci",
    ".github",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "docs",
    "launchscope",
    "pyproject.toml",
    "sample_workloads",
    "tests",
}


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


def imports(path: Path) -> Iterator[Import]:
    """Every import of a file, inside functions too, made absolute."""
    tree = ast.parse(path.read_text(), str(path))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    here = ("launchscope", *path.relative_to(PACKAGE).parts)[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            # `from launchscope import x` may name a module: judge it by its full name.
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(name, node.lineno, id(node) in typing_only)


def pieces_imported(path: Path) -> Iterator[tuple[str, int]]:
    for found in imports(path):
        parts = found.module.split(".")
        if parts[0] == "launchscope" and len(parts) > 1 and is_piece(parts[1]):
            yield parts[1], found.line


def is_piece(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT
    )


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_every_import_goes_to_an_earlier_layer(path: Path) -> None:
    mine = piece(path)
    assert mine in ALLOWED, f"{mine} is no part of the design"
    wrong = [
        f"{relative(path)}:{line} imports {other}"
        for other, line in pieces_imported(path)
        if other != mine and other not in ALLOWED[mine]
    ]
    assert not wrong


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_library_is_used_only_where_it_belongs(path: Path) -> None:
    wrong = []
    for found in imports(path):
        root = found.module.split(".")[0]
        if root == "launchscope" or root in sys.stdlib_module_names or found.typing_only:
            continue
        places = LIBRARIES.get(root, set())
        here = relative(path)
        if piece(path) not in places and not any(here.startswith(f"{p}/") for p in places):
            wrong.append(f"{relative(path)}:{found.line} imports {root}")
    assert not wrong


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if piece(p) in {"parser", "analysis", "rules", "gate", "report"}],
    ids=relative,
)
def test_only_the_command_line_prints_and_exits(path: Path) -> None:
    calls = {
        ast.unparse(node.func): node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }
    assert not calls.keys() & {"print", "exit", "quit", "sys.exit", "os._exit"}


@pytest.mark.parametrize(
    "path",
    [
        p
        for p in MODULES
        if relative(p) not in ("python_source.py", "runner/child/ops/source_code.py")
    ],
    ids=relative,
)
def test_code_of_others_is_parsed_where_warnings_that_quote_it_are_held_back(path: Path) -> None:
    calls = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call))
    assert "ast.parse" not in {ast.unparse(call.func) for call in calls}


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


def test_the_child_does_not_know_its_parent() -> None:
    assert not wrong_arrows(PACKAGE / "runner", RUNNER_SIDES)


def test_packages_of_the_child_import_one_another_one_way() -> None:
    assert not wrong_arrows(PACKAGE / "runner" / "child", CHILD_PACKAGES)


def test_the_runner_has_no_package_without_a_place() -> None:
    for root, known in (
        (PACKAGE / "runner", RUNNER_SIDES),
        (PACKAGE / "runner/child", CHILD_PACKAGES),
    ):
        assert {path.parent.name for path in root.glob("*/__init__.py")} == set(known)


def test_importing_the_child_brings_no_library_into_the_users_process() -> None:
    code = (
        "import sys, json; before = set(sys.modules)\n"
        "import launchscope, launchscope.runner.child.main\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in set(sys.modules) - before})))"
    )
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    loaded = set(json.loads(result.stdout)) - set(sys.stdlib_module_names) - {"launchscope"}
    assert not loaded


@pytest.mark.parametrize(
    "arguments", [["--help"], ["profile", "--help"], ["check", "--help"], ["--version"]]
)
def test_help_imports_neither_torch_nor_pandas(arguments: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['launchscope', *{arguments!r}]\n"
        "from launchscope.cli import main\n"
        "status = 0\n"
        "try:\n"
        "    status = main() or 0\n"
        "except SystemExit as end:\n"
        "    status = end.code or 0\n"
        "print(sorted({'torch', 'pandas', 'numpy', 'nvtx'} & set(sys.modules)), file=sys.stderr)\n"
        "sys.exit(status)"
    )
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert result.stderr.strip().splitlines()[-1] == "[]"


def test_a_report_of_a_trace_or_a_recording_imports_nothing_slow_that_it_does_not_need() -> None:
    code = (
        "import sys; from launchscope.cli import main\n"
        "status = main(['report', '-q', sys.argv[1]])\n"
        "slow = {'torch', 'pandas', 'jinja2', 'pydantic', 'launchscope.report.html'}\n"
        "slow |= {'numpy.ma'} if sys.argv[1].endswith('.gz') else set()\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)\n"
        "sys.exit(status)"
    )
    recording = ROOT / "sample_workloads/recordings/small_mlp"
    for path in (recording, recording / "trace.kineto.json.gz"):
        result = run_python(code.replace("sys.argv[1]", repr(str(path))))
        assert result.returncode == 0, result.stderr
        assert result.stderr.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_imports_only_what_it_prints(command: str) -> None:
    code = (
        "import sys\n"
        "from launchscope.cli import main\n"
        f"status = main([{command!r}, '--help'])\n"
        # typer loads pydantic, in versions that have it, where it converts a value.
        "slow = {'torch', 'pandas', 'msgspec', 'rich', 'pydantic', 'launchscope.model'}\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)\n"
        "sys.exit(status)"
    )
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"Usage: launchscope {command} ")
    assert result.stderr.strip() == "[]"


def test_the_pytest_plugin_brings_nothing_heavy_into_sessions_that_do_not_use_it() -> None:
    code = (
        "import sys, pytest, launchscope.pytest_plugin\n"
        "print(sorted({'torch', 'pandas', 'numpy', 'nvtx', 'typer', 'rich', 'msgspec'}"
        " & set(sys.modules)))"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, launchscope\n"
        "print(sorted({'torch', 'pandas', 'numpy', 'nvtx', 'typer', 'rich', 'msgspec'}"
        " & set(sys.modules)))"
    )
    assert run_python(code).stdout.strip() == "[]"


@pytest.mark.parametrize("path", [p for p in MODULES if p.name != "__main__.py"], ids=relative)
def test_everything_in_all_can_be_imported(path: Path) -> None:
    name = ".".join(("launchscope", *path.relative_to(PACKAGE).with_suffix("").parts))
    module = importlib.import_module(name.removesuffix(".__init__"))
    exported = getattr(module, "__all__", [])
    assert len(exported) == len(set(exported))
    assert [n for n in exported if not hasattr(module, n)] == []


def test_the_top_level_holds_only_what_the_design_names() -> None:
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    assert {name.split("/")[0] for name in listing.stdout.splitlines()} <= TOP_LEVEL

"""`%%launchscope`: the passes of a cell's loop are measured as steps, with the report below."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType
from typing import Any

from launchscope.errors import LaunchscopeError, UsageError
from launchscope.model import Profile, Schedule
from launchscope.parser import read_recording
from launchscope.report import RenderOptions, render
from launchscope.runner.parent.in_process import MarkedStep, record_steps
from launchscope.visible import without_commands
from launchscope.wording import plural
from launchscope.workflows.load_input import analyze

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_PASSES = "_launchscope_passes"  # a name of the notebook while the loop runs
Loop = ast.For | ast.While


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext launchscope` calls."""
    from IPython.core.error import UsageError as OneLine  # shown without a traceback
    from IPython.core.magic_arguments import MagicArgumentParser

    parser = MagicArgumentParser()
    parser.add_argument("line", nargs="?", type=int)
    parser.add_argument("--no-replay", action="store_true")

    def launchscope(line: str, cell: str) -> None:
        """Measure the loop of this cell, or the one in the line that is given. The report comes
        after about 110 passes, and the cell goes on. `--no-replay`: capture no CUDA graph."""
        options = parser.parse_argstring(line)
        schedule = Schedule(replay=0, verify=0) if options.no_replay else Schedule()
        try:
            _run(shell, f"# %%launchscope {line}\n{cell}", options.line, schedule)
        except LaunchscopeError as error:
            raise OneLine(f"{error}; {error.hint}" if error.hint else str(error)) from None
        except SyntaxError as error:
            raise OneLine("\n" + "".join(traceback.format_exception_only(error))) from None
        except BaseException as error:
            trace = error.__traceback__  # shown as if nothing else had run the cell
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            lines = shell.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=0)
            error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
            raise

    shell.register_magic_function(launchscope, "cell")


@dataclass(frozen=True)
class Report:
    """The result of the cell, shown as the short report and a sentence about the loop."""

    profile: Profile
    passes: str

    def _repr_mimebundle_(self, **chosen: Any) -> Any:
        from rich import get_console
        from rich.text import Text

        options = RenderOptions(width=get_console().width, color=True, brief=True)
        text = f"{render(self.profile, 'terminal', options)!s}\n{self.passes}"
        return Text.from_ansi(without_commands(text))._repr_mimebundle_(**chosen)


def _run(shell: Any, cell: str, line: int | None, schedule: Schedule) -> None:
    """Runs the cell in the notebook's namespace, as IPython would, and shows the report within."""
    source = shell.transform_cell(cell)
    file = shell.compile.cache(source, shell.displayhook.prompt_count)
    statements = shell.compile.ast_parse(source, file).body
    loop = _step_loop(statements, line)
    at = next(i for i, one in enumerate(statements) if loop in ast.walk(one))
    one_pass = ast.With([ast.withitem(ast.Name(_PASSES, ast.Load()))], loop.body)
    loop.body = [ast.fix_missing_locations(ast.copy_location(one_pass, loop))]
    parts = statements[:at], [statements[at]], statements[at + 1 :]
    before, loops, after = (shell.compile(ast.Module(part, []), file, "exec") for part in parts)
    exec(before, shell.user_ns)
    _Passes(shell, f"cell:{loop.lineno}", schedule).run(loops)
    exec(after, shell.user_ns)


def _step_loop(statements: list[ast.stmt], line: int | None) -> Loop:
    """The loop in that line, or the only one that holds no other loop."""
    loops = [loop for one in statements for loop in _loops(one)]
    inner = [loop for loop in loops if len(list(_loops(loop))) == 1]
    chosen = [loop for loop in loops if loop.lineno == line] if line else inner
    if len(chosen) == 1:
        return chosen[0]
    if not loops:
        hint = "move the loop of the training out of its function, or call launchscope.measure()"
        raise UsageError("this cell has no loop outside a function, and was not run", hint=hint)
    lines = ", ".join(str(loop.lineno) for loop in loops)
    hint = f"name the line of its loop: %%launchscope {inner[0].lineno}"
    raise UsageError(f"the step is not known: this cell has loops in lines {lines}", hint=hint)


def _loops(node: ast.AST) -> Iterator[Loop]:
    """Those of the cell itself, from the outside to the inside."""
    if isinstance(node, Loop):
        yield node
    for child in () if isinstance(node, _SCOPES) else ast.iter_child_nodes(node):
        yield from _loops(child)


class _Passes:
    """The context of each pass: a step while one is needed; later passes only run."""

    def __init__(self, shell: Any, name: str, schedule: Schedule):
        self._shell, self._steps = shell, self._measured(name, schedule)
        self._step: MarkedStep | None = next(self._steps)
        self._count = self._rounds = 0

    def __enter__(self) -> None:
        if self._step is not None:
            self._step.__enter__()

    def __exit__(self, *raised: Any) -> bool:
        if self._step is None:
            return False
        self._count += 1
        is_ours = self._step.__exit__(*raised)
        self._step = next(self._steps, None)
        return is_ours

    def run(self, loop: CodeType) -> None:
        """The loop to its own end, and again if it ends before all is measured."""
        names = self._shell.user_ns
        names[_PASSES] = self
        try:
            while self._step is not None:
                self._rounds, before = self._rounds + 1, self._count
                exec(loop, names)
                if self._count == before:
                    raise UsageError("the loop ran out of items: loop over a list or a DataLoader")
        finally:
            self._steps.close()
            del names[_PASSES]

    def _measured(self, name: str, schedule: Schedule) -> Generator[MarkedStep]:
        with TemporaryDirectory(prefix="launchscope-") as folder:
            yield from record_steps(name, schedule, Path(folder))
            profile = analyze(read_recording(Path(folder)), schedule.threshold, None)
        count, out = plural(self._count, "pass"), self._shell.displayhook.prompt_count
        said = f"The loop was measured for {count} and goes on to its own end."
        if self._rounds > 1:
            said += f" It began {self._rounds} times, so the cell trains for longer."
        self._shell.displayhook(Report(profile, f"{said} Out[{out}].profile is the Profile."))

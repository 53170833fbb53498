"""`%%launchscope` on a cell with a training loop: `measure()` of the loop's body in the notebook's
own process, and the short report below the cell."""

from __future__ import annotations

import ast
import io
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from launchscope.api import measure
from launchscope.errors import LaunchscopeError, UsageError
from launchscope.model import Profile
from launchscope.report import RenderOptions, render

_COLUMNS = 100
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
# In a loop: a pass between two yields, however its body ends.
_ONE_PASS = """
while True:
    yield True
    for launchscope_pass in (0,): pass
    else:
        yield True
        continue
    yield True
    break
"""
Loop = ast.For | ast.While
Rounds = Generator[bool, None, None]


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext launchscope` calls."""
    from IPython.core.error import UsageError as OneLine  # shown without a traceback

    def launchscope(line: str, cell: str) -> Report:
        """Measure the loop of this cell, or the one in the line that is given: one pass of it is a
        step. It takes about 110 steps, and begins again where it ends."""
        try:
            return Report(_measured(shell, line.strip(), cell))
        except LaunchscopeError as error:
            raise OneLine(f"{error}; {error.hint}" if error.hint else str(error)) from None

    shell.register_magic_function(launchscope, "cell")


@dataclass(frozen=True)
class Report:
    """The result of the cell: the notebook shows it as the short report of its Profile."""

    profile: Profile

    def _repr_html_(self) -> str:
        from rich.console import Console
        from rich.text import Text

        console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_jupyter=False)
        console.print(Text.from_ansi(self._text(color=True)))
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(self._text(color=False))

    def _text(self, *, color: bool) -> str:
        options = RenderOptions(width=_COLUMNS, color=color, brief=True)
        return str(render(self.profile, "terminal", options))


def _measured(shell: Any, line: str, cell: str) -> Profile:
    """Runs the cell in the notebook's namespace, its loop as often as `measure` needs."""
    source = shell.transform_cell(cell)
    file, space = shell.compile.cache(source), shell.user_ns
    statements = shell.compile.ast_parse(source, file).body
    loop = _step_loop(statements, line)
    place = next(i for i, one in enumerate(statements) if loop in ast.walk(one))
    with _own_traceback(shell, file):
        exec(compile(ast.Module(statements[:place], []), file, "exec"), space)
        rounds = _rounds(shell, statements[place], loop, file)
        profile = _measure_passes(rounds, f"cell:{loop.lineno}")
        rounds.close()
        exec(compile(ast.Module(statements[place + 1 :], []), file, "exec"), space)
    return profile


def _step_loop(statements: list[ast.stmt], line: str) -> Loop:
    """The loop in that line, or the only one that holds no other loop."""
    loops = [loop for one in statements for loop in _loops(one)]
    inner = [loop for loop in loops if len(list(_loops(loop))) == 1]
    chosen = [loop for loop in loops if str(loop.lineno) == line] if line else inner
    if len(chosen) == 1:
        return chosen[0]
    if not loops:
        raise UsageError("this cell has no loop, so it has no step to measure, and was not run")
    lines = ", ".join(str(loop.lineno) for loop in loops)
    hint = f"name the line of its loop: %%launchscope {inner[-1].lineno}"
    raise UsageError(f"the step is not known: this cell has loops in lines {lines}", hint=hint)


def _loops(node: ast.AST) -> Iterator[Loop]:
    """Those of the cell itself, from the outside to the inside."""
    if isinstance(node, Loop):
        yield node
    for child in () if isinstance(node, _SCOPES) else ast.iter_child_nodes(node):
        yield from _loops(child)


def _rounds(shell: Any, statement: ast.stmt, loop: Loop, file: str) -> Rounds:
    """Runs the statement again and again; yields True before and after each pass of the loop in
    it, and False after each round."""
    names = compile(ast.Module([statement], []), file, "exec").co_names
    known = ", ".join({name for name in names if name.isidentifier()} | {"_"})
    parse = shell.compile.ast_parse
    tree = parse(f"def rounds():\n global {known}\n while True:\n  yield False")
    tree.body[0].body[1].body[:0] = [statement]
    one_pass = parse(_ONE_PASS).body[0]
    one_pass.body[1].body, loop.body = loop.body, one_pass.body
    made: dict[str, Any] = {}
    exec(compile(tree, file, "exec"), shell.user_ns, made)
    rounds = made["rounds"]
    rounds.__code__ = rounds.__code__.replace(co_name="<module>")  # as tracebacks name a cell
    return cast("Rounds", rounds())


def _measure_passes(rounds: Rounds, name: str) -> Profile:
    def to_next_pass() -> None:
        if not (next(rounds) or next(rounds)):
            hint = "loop over what can be iterated again, such as a DataLoader"
            raise UsageError("the loop ran out of items before all was measured", hint=hint)

    def step() -> None:
        next(rounds)

    step.__qualname__ = name
    return measure(step, before_step=to_next_pass)


@contextmanager
def _own_traceback(shell: Any, file: str) -> Iterator[None]:
    """What the cell raises is shown as if nothing else had run it."""
    try:
        yield
        return
    except Exception as error:
        ours = isinstance(error, LaunchscopeError)
        raised = error.__cause__ if ours and error.__cause__ is not None else error
    trace = raised.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    if trace is not None:  # else launchscope's own, without a line of the cell
        show = shell.InteractiveTB.structured_traceback
        lines = show(type(raised), raised, trace, tb_offset=0)
        raised._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
    raise raised

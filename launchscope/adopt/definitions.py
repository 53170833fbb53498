"""What a file imports and defines, and what its functions read and change around them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace

from launchscope.adopt.implied_calls import implied_calls, special_methods
from launchscope.adopt.names import (
    NOTHING,
    Names,
    Uses,
    declared_outside,
    free_names,
    own_name,
    parameters,
    root_name,
)
from launchscope.python_source import last_name

# Modules whose functions no replay would run again.
_HOST_MODULES = frozenset((
    "time", "os", "sys", "random", "numpy", "logging", "wandb", "tqdm", "json", "csv", "shutil",
    "matplotlib", "datetime", "gc", "pickle", "mlflow", "neptune", "tensorboard", "logger",
))  # fmt: skip
_PURE_MODULES = frozenset(("math", "cmath", "statistics"))
# Methods by which loops keep and show values. They read nothing of the model.
LOGGING = frozenset((
    "append", "appendleft", "extend", "add", "put", "push", "log", "info", "debug", "warning",
    "write", "flush", "set_description", "set_postfix", "set_postfix_str", "set_description_str",
    "add_scalar", "add_scalars", "add_image", "add_images", "add_histogram", "add_text",
    "log_metrics", "log_dict", "add_data", "save_image", "record", "tick", "accumulate",
))  # fmt: skip
OF_MODULES = frozenset((
    "weight", "bias", "parameters", "named_parameters", "state_dict", "running_mean", "running_var",
    "grad", "param_groups",
))  # fmt: skip
# Methods of lists, dictionaries, sets and deques that change them.
FILLING = frozenset((
    "append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "remove",
    "clear", "update", "setdefault", "discard", "reverse", "rotate", "add", "subtract", "sort",
))  # fmt: skip
COPIES = frozenset(("to", "cuda"))  # methods of a tensor that copy it to a device
_OF_STEPS = frozenset(("step", "backward", "zero_grad", "forward", "__init__", "train", "eval"))
SETTERS = frozenset(("update", "setdefault", "pop"))  # of a parameter group
_FILES = frozenset(("csv", "sqlite3", "open", "h5py"))
_SCHEDULERS = ("scheduler", "lr_sched")


@dataclass(frozen=True)
class Imports:
    """What the names of a file stand for, as far as its text says it."""

    torch: Names  # torch and its parts
    host: Names  # modules that only the host runs
    schedulers: Names  # variables and attributes that hold a learning-rate scheduler
    functions: dict[str, Names]  # defined in the file: the names that each reads of what is around
    senders: Names = NOTHING  # those of them that copy to a device
    arrays: Names = NOTHING  # variables that hold arrays or numbers of NumPy
    writers: Names = NOTHING  # functions that change what they are given
    layers_write: bool = False  # a layer is made that changes what it is given: nn.ReLU(True)
    # Attributes of their own object, without its name, that methods read, and that they change.
    reading: dict[str, Names] = field(default_factory=dict)
    changing: dict[str, Names] = field(default_factory=dict)
    making: dict[str, Names] = field(default_factory=dict)  # classes: what making an object reads
    # The globals that functions bind, and those of which they change the objects.
    binding: dict[str, Names] = field(default_factory=dict)
    drawing: Names = NOTHING  # what the modules of random numbers of the host are called
    files: Names = NOTHING  # variables that hold files, tables and databases that the host writes
    # All attributes, of whatever object, that functions name.
    naming: dict[str, Names] = field(default_factory=dict)
    rates: Names = NOTHING  # variables that hold parameter groups, or one of them
    seeing: Names = NOTHING  # functions of the file that name those
    setting: Names = NOTHING  # and that write to them
    properties: Names = NOTHING
    hooks: Names = NOTHING  # functions that are registered as hooks
    pure: Names = NOTHING  # modules that only compute with numbers, and their functions
    escaped: Names = NOTHING  # functions of the file that may be called by other names
    holding: Names = NOTHING  # variables and attributes that may hold them, and objects

    @property
    def computing(self) -> Names:
        """Modules and functions that compute new values from what they are given."""
        return self.torch | self.pure

    @property
    def modules(self) -> Names:
        return self.torch | self.pure | self.host

    @classmethod
    def of(cls, tree: ast.Module) -> Imports:
        torch, host, schedulers, pure = set(), set(), set(), set()
        functions: dict[str, Names] = {}
        binding: dict[str, Names] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None)
                for alias in node.names:
                    top = (module or alias.name).partition(".")[0]
                    name = alias.asname or alias.name.partition(".")[0]
                    if top == "torch":
                        torch.add(name)
                    elif top in _HOST_MODULES:
                        host.add(name)
                    elif top in _PURE_MODULES:
                        pure.add(name)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                targets = (target for target in node.targets if isinstance(target, ast.Name))
                names = {target.id for target in targets}
                functions |= dict.fromkeys(names, free_names(node.value))
                binding |= dict.fromkeys(names, _filled(node.value))
            elif isinstance(node, ast.Assign) and _makes_scheduler(node.value):
                schedulers |= set(map(ast.unparse, node.targets))
        for node in ast.walk(tree):
            if isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
                over = ast.unparse(node.iter)
                if over.partition(".")[0] in schedulers or _names_scheduler(over):
                    schedulers.add(node.target.id)
        senders, writers = set(), set()
        reading: dict[str, Names] = {}
        changing: dict[str, Names] = {}
        naming: dict[str, Names] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                read, changed = _of_object(node)
                reading[node.name] = reading.get(node.name, NOTHING) | read
                changing[node.name] = changing.get(node.name, NOTHING) | changed
                named = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                naming[node.name] = naming.get(node.name, NOTHING) | named
                outside = declared_outside(node) | _filled(node)
                binding[node.name] = binding.get(node.name, NOTHING) | outside
                written = {n for inner in ast.walk(node) for n in _written(inner)} - {"self"}
                if written & parameters(node):
                    writers.add(node.name)
                functions[node.name] = functions.get(node.name, NOTHING) | free_names(node)
                if sends(node):
                    senders.add(node.name)
        for name, function in _named_functions(tree):
            if changed := _changed_by_methods(function, changing):
                binding[name] = binding.get(name, NOTHING) | changed
                functions[name] = functions.get(name, NOTHING) | changed
        implied = implied_calls(tree)
        for name, called in implied.items():
            functions[name] = functions.get(name, NOTHING) | called
        escaped = _follow_given(tree, functions, binding, naming)
        rates = _rates(tree)
        made = cls(
            frozenset(torch), frozenset(host), frozenset(schedulers), functions,
            frozenset(senders), _arrays(tree), frozenset(writers),
            any(writes_in_place(n) for n in ast.walk(tree) if isinstance(n, ast.Call)),
            reading=reading, changing=changing, naming=naming, binding=binding,
            properties=_properties(tree), hooks=_hooks(tree), rates=rates,
            drawing=_drawing(tree), files=_files(tree), pure=frozenset(pure),
            escaped=escaped, holding=_holding(tree) - functions.keys(),
            making={
                node.name: NOTHING.union(*(
                    free_names(part) for part in node.body
                    if isinstance(part, ast.FunctionDef) and part.name in ("__init__", "__new__")
                ))
                for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
            },
        )  # fmt: skip
        seeing, setting = (
            known | {name for name, called in implied.items() if called & known}
            for known in _about_rates(tree, made)
        )
        return replace(made, seeing=seeing, setting=setting)

    def is_scheduler(self, value: ast.expr) -> bool:
        text = ast.unparse(value)
        return text in self.schedulers or _names_scheduler(text)

    def reached(self, names: Names) -> Names:
        """What functions of the file read that are called by one of these names, or by such a
        function, or by a module."""
        return self.within(*names, "forward", "__call__")

    def changed_by_modules(self) -> Names:
        """What a forward, or a hook of a module, changes of what is around it."""
        called = self._called(("forward", "__call__", *self.hooks), {})
        return NOTHING.union(*(self.binding.get(name, NOTHING) for name in called))

    def within(self, *names: str) -> Names:
        """What functions of the file read that have one of these names, or that such a function
        calls."""
        return NOTHING.union(*(self.functions[name] for name in self._called(names, {})))

    def named_within(self, name: str) -> Names:
        """All that functions of this name read and name, and those that they call, also as
        methods."""
        called = self._called([name], self.naming)
        return NOTHING.union(
            *(self.functions[one] | self.naming.get(one, NOTHING) for one in called)
        )

    def _called(self, names: Iterable[str], methods: dict[str, Names]) -> set[str]:
        """The functions of the file with these names, and those that they call, by a name or as one
        of the `methods` that they name."""
        called, found = set(names), set[str]()
        while more := {name for name in called if name in self.functions} - found:
            found |= more
            for name in more:
                called |= self.functions[name] | methods.get(name, NOTHING)
        return found

    def sees_model(self, method: str, state: Names) -> bool:
        """Whether a method of the file names parts of a model, gradients, or what the step changes,
        itself or in what it calls."""
        called = self._called([method], self.naming)
        of_state = {name.rpartition(".")[2] for name in state}
        return any(
            self.functions[name] & state or self.naming.get(name, NOTHING) & (of_state | OF_MODULES)
            for name in called
        )

    def _calls_held(self, node: ast.AST) -> bool:
        """Whether it calls what a variable, an attribute or a container holds."""
        called = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        return any(
            last_name(one) in self.holding
            if isinstance(one, ast.Name | ast.Attribute)
            else isinstance(one, ast.Subscript | ast.Call)
            for one in called
        )

    def behind(self, node: ast.AST, owner: str | None) -> tuple[Names, Names]:
        """What the functions of the file that a statement calls, and the methods and properties of
        the object that it belongs to, read of what is around them, and what they change of it."""
        read: set[str] = set()
        changed: set[str] = set()
        names = {
            inner.func.id
            for inner in ast.walk(node)
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
        }
        if any(isinstance(inner, ast.FormattedValue) for inner in ast.walk(node)):
            names.add("str")
        read |= NOTHING.union(*(self.making.get(name, NOTHING) for name in names))
        names |= {  # methods of other objects: what they read and change of globals
            inner.func.attr
            for inner in ast.walk(node)
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute)
        } - {"step", "backward", "zero_grad", "forward"}
        called = (names | read) & self.functions.keys()
        if self._calls_held(node):
            called |= (self.escaped | {"__call__"}) & self.functions.keys()
        own = {
            inner.attr
            for inner in ast.walk(node)
            if isinstance(inner, ast.Attribute) and owner and own_name(inner, owner)
        } & self.functions.keys()
        seen: set[str] = set()
        while new := (called | own) - seen:
            for name in new:
                read |= self.functions[name]
                changed |= self.binding.get(name, NOTHING)
                if name in own:
                    read |= {
                        f"{owner}.{attribute}" for attribute in self.reading.get(name, NOTHING)
                    }
                    changed |= {
                        f"{owner}.{attribute}" for attribute in self.changing.get(name, NOTHING)
                    }
                    own |= self.reading.get(name, NOTHING) & self.functions.keys()
                called |= self.functions[name] & self.functions.keys()
            seen |= new
        quiet = self._called(self._quiet(node, called | own), self.naming) - seen
        bound = NOTHING.union(*self.binding.values())
        for name in quiet & self.functions.keys():
            # Of others, a name may stand for something else.
            runs = name.startswith("__") or name == "backward" or name in self.properties
            read |= self.functions[name] if runs else self.functions[name] & bound
            changed |= self.binding.get(name, NOTHING)
        return frozenset(read), frozenset(changed)

    def _quiet(self, node: ast.AST, called: Set[str]) -> set[str]:
        """The functions that a statement calls in ways that no call of it shows: methods of objects
        behind `called`, properties, operators, what it hands to others: `map(note, values)`."""
        found = set(special_methods(node, frozenset(self.functions), frozenset(self.making)))
        found = found.union(*(self.naming.get(name, NOTHING) for name in called))
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and inner.attr in self.properties:
                found.add(inner.attr)
            elif isinstance(inner, ast.Name):
                found.add(inner.id)
        found -= {"step", "backward", "zero_grad", "forward"}
        if any(getattr(inner, "attr", "") == "backward" for inner in ast.walk(node)):
            found.add("backward")  # of an autograd.Function
        return found & self.functions.keys()


def _follow_given(
    tree: ast.Module,
    functions: dict[str, Names],
    binding: dict[str, Names],
    naming: dict[str, Names],
) -> Names:
    """A function whose name is read without a call, or that is decorated, may be what another one
    calls by the name of a parameter, a variable or an attribute: callbacks. Gives those."""
    nodes = list(ast.walk(tree))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    given = {
        last_name(node)
        for node in nodes
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and id(node) not in called
    }
    defined = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    given |= {  # what they give is called by other names
        node.name for node in defined if any(isinstance(n, ast.Lambda) for n in ast.walk(node))
    }
    given |= {
        node.name
        for node in defined
        if any(
            isinstance(one, ast.Call) or last_name(one) in functions for one in node.decorator_list
        )
    }
    escaped = frozenset(given & functions.keys())
    if not escaped:
        return escaped
    bound = NOTHING.union(*(binding.get(name, NOTHING) for name in escaped))
    named = NOTHING.union(*(naming.get(name, NOTHING) for name in escaped))
    for node in defined:
        own = parameters(node) | set(Uses(node.body).binds)
        if any(_calls_unknown(inner, own, functions) for inner in ast.walk(node)):
            functions[node.name] |= escaped
            binding[node.name] = binding.get(node.name, NOTHING) | bound
            naming[node.name] = naming.get(node.name, NOTHING) | named
    return escaped


def _holding(tree: ast.Module) -> Names:
    """The variables, parameters and attributes that a file binds."""
    names = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return frozenset(names).union(
        getattr(node, "id", getattr(node, "attr", ""))
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
    )


def _calls_unknown(node: ast.AST, own: Names | set[str], functions: dict[str, Names]) -> bool:
    """Whether it calls what a variable or an attribute of the function's object holds."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in own and node.func.id not in functions
    if isinstance(node.func, ast.Attribute):
        return own_name(node.func, "self") is not None and node.func.attr not in functions
    return isinstance(node.func, ast.Subscript | ast.Call)


def _files(tree: ast.Module) -> Names:
    """`writer` for `csv.writer(...)`, `cursor` for `connection.cursor()`, a file that is opened."""
    made = [
        (ast.unparse(target), node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
    ]
    made += [
        (ast.unparse(item.optional_vars), item.context_expr)
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if item.optional_vars is not None and isinstance(item.context_expr, ast.Call)
    ]
    found: set[str] = set(_FILES)
    count = 0
    while len(found) > count:
        count = len(found)
        for name, call in made:
            if ast.unparse(call.func).partition(".")[0] in found or (
                ast.unparse(call.func).rpartition(".")[0] in found
            ):
                found.add(name)
    return frozenset(found - _FILES)


def _drawing(tree: ast.Module) -> Names:
    """`rnd` for `import random as rnd`, `npr` for `from numpy import random as npr`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                if f"{module}{alias.name}".startswith(("random", "numpy.random")):
                    found.add(alias.asname or alias.name.partition(".")[0])
    return frozenset(found - {"numpy"})


def names_rates(node: ast.AST, rates: Names) -> bool:
    """Whether it names the parameter groups of an optimizer; `rates` are variables with them."""
    return any(
        (isinstance(n, ast.Attribute) and (n.attr == "param_groups" or f".{n.attr}" in rates))
        or (isinstance(n, ast.Name) and n.id in rates)
        for n in ast.walk(node)
    )


def _properties(tree: ast.Module) -> Names:
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    )


def _hooks(tree: ast.Module) -> Names:
    return frozenset(
        last_name(getattr(argument, "func", argument))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and last_name(node.func).startswith("register_")
        and last_name(node.func).endswith("hook")
        for argument in node.args
    )


def _about_rates(tree: ast.Module, known: Imports) -> tuple[Names, Names]:
    """The functions of the file that name rates, and those that change them. Not the one with the
    loop."""
    seeing, setting = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name not in _OF_STEPS:
            calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
            methods = {last_name(call.func) for call in calls}
            if "backward" in methods:
                continue
            schedules = any(
                isinstance(call.func, ast.Attribute)
                and call.func.attr == "step"
                and known.is_scheduler(call.func.value)
                for call in calls
            )
            if schedules or writes_rate(ast.walk(node), known.rates):
                setting.add(node.name)
            if names_rates(node, known.rates) or "get_last_lr" in methods:
                seeing.add(node.name)
    return frozenset(seeing), frozenset(setting)


def writes_rate(nodes: Iterable[ast.AST], rates: Names) -> bool:
    parts: list[ast.expr] = []
    for inner in nodes:
        if isinstance(inner, ast.Assign):
            parts += [part for part in inner.targets if isinstance(part, ast.Subscript)]
        elif isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Subscript):
            parts.append(inner.target)
        elif isinstance(inner, ast.Call) and last_name(inner.func) in SETTERS:
            parts.append(inner.func)
    return any(names_rates(part, rates) for part in parts)


def _rates(tree: ast.Module) -> Names:
    """The variables that get parameter groups: `group` for `optimizer.param_groups[0]`, and where a
    loop goes over them."""
    given: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            given += [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.For | ast.comprehension):
            given += _over(node.target, node.iter)
    found: Names = NOTHING
    while True:
        pairs = [(t, _holds_rates(v, found)) for t, v in given]
        now = frozenset(_rate_name(t) for t, holds in pairs if holds) - {""}
        if now <= found:
            return found
        found |= now


def _rate_name(target: ast.expr) -> str:
    """`group`, and `.group` for `self.group`."""
    return f".{target.attr}" if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def _over(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What a loop gives its variables, also by `enumerate` and `zip`."""
    called, given = getattr(getattr(value, "func", None), "id", ""), getattr(value, "args", [])
    if not isinstance(target, ast.Tuple) or called not in ("enumerate", "zip"):
        return [(target, value)]
    parts = target.elts[1:] if called == "enumerate" else target.elts
    return [pair for part, argument in zip(parts, given) for pair in _over(part, argument)]


def _holds_rates(value: ast.expr, rates: Names) -> bool:
    """`optimizer.param_groups[0]`, `groups[0]`, not one of the numbers in it."""
    while isinstance(value, ast.Subscript):
        if isinstance(getattr(value.slice, "value", None), str):
            return False
        value = value.value
    return names_rates(value, rates) and isinstance(value, ast.Attribute | ast.Name)


def _arrays(tree: ast.Module) -> Names:
    """The variables that get what NumPy makes, or a part of that."""
    aliases = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree) if isinstance(node, ast.Import)
        for alias in node.names if alias.name.partition(".")[0] == "numpy"
    }  # fmt: skip
    given: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(tree) if aliases else ():
        if isinstance(node, ast.Assign):
            given += [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.For):
            given.append((node.target, node.iter))
    found: set[str] = set()
    count = -1
    while len(found) > count:
        count = len(found)
        for target, value in given:
            made = isinstance(value, ast.Call | ast.Subscript)
            if made and isinstance(target, ast.Name) and root_name(value, None) in aliases | found:
                found.add(target.id)
    return frozenset(found)


def _of_object(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[Names, Names]:
    """The attributes of its first argument that a function reads, and those that it changes."""
    first = [*function.args.posonlyargs, *function.args.args][:1]
    if not first:
        return NOTHING, NOTHING
    owner = first[0].arg
    uses = Uses(function.body, owner)
    changed = set(uses.binds)
    for node in ast.walk(function):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            parts = [node.value.func]
        elif isinstance(node, ast.Assign):
            parts = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            parts = [node.target]
        changed |= {name for part in parts if (name := root_name(part, owner)) is not None}
    own = f"{owner}."
    return (
        frozenset(n.removeprefix(own) for n in uses.reads if n.startswith(own)),
        frozenset(n.removeprefix(own) for n in changed if n.startswith(own)),
    )


def sends(node: ast.AST) -> bool:
    """Whether it copies to a device."""
    return any(isinstance(n, ast.Attribute) and n.attr in COPIES for n in ast.walk(node))


def writes_in_place(node: ast.Call) -> bool:
    """`nn.ReLU(inplace=True)`, `nn.ReLU(True)`."""
    called = last_name(node.func)
    given = [k.value for k in node.keywords if k.arg == "inplace"]
    given += node.args[:1] if called in ("ReLU", "ReLU6", "SELU", "SiLU", "Hardswish") else []
    return any(getattr(value, "value", None) is True for value in given)


def _filled(function: ast.AST) -> Names:
    """The variables around a function whose objects it changes: `history.append(v)`,
    `stats["n"] += 1`."""
    parts: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            parts.append(node)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in FILLING | LOGGING:
            parts.append(node.func)
    return free_names(function) & {root_name(part, None) or "" for part in parts}


def _named_functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """What may be called by a name: a function, a lambda, a method of an object."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda | ast.Attribute):
            yield from ((t.id, node.value) for t in node.targets if isinstance(t, ast.Name))


def _changed_by_methods(function: ast.AST, changing: dict[str, Names]) -> Names:
    """The variables around a function whose objects change in methods of the file that it calls:
    `curriculum.advance()`."""
    is_method = isinstance(function, ast.Attribute)
    methods = [function] if is_method else [getattr(n, "func", None) for n in ast.walk(function)]
    changed = {
        root_name(method, None) or ""
        for method in methods
        if isinstance(method, ast.Attribute)
        and changing.get(method.attr)
        and method.attr not in _OF_STEPS
    }
    return frozenset(changed - {""}) if is_method else free_names(function) & changed


def _written(node: ast.AST) -> Names:
    """What a part of a function writes into."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.AugAssign):
        parts = [node.target]
    elif isinstance(node, ast.Assign):
        parts = [t for t in node.targets if isinstance(t, ast.Subscript | ast.Attribute)]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        called = node.func.attr
        in_place = called.endswith("_") and not called.endswith("__")
        parts = [node.func] if in_place or called in FILLING else []
    return frozenset(name for part in parts if (name := root_name(part, None)) is not None)


def _makes_scheduler(value: ast.expr) -> bool:
    """`StepLR(...)`, `[get_scheduler(...)]`."""
    parts = ast.walk(value) if isinstance(value, ast.List | ast.Dict | ast.ListComp) else [value]
    called = [ast.unparse(part.func).lower() for part in parts if isinstance(part, ast.Call)]
    return any("scheduler" in text or text.endswith("lr") for text in called)


def _names_scheduler(text: str) -> bool:
    return any(part in text.lower() for part in _SCHEDULERS)

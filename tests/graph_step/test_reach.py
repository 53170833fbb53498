"""Values that a step reads in unusual ways, and that change after its capture."""

from __future__ import annotations

import functools
import importlib
import math
import operator
import os
import random
import sys
import weakref
from argparse import Namespace
from array import array
from collections import UserDict
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from dataclasses import asdict, astuple, dataclass, fields
from itertools import chain, repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy
import pytest
import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode

from launchscope.graph_step import graphed
from tests.graph_step.emulation import EmulatedGpu, gpu

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::launchscope.graph_step.GraphedWarning"),
]
__all__ = ["gpu"]
Tensor = torch.Tensor
Source: TypeAlias = tuple[Callable[[], float], Callable[[], object]]  # of a rate; what changes it
SOURCES: dict[str, Callable[[], Source]] = {}
CALLS, CHANGED = 16, 8


def source(make: Callable[[], Source]) -> Callable[[], Source]:
    SOURCES[make.__name__] = make
    return make


class Slotted:
    __slots__ = ("rate",)

    def __init__(self) -> None:
        self.rate = 1.0


@dataclass
class Record:
    rate: float = 1.0


@dataclass(slots=True)
class SlottedRecord:
    rate: float = 1.0


class Plain:
    pass


class Matched(nn.Module):
    __match_args__ = ("rate",)

    def __init__(self) -> None:
        super().__init__()
        self.rate = 1.0


@dataclass
class Outer:
    inner: Record


class Table(dict[str, float]):
    rate = 1.0


@source
def an_attribute_of_a_library_s_object() -> Source:
    args = Namespace(rate=1.0)
    return lambda: args.rate, lambda: setattr(args, "rate", 2.0)


@source
def an_attribute_in_a_slot() -> Source:
    held = Slotted()
    return lambda: held.rate, lambda: setattr(held, "rate", 2.0)


@source
def an_attribute_named_in_a_text() -> Source:
    args = Namespace(rate=1.0)
    return lambda: getattr(args, "rate", 0.0), lambda: setattr(args, "rate", 2.0)


@source
def an_attribute_named_in_the_text_of_a_look_up() -> Source:
    args = Namespace(rate=1.0)
    return lambda: vars(args)["rate"], lambda: setattr(args, "rate", 2.0)


@source
def an_object_behind_a_weak_reference() -> Source:
    args = Namespace(rate=1.0)
    there = weakref.ref(args)
    return lambda: there().rate, lambda: setattr(args, "rate", 2.0)  # type: ignore[union-attr]


@source
def an_attribute_of_a_dictionary() -> Source:
    table = Table()
    table.rate = 1.0
    return lambda: table.rate, lambda: setattr(table, "rate", 2.0)


@source
def an_attribute_of_a_function() -> Source:
    def rate() -> float:
        return rate.value  # type: ignore[attr-defined, no-any-return]

    rate.value = 1.0  # type: ignore[attr-defined]
    return rate, lambda: setattr(rate, "value", 2.0)


@source
def a_dictionary_of_a_library() -> Source:
    table = UserDict(rate=1.0)
    return lambda: table["rate"], lambda: table.update(rate=2.0)


@source
def a_view_of_a_dictionary() -> Source:
    table = {"rate": 1.0}
    view = MappingProxyType(table)
    return lambda: view["rate"], lambda: table.update(rate=2.0)


@source
def an_array_of_python() -> Source:
    rates = array("d", [1.0])
    return lambda: rates[0], lambda: rates.__setitem__(0, 2.0)


@source
def an_array_of_numpy() -> Source:
    rates = pytest.importorskip("numpy").ones(3)
    return lambda: float(rates[0]), lambda: rates.__setitem__(0, 2.0)


@source
def an_object_in_a_frozen_set() -> Source:
    held = Slotted()
    both = frozenset([held])
    return lambda: sum(one.rate for one in both), lambda: setattr(held, "rate", 2.0)


@source
def an_iterator() -> Source:
    rates = chain([1.0] * CHANGED, repeat(2.0))
    return lambda: next(rates), lambda: None


@source
def a_generator_function_that_goes_on() -> Source:
    def generate() -> Iterator[float]:
        for number in range(CALLS):
            yield 1.0 + (number >= CHANGED)

    rates = generate()
    return lambda: next(rates), lambda: None


@source
def a_source_of_random_numbers_of_its_own() -> Source:
    source = random.Random(10)
    return lambda: 2.0 if source.random() < 0.1 else 1.0, lambda: None


@source
def a_generator_of_numpy() -> Source:
    source = pytest.importorskip("numpy").random.default_rng(3)
    return lambda: 2.0 if source.random() < 0.1 else 1.0, lambda: None


@source
def a_list_of_a_tensor_s_values() -> Source:
    rates = torch.ones(1)
    return lambda: rates.tolist()[0], lambda: rates.fill_(2.0)


@source
def a_field_in_a_dictionary_of_all() -> Source:
    held = Record()
    return lambda: asdict(held)["rate"], lambda: setattr(held, "rate", 2.0)


@source
def a_field_in_a_tuple_of_all() -> Source:
    held = Record()
    return lambda: astuple(held)[0], lambda: setattr(held, "rate", 2.0)


@source
def a_field_among_all() -> Source:
    held = Record()
    return lambda: sum(getattr(held, f.name) for f in fields(held)), lambda: setattr(
        held, "rate", 2.0
    )


@source
def a_field_in_a_slot_among_all() -> Source:
    held = SlottedRecord()
    return lambda: sum(asdict(held).values()), lambda: setattr(held, "rate", 2.0)


@source
def a_field_of_a_record_in_a_record() -> Source:
    held = Record()
    outer = Outer(held)
    return lambda: sum(astuple(outer)[0]), lambda: setattr(held, "rate", 2.0)


@source
def an_attribute_read_as_python_reads_it() -> Source:
    held = Record()
    return lambda: object.__getattribute__(held, "rate"), lambda: setattr(held, "rate", 2.0)


@source
def the_shape_of_a_tensor_in_place() -> Source:
    held = torch.ones(2)
    return lambda: float(len(held)), lambda: setattr(held, "data", held.data[:1])


@source
def an_attribute_that_a_pattern_of_a_class_names() -> Source:
    held = Record()

    def rate() -> float:
        match held:
            case Record(rate=1.0):
                return 1.0
        return 2.0

    return rate, lambda: setattr(held, "rate", 2.0)


@source
def an_attribute_in_a_slot_that_a_pattern_of_a_class_binds() -> Source:
    held = SlottedRecord()

    def rate() -> float:
        match held:
            case SlottedRecord(rate=found):
                return found

    return rate, lambda: setattr(held, "rate", 2.0)


@source
def an_attribute_at_a_position_of_a_pattern() -> Source:
    held = Outer(Record())

    def rate() -> float:
        match held:
            case Outer(Record(found)):
                return found

    return rate, lambda: setattr(held, "inner", Record(2.0))


@source
def an_attribute_of_a_module_at_a_position_of_a_pattern() -> Source:
    held = Matched()

    def rate() -> float:
        match held:
            case Matched(found):
                return found

    return rate, lambda: setattr(held, "rate", 2.0)


@source
def a_key_that_a_pattern_of_a_look_up_names() -> Source:
    args = Namespace(rate=1.0)

    def rate() -> float:
        match vars(args):
            case {"rate": found}:
                return float(found)
        return 0.0

    return rate, lambda: setattr(args, "rate", 2.0)


@source
def an_attribute_that_a_getter_from_outside_reads() -> Source:
    args, get = Namespace(rate=1.0), operator.attrgetter("rate")
    return lambda: get(args), lambda: setattr(args, "rate", 2.0)


@source
def an_attribute_of_an_attribute_that_a_getter_reads() -> Source:
    args, get = Namespace(loss=Namespace(rate=1.0)), operator.attrgetter("loss.rate")
    return lambda: get(args), lambda: setattr(args.loss, "rate", 2.0)


@source
def an_attribute_that_a_getter_made_in_the_step_reads() -> Source:
    args = Namespace(loss=Namespace(rate=1.0))
    return lambda: operator.attrgetter("loss.rate")(args), lambda: setattr(args.loss, "rate", 2.0)


@source
def an_attribute_behind_a_property_that_is_a_getter() -> Source:
    class Rate:
        rate = property(operator.attrgetter("_rate"))

        def __init__(self) -> None:
            self._rate = 1.0

    held = Rate()
    return lambda: held.rate, lambda: setattr(held, "_rate", 2.0)


@source
def an_option_of_a_file_of_settings() -> Source:
    config = ConfigParser()
    config["loss"] = {"rate": "1.0"}
    return lambda: config.getfloat("loss", "rate"), lambda: config.set("loss", "rate", "2.0")


@source
def a_default_of_a_section_of_settings() -> Source:
    config = ConfigParser({"rate": "1.0"})
    config.add_section("loss")
    section = config["loss"]
    return lambda: float(section["rate"]), lambda: config.set("DEFAULT", "rate", "2.0")


@source
def an_entry_of_a_dictionary_of_weak_references() -> Source:
    both = Record(), Record(2.0)
    table = weakref.WeakValueDictionary(rate=both[0])
    return lambda: table["rate"].rate, lambda: table.update(rate=both[1])


@source
def an_object_in_a_dictionary_of_weak_references() -> Source:
    held = Plain()
    table = weakref.WeakKeyDictionary({held: 1.0})
    return lambda: table[held], lambda: table.update({held: 2.0})


@source
def the_defaults_of_a_method() -> Source:
    class Rate:
        def __call__(self, box: list[float] = [1.0]) -> float:  # noqa: B006 - what is tried
            return box[0]

    assert Rate.__call__.__defaults__ is not None
    box = Rate.__call__.__defaults__[0]
    return Rate(), lambda: box.__setitem__(0, 2.0)


@source
def a_method_that_is_replaced() -> Source:
    class Rate:
        def __call__(self) -> float:
            return 1.0

    return Rate(), lambda: setattr(Rate, "__call__", lambda self: 2.0)


class Scheduled(torch.optim.SGD):
    def __init__(self, rate: float):
        super().__init__([nn.Parameter(torch.ones(2))], lr=0.1)
        self.rate, self.settings = rate, Namespace(rate=rate)


@source
def an_attribute_of_an_optimizer() -> Source:
    held = Scheduled(1.0)
    return lambda: held.rate, lambda: setattr(held, "rate", 2.0)


@source
def an_attribute_behind_an_optimizer() -> Source:
    held = Scheduled(1.0)
    return lambda: held.settings.rate, lambda: setattr(held.settings, "rate", 2.0)


@source
def a_default_of_an_optimizer() -> Source:
    held = Scheduled(1.0)
    return lambda: held.defaults["lr"] * 10, lambda: held.defaults.update(lr=0.2)


@source
def a_list_in_a_group_of_an_optimizer() -> Source:
    held = Scheduled(1.0)
    held.param_groups[0]["rates"] = [1.0]
    rates: Any = held.param_groups[0]["rates"]
    return lambda: held.param_groups[0]["rates"][0], lambda: rates.append(rates.pop() + 1)


@source
def an_attribute_of_a_function_that_does_not_run() -> Source:
    def held() -> None: ...

    vars(held)["rate"] = 1.0
    return lambda: held.rate, lambda: vars(held).update(rate=2.0)  # type: ignore[attr-defined]


@source
def an_attribute_of_a_method_that_does_not_run() -> Source:
    class Holder:
        def held(self) -> None: ...

    vars(Holder.held)["rate"] = 1.0
    held: Any = Holder()
    return lambda: held.held.rate, lambda: vars(Holder.held).update(rate=2.0)


@source
def an_attribute_of_a_parameter() -> Source:
    held: Any = nn.Linear(2, 2)
    held.weight.rate = 1.0
    return lambda: held.weight.rate, lambda: setattr(held.weight, "rate", 2.0)


@source
def an_attribute_of_a_buffer() -> Source:
    held: Any = nn.BatchNorm1d(2)
    held.running_mean.rate = 1.0
    return lambda: held.running_mean.rate, lambda: setattr(held.running_mean, "rate", 2.0)


@source
def an_attribute_of_a_tensor() -> Source:
    held: Any = torch.ones(1)
    held.rate = 1.0
    return lambda: held.rate, lambda: setattr(held, "rate", 2.0)


@source
def an_attribute_of_a_kind_of_tuple() -> Source:
    class Pair(tuple[int, int]):
        pass

    held: Any = Pair((1, 2))
    held.rate = 1.0
    return lambda: held.rate, lambda: setattr(held, "rate", 2.0)


@source
def an_attribute_of_a_partial_function() -> Source:
    held: Any = functools.partial(pow, 2)
    held.rate = 1.0
    return lambda: held.rate, lambda: setattr(held, "rate", 2.0)


@source
def an_object_in_an_array() -> Source:
    held = numpy.array([{"rate": 1.0}], dtype=object)
    return lambda: held[0]["rate"], lambda: held[0].update(rate=2.0)


@source
def the_length_of_a_part_of_a_data_set() -> Source:
    held: Any = torch.utils.data.Subset([1, 2, 3], [0])  # type: ignore[arg-type]
    return lambda: float(len(held)), lambda: held.indices.append(1)


@source
def the_length_of_a_loader() -> Source:
    data = [0]
    held: Any = torch.utils.data.DataLoader(data)  # type: ignore[arg-type]
    return lambda: float(len(held)), lambda: data.append(1)


class Grows(torch.utils.data.Dataset[int]):
    def __init__(self) -> None:
        self.items = [0]

    def __len__(self) -> int:
        return len(self.items)


@source
def the_length_of_a_loader_of_one_s_own_data_set() -> Source:
    data = Grows()
    held: Any = torch.utils.data.DataLoader(data)
    return lambda: float(len(held)), lambda: data.items.append(1)


@source
def the_length_of_a_sampler() -> Source:
    held: Any = torch.utils.data.WeightedRandomSampler([1.0, 1.0], 1)
    return lambda: float(len(held)), lambda: setattr(held, "num_samples", 2)


@source
def the_length_of_data_sets_one_behind_the_other() -> Source:
    class Stream(torch.utils.data.IterableDataset[int]):
        rows = 1

        def __len__(self) -> int:
            return self.rows

        def __iter__(self) -> Iterator[int]:
            return iter(range(self.rows))

    first = Stream()
    held = torch.utils.data.ChainDataset([first])
    return lambda: float(len(held)), lambda: setattr(first, "rows", 2)


@source
def a_setting_that_a_group_gets_later() -> Source:
    held = Scheduled(1.0)
    group: Any = held.param_groups[0]
    return lambda: held.param_groups[0].get("rate", 1.0), lambda: group.update(rate=2.0)


@source
def a_list_in_a_group_that_is_replaced() -> Source:
    held = Scheduled(1.0)
    group: Any = held.param_groups[0]
    group["rates"] = [1.0]
    return lambda: held.param_groups[0]["rates"][0], lambda: group.update(rates=[2.0])


@source
def an_attribute_that_an_optimizer_gets_later() -> Source:
    held = Scheduled(1.0)
    return lambda: getattr(held, "scale", 1.0), lambda: setattr(held, "scale", 2.0)


@source
def an_attribute_of_a_parameter_that_only_an_optimizer_holds() -> Source:
    held = Scheduled(1.0)
    parameter: Any = held.param_groups[0]["params"][0]
    parameter.rate = 1.0
    return (
        lambda: held.param_groups[0]["params"][0].rate,
        lambda: setattr(parameter, "rate", 2.0),
    )


def losses(wrap: Callable[[Any], Any], rate: Callable[[], float], change: Any) -> list[float]:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:  # a method of a class in a function: a closure
            return x * self.weight * rate()

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)

    @wrap
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    found = []
    for number in range(CALLS):
        if number == CHANGED:
            change()
        found.append(float(step(torch.ones(4, 8))))
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_a_value_that_changes_later_is_never_replayed_stale(gpu: EmulatedGpu, name: str) -> None:
    expected = losses(lambda step: step, *SOURCES[name]())
    assert losses(graphed, *SOURCES[name]()) == pytest.approx(expected)


PROJECT = {
    "settings.py": "rate = 1.0\nclass Config:\n    rate = 1.0\ncfg = Config()\ncalls = 0",
    "folder/conf.py": "rate = 1.0",  # without an __init__.py
    "package/__init__.py": "",
    "package/conf.py": "rate = 1.0",
    "package/readers.py": """
import importlib, sys
import folder.conf
def a_module(): import settings; return settings.rate
def an_object_of_a_module(): from settings import cfg; return cfg.rate
def a_value_of_a_module(): from settings import rate; return rate
def a_value_under_another_name(): from settings import rate as value; return value
def a_module_in_a_package(): import package.conf; return package.conf.rate
def a_module_in_a_package_by_another_name(): import package.conf as c; return c.rate
def a_module_from_a_package(): from package import conf; return conf.rate
def a_module_beside(): from . import conf; return conf.rate
def a_value_of_a_module_beside(): from .conf import rate; return rate
def a_module_in_a_folder(): import folder.conf as c; return c.rate
def a_module_in_a_folder_imported_outside(): return folder.conf.rate
def a_module_named_in_a_text(): return importlib.import_module("settings").rate
def a_module_beside_named_in_a_text():
    return importlib.import_module(".conf", __package__).rate
def a_module_in_the_table_of_modules(): return sys.modules["settings"].cfg.rate
def within_a_function_of_the_function():
    def read(): from settings import rate; return rate
    return read()
""",
}
READERS = [
    line.removeprefix("def ").partition("(")[0]
    for line in PROJECT["package/readers.py"].splitlines()
    if line.startswith("def ")
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("settings", "folder", "package"):
            del sys.modules[name]


@pytest.mark.parametrize("name", READERS)
def test_what_a_function_imports_is_guarded_like_a_global(
    gpu: EmulatedGpu, project: Any, name: str
) -> None:
    read = getattr(project("package.readers"), name)
    holders: list[Any] = [project(n) for n in ("settings", "package.conf", "folder.conf")]
    steps: list[Any] = []

    def wrap(function: Any) -> Any:
        steps.append(graphed(function))
        return steps[0]

    def change(value: float = 2.0) -> None:
        for holder in (*holders, holders[0].cfg):
            holder.rate = value

    found = losses(wrap, read, change)
    assert steps[0].stats.replayed
    change(1.0)
    assert found == pytest.approx(losses(lambda step: step, read, change))
    assert found[CHANGED] > 2 * found[CHANGED - 1]  # at once


def test_values_beside_those_that_a_function_imports_are_no_condition(
    gpu: EmulatedGpu, project: Any
) -> None:
    settings, read = project("settings"), project("package.readers").an_object_of_a_module
    steps: list[Any] = []

    def wrap(function: Any) -> Any:
        steps.append(graphed(function))

        def call(x: Tensor) -> Tensor:
            settings.calls += 1
            settings.rate += 1
            return steps[0](x)  # type: ignore[no-any-return]

        return call

    losses(wrap, read, lambda: None)
    assert steps[0].stats.replayed > CHANGED


def test_a_function_may_import_what_is_there_later(gpu: EmulatedGpu, project: Any) -> None:
    read = project("package.readers").a_module

    def run(wrap: Any) -> list[float]:
        sys.modules.pop("settings", None)
        return losses(wrap, read, lambda: setattr(sys.modules["settings"], "rate", 2.0))

    assert run(graphed) == pytest.approx(run(lambda step: step))


def test_the_globals_of_two_functions_with_the_same_text_on_the_same_lines_are_guarded(
    gpu: EmulatedGpu, project: Any, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        (tmp_path / "package" / f"{name}.py").write_text("rate = 1.0\ndef read(): return rate")
    second = project("package.second")

    def rate() -> float:  # nothing but the calls shows which functions these are
        found: float = math.prod(project(f"package.{n}").read() for n in ("first", "second"))
        return found

    def run(wrap: Any) -> list[float]:
        second.rate = 1.0
        return losses(wrap, rate, functools.partial(setattr, second, "rate", 2.0))

    assert run(graphed) == pytest.approx(run(lambda step: step))


def test_a_file_that_appears_later_is_seen(gpu: EmulatedGpu, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    found = losses(graphed, lambda: 1.0 + os.path.exists(flag), flag.touch)
    flag.unlink()
    assert found == pytest.approx(
        losses(lambda step: step, lambda: 1.0 + os.path.exists(flag), flag.touch)
    )


def test_a_rate_that_the_step_reads_itself_is_guarded_where_the_optimizer_is_eager(
    gpu: EmulatedGpu,
) -> None:
    def run(wrap: Callable[[Any], Any]) -> Tensor:
        weight = nn.Parameter(torch.ones(8))
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def step(x: Tensor) -> None:
            optimizer.zero_grad()
            (x * weight).square().mean().backward()
            with torch.no_grad():
                for group in optimizer.param_groups:
                    weight.mul_(1 - group["lr"])
            optimizer.step()

        graphed_step = wrap(step)
        for number in range(40):
            if number % 10 == 9:
                optimizer.param_groups[0]["lr"] *= 0.5
            graphed_step(torch.ones(4, 8))
        return weight.detach()

    torch.testing.assert_close(run(graphed), run(lambda step: step))


def trained(
    wrap: Callable[[Any], Any],
    change: Callable[[torch.optim.Optimizer], object],
    loss_of: Callable[[Tensor], Tensor] = Tensor.mean,
) -> tuple[Tensor, Any]:
    """A weight after some steps, between two of which something changes."""
    weight = nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=True)

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        loss_of((x * weight).relu()).backward()
        optimizer.step()

    graphed_step = wrap(step)
    for number in range(CALLS):
        if number == CHANGED:
            change(optimizer)
        graphed_step(torch.ones(4, 8))
    return weight.detach(), graphed_step


def shrink(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    with torch.no_grad():
        optimizer.param_groups[0]["params"][0].mul_(0.5)


def halve_gradient(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(0.5)


def parameter_of(optimizer: torch.optim.Optimizer) -> Tensor:
    return optimizer.param_groups[0]["params"][0]  # type: ignore[no-any-return]


HOOKS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "before": lambda optimizer: optimizer.register_step_pre_hook(shrink),
    "after": lambda optimizer: optimizer.register_step_post_hook(shrink),
    "before each": lambda optimizer: register_optimizer_step_pre_hook(shrink),
    "after each": lambda optimizer: register_optimizer_step_post_hook(shrink),
    "of a gradient": lambda optimizer: parameter_of(optimizer).register_hook(lambda g: g * 0.5),
    "behind a gradient": lambda optimizer: parameter_of(
        optimizer
    ).register_post_accumulate_grad_hook(halve_gradient),
}


@pytest.mark.parametrize("where", HOOKS)
def test_a_hook_of_an_optimizer_or_a_tensor_that_comes_later_runs(
    gpu: EmulatedGpu, where: str
) -> None:
    handles: list[Any] = []

    def change(optimizer: torch.optim.Optimizer) -> None:
        handles.append(HOOKS[where](optimizer))

    expected, _ = trained(lambda step: step, change)
    handles.pop().remove()
    found, step = trained(graphed, change)
    handles.pop().remove()
    torch.testing.assert_close(found, expected)
    assert step.stats.captured == 2


class Seen:
    """Hooks that leave something in Python."""

    def __init__(self) -> None:
        self.calls, self.values = 0, list[Any]()

    def count(self, *_: Any) -> None:
        self.calls += 1

    def keep(self, *_: Any) -> None:
        self.values.append(len(_))

    def print(self, *_: Any) -> None:
        print(end="")


@pytest.mark.parametrize("effect", ["count", "keep", "print"])
@pytest.mark.parametrize("register", ["register_forward_hook", "register_full_backward_hook"])
def test_an_effect_of_a_hook_keeps_the_step_eager_and_is_told_with_the_line_of_the_hook(
    gpu: EmulatedGpu, effect: str, register: str
) -> None:
    model, seen = nn.Linear(8, 8), Seen()
    hook = getattr(seen, effect)
    getattr(model, register)(hook)
    _, step = trained(graphed, lambda optimizer: None, lambda x: model(x).mean())
    [reason] = [reason for reason in step.stats.reasons if reason.code != "warmup"]
    assert reason.code == "side_effect"
    assert reason.where == f"{__file__}:{hook.__code__.co_firstlineno + 1}"


def test_what_a_hook_without_python_code_appends_keeps_the_step_eager(gpu: EmulatedGpu) -> None:
    gradients: list[Tensor] = []
    model = nn.Linear(8, 8)
    model.weight.register_hook(gradients.append)
    trained(graphed, lambda optimizer: None, lambda x: model(x).mean())
    assert len(gradients) == CALLS


class NoRelu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] * 2 if func is Tensor.relu else func(*args, **(kwargs or {}))


def test_a_mode_of_torch_that_begins_later_is_seen(gpu: EmulatedGpu) -> None:
    def run(wrap: Callable[[Any], Any]) -> tuple[Tensor, Any]:
        mode = NoRelu()
        try:
            return trained(wrap, lambda optimizer: mode.__enter__())  # type: ignore[no-untyped-call]
        finally:
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    expected, _ = run(lambda step: step)
    found, step = run(graphed)
    torch.testing.assert_close(found, expected)
    assert step.stats.captured == 2


def test_the_backward_of_a_watched_call_runs_where_its_python_is_seen(gpu: EmulatedGpu) -> None:
    """On a GPU autograd has threads of its own, unless it is asked not to use them."""
    threads: list[bool] = []

    class Noting(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            threads.append(torch._C._is_multithreading_enabled())
            return gradients[0]

    _, step = trained(graphed, lambda optimizer: None, lambda x: Noting.apply(x).mean())  # type: ignore[no-untyped-call]
    assert [reason.code for reason in step.stats.reasons] == ["warmup", "side_effect"]
    assert threads == [False] * 3 + [True] * (CALLS - 3)


def test_a_backward_that_another_tool_has_wrapped_is_seen(
    gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        backward(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "backward", wrapper)
    expected, _ = trained(lambda step: step, lambda optimizer: None)
    found, step = trained(graphed, lambda optimizer: None)
    torch.testing.assert_close(found, expected)
    assert step.stats.captured == 1


def test_a_step_that_seeds_itself_is_eager(gpu: EmulatedGpu) -> None:
    """It draws the same numbers in each call, and no random state shows that it did."""

    def loss_of(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return (x * torch.rand_like(x)).mean()

    expected, _ = trained(lambda step: step, lambda optimizer: None, loss_of)
    found, step = trained(graphed, lambda optimizer: None, loss_of)
    torch.testing.assert_close(found, expected)
    assert [reason.code for reason in step.stats.reasons] == ["warmup", "side_effect"]

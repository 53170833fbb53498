"""Follows one run of a training script for a comparison with another run of it, unit by unit."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import functools
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from json import dumps
from threading import get_ident
from traceback import walk_stack
from types import FrameType
from typing import IO, Any

from launchscope.adopt.child.digests import Digests, tensors_of
from launchscope.adopt.child.forced import enlarge_update, force, keep_inputs, shortened
from launchscope.adopt.child.held import held_values, is_runtime
from launchscope.adopt.child.kept_states import KeptStates
from launchscope.adopt.child.mutants import MutantCalls
from launchscope.adopt.child.outgoing import Outgoing
from launchscope.adopt.child.reads import READS, Reads
from launchscope.adopt.child.state import TrainingState
from launchscope.adopt.child.switching import Switching
from launchscope.adopt.child.windows import Windows
from launchscope.adopt.child.writes import WriteGuard
from launchscope.adopt.observation import (
    BEGIN,
    EVENT_EVERY,
    HELD,
    ITERATION,
    LOGGED_FILE,
    OUTPUT,
    PERTURBATION,
    RESULT,
    STEPS_FILE,
    GraphedCalls,
    Observation,
    Observed,
    StepState,
)
from launchscope.host import working_directory
from launchscope.runner.child.enter.seeds import seed_torch
from launchscope.runner.child.enter.stop import stop_script
from launchscope.runner.child.enter.together import stop_together
from launchscope.runner.child.events.events import StepObserver
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.events.modules import is_weighted
from launchscope.runner.child.facts.import_watch import ImportWatch
from launchscope.runner.child.facts.patching import put_in_place, take_out
from launchscope.runner.child.facts.reasons import own_failure
from launchscope.runner.child.facts.source_lines import is_persons
from launchscope.runner.child.facts.torch_types import Args, Function, Kwargs, Module, Torch, Value
from launchscope.runner.protocol import events
from launchscope.runner.protocol.folder import ChildFolder
from launchscope.runner.protocol.plain import to_plain

_LARGEST_INPUT = 1 << 24  # elements
_MOST_READS = 10_000
_MOST_PLACES = 100  # whence steps begin


class RunObserver(StepObserver):
    """One per process."""

    stops = False  # but for the plan

    def __init__(
        self,
        torch: Torch,
        folder: ChildFolder,
        observation: Observation,
        stop_file: str | None = None,
    ):
        self._stop_file = stop_file
        self.finished = self.unwound = False
        self.suspect = None
        self._torch, self._folder, self._plan = torch, folder, observation
        self._stretches = stretches = observation.stretches
        self._state = TrainingState(torch)
        self._digests = Digests(torch)
        self._observed = Observed(0)
        self._units = 0
        self._written = -1  # the unit of the last state
        self._inside = 0  # of a step or a graphed call
        self._own = False  # what is computed now is ours
        self._begins: dict[tuple[tuple[str, int], ...], None] = {}
        self._reads: list[float] = []
        self._of_reads = Reads(torch)
        self._inputs: list[int] = []
        self._fetched: list[int] = []
        self._fetches = 0
        self._short = observation.short_fetch
        self._unperturbed: list[tuple[dict[str, Any], str, Any]] = []
        self._forced = list(enumerate(observation.forced))
        self._switching = Switching(stretches)
        self._has_trained = False  # a call of the graphed function was made in training mode
        self._trains_in_eval_mode: bool | None = None  # one that was not trains as well
        self._windows = Windows(torch)
        self._calls: list[GraphedCalls] = []
        self._steps: dict[int, Any] = {}  # each graphed function
        self._file: IO[str] | None = None
        self._comparing = ExitStack()  # hooks of the part that is compared
        self._counting = ExitStack()
        self._runtime: Any = None  # the module of `graphed`
        self._process, self._thread = os.getpid(), get_ident()
        self._start = working_directory()
        mutant = observation.mutant
        self._until = stretches.last if mutant is None else stretches.mutant_until
        self._kept = None
        if observation.states:
            self._kept = KeptStates(
                torch,
                observation.states,
                observation.restores,
                observation.states_every,
                stretches.timed_from,
                stretches.compared,
                rounds=observation.perturbed,
            )
        self._mutant = None if mutant is None else MutantCalls(torch, mutant, self._state)
        self._marked = observation.outputs is not None
        self._looks = [] if mutant is not None else [*stretches.looks_after]
        self._looked = 0
        self._outgoing = Outgoing(
            torch,
            self._digests,
            self._quietly,
            lambda: bool(self._looks),
            folder.path / LOGGED_FILE,
        )
        self._open = False  # a marked step has begun
        self._outputs: dict[str, Any] = {}  # of the last marked step
        plain = observation.units_per_call is None and not self._marked
        self._hooks = Hooks(torch, self) if plain else None

    # ------------------------------------------------------------------------ set up, take down

    def install(self) -> None:
        """Seed the generators, and put everything in place."""
        torch, plan = self._torch, self._plan
        self._folder.emit(events.PassStarted(RESULT, self._until))
        seed_torch(torch)
        guard = WriteGuard(plan.scratch, plan.root, self._refuse)
        guard.install()
        for module in (torch, torch.jit):
            self._wrap(module, "save", lambda save: self._saving(save, guard))
        self._wrap(torch.jit.RecursiveScriptModule, "save", lambda s: self._saving_of(s, guard))
        self._wrap(torch, "from_file", lambda map_file: self._mapping(map_file, guard))
        self._wrap(torch, "manual_seed", self._seeding)
        torch.random.manual_seed = torch.manual_seed
        self._wrap(torch.optim.Optimizer, "__init__", self._making)
        self._wrap(torch.amp.GradScaler, "step", self._scaler_step)
        self._outgoing.install()
        setattr(builtins, ITERATION, self._begin_iteration)
        self._switching.install()
        self._file = open(self._folder.path / STEPS_FILE, "w")  # noqa: SIM115 - for the whole run
        import torch.utils.data.dataloader as loading  # the script's torch

        fetching = loading._BaseDataLoaderIter
        self._wrap(fetching, "__next__", self._fetching, self._comparing)
        for name in READS:
            self._wrap(torch.Tensor, name, self._reading, self._comparing)
        if self._hooks is not None:
            self._hooks.broke = self._broke
            self._hooks.install()
            self._comparing.callback(self._hooks.remove)
        elif plan.units_per_call is None:
            setattr(builtins, BEGIN, self._begin_marked)
            setattr(builtins, OUTPUT, self._note_output)
        else:
            self._wrap_graphed(importlib.import_module("launchscope.graphed"))
            # Of a copy beside the script.
            ImportWatch("graphed", is_runtime, self._wrap_graphed, anywhere=True).begin()
        self._hook_optimizers()  # the last: what takes out the others is called from there

    def _wrap(
        self,
        owner: Value,
        name: str,
        around: Callable[[Function], Function],
        stack: ExitStack | None = None,
    ) -> None:
        original = getattr(owner, name)
        ours = functools.wraps(original)(around(original))
        undo = put_in_place(owner, name, ours)
        if stack is not None:
            stack.callback(undo)

    def _wrap_graphed(self, runtime: Any) -> None:
        self._runtime = runtime
        atexit.unregister(
            runtime.step.print_summary
        )  # the last line is that of the script's failure
        self._wrap(runtime.GraphedStep, "__call__", self._graphed)

    def _hook_optimizers(self) -> None:
        if self._marked:
            return
        optim = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
        for hook in (
            optim.register_optimizer_step_pre_hook(self._before_step),
            optim.register_optimizer_step_post_hook(self._after_step),
        ):
            self._counting.callback(take_out, hook)

    @property
    def _ours(self) -> bool:
        """Whether an event is none of the script's training."""
        return (
            self._own
            or self.finished
            or get_ident() != self._thread
            or os.getpid() != self._process
        )

    def _broke(self, error: Exception) -> None:
        self._folder.emit(own_failure(error))
        self._finish()

    def _refuse(self, path: str) -> None:
        self._folder.emit(events.WriteRefused(path))

    # --------------------------------------------------------------------- what the script does

    def _saving_of(self, save: Function, guard: WriteGuard) -> Function:
        def saved(module: Value, f: Value, *args: Any, **kwargs: Any) -> Value:
            guard.check(f)  # torch writes the file in C++
            return save(module, f, *args, **kwargs)

        return saved

    def _mapping(self, map_file: Function, guard: WriteGuard) -> Function:
        def mapped(filename: Value, shared: Value = None, *args: Any, **kwargs: Any) -> Value:
            if shared:
                guard.check(filename)  # what is written to the tensor is written to the file
            return map_file(filename, shared, *args, **kwargs)

        return mapped

    def _saving(self, save: Function, guard: WriteGuard) -> Function:
        def checked(value: Value, f: Value, *args: Any, **kwargs: Any) -> Value:
            if isinstance(f, str | os.PathLike):
                guard.check(f)  # torch writes the file in C++
            self._outgoing.save(value, f)
            return save(value, f, *args, **kwargs)

        return checked

    def _quietly(self, action: Function) -> None:
        """Do something that is no part of the script's training."""
        if self._ours:
            return
        self._own = True
        try:
            action()
        except Exception as error:
            self._broke(error)
        self._own = False

    def _begin_iteration(self) -> None:
        """A loop, or a function, in whose lines the step is, begins anew."""
        done = self._units + self._open  # a marked step ends where the next one begins
        if not self._switching.is_over:
            space = sys._getframe(1).f_globals
            self._quietly(functools.partial(self._switching.begin_iteration, space, done))
        if self._looks and done >= self._looks[0]:
            self._quietly(functools.partial(self._look, sys._getframe(1), done))

    def _look(self, frame: FrameType, unit: int) -> None:
        del self._looks[0]
        known = self._state.tensors().values()
        found = held_values(self._torch, self._digests, frame, known, unit, self._is_in_copy)
        found = replace(found, values=self._outgoing.taken() | found.values)
        self._folder.write(f"{HELD}{self._looked}", found)
        self._looked += 1

    def _is_in_copy(self, file: str) -> bool:
        """Whether a file is in the copy of the project in which this process runs."""
        path = os.path.realpath(os.path.join(self._start, file))
        return path.startswith(os.path.join(os.path.realpath(self._plan.scratch), ""))

    def _seeding(self, seed: Function) -> Function:
        def noted(*args: Any, **kwargs: Any) -> Value:
            if not self._own:
                self._observed = replace(self._observed, seeds_itself=True)
            return seed(*args, **kwargs)

        return noted

    def _making(self, init: Function) -> Function:
        def made(optimizer: Value, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self._state.add_optimizer(optimizer)

        return made

    def _reading(self, read: Function) -> Function:
        def noted(tensor: Value, *args: Any, **kwargs: Any) -> Value:
            value = read(tensor, *args, **kwargs)
            skips = self._ours or self._inside or len(self._reads) >= _MOST_READS
            if not skips and self._of_reads.is_result(read.__name__, tensor, sys._getframe(1)):
                self._own = True
                try:
                    self._reads += self._of_reads.size_of(value)
                except Exception as error:
                    self._broke(error)
                self._own = False
            return value

        return noted

    def _fetching(self, fetch: Function) -> Function:
        def fetched(iterator: Value) -> Value:
            batch = fetch(iterator)
            if not self._ours:
                self._own = True
                try:
                    batch = self._seen(batch)
                except Exception as error:
                    self._broke(error)
                self._own = False
            return batch

        return fetched

    def _seen(self, batch: Value) -> Value:
        self._fetches += 1
        if self._fetches == self._short:
            shorter = shortened(self._torch, batch)
            if shorter is not None:
                self._note_forced("short_batch")
                batch = shorter
        self._fetched += self._digests_in(batch)
        return batch

    def _digests_in(self, value: Value) -> list[int]:
        found = tensors_of(self._torch, value, [])
        return self._digests.digests(
            [t for t in found if not t.requires_grad and 0 < t.numel() <= _LARGEST_INPUT]
        )

    def forward_begin(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None:
        """The original: the first forward of a training step."""
        if self._ours or self._inside:
            return
        if not self._units and not self._state.optimizers() and is_weighted(module):
            self._observed = replace(self._observed, forwards=self._observed.forwards + 1)
            if self._observed.forwards >= self._stretches.last:
                self._finish()
                return
        if not self._torch.is_grad_enabled():
            return
        if not module.training and is_weighted(module) and not self._may_train_in_eval_mode():
            return
        if not self._is_of_step(sys._getframe(1)):
            return
        self._begin_step()
        if self.finished:
            return
        self._own = True
        if self._units == 0 and is_weighted(module) and self._plan.evaluation:
            keep_inputs(self._torch, self._plan.evaluation, module, args, kwargs)
        if self._is_usual:
            self._inputs += self._digests_in((args, kwargs))
        self._own = False

    def _may_train_in_eval_mode(self) -> bool:
        """Whether the script may train without `train()`: for good, to keep the statistics of batch
        normalizations, or since an evaluation that has left `eval()` on."""
        trained = self._state.trained_modules()
        return bool(self._state.optimizers()) and not any(each.training for each in trained)

    def _is_of_step(self, frame: FrameType | None) -> bool:
        """Whether code of the step makes this forward. A script may call a model between two steps,
        too, for pictures of a generator say."""
        step, opens = self._plan.step, self._units != self._written
        if step is None and (not opens or len(self._begins) >= _MOST_PLACES):
            return True
        lines = tuple(
            (os.path.join(self._start, each.f_code.co_filename), number or 0)
            for each, number in walk_stack(frame)
            if is_persons(each.f_code.co_filename)
        )
        if step is None:
            self._begins[lines] = None
            return True
        return any(file == step.file and step.first <= n <= step.last for file, n in lines)

    def _before_step(self, optimizer: Value, args: Args, kwargs: Kwargs) -> None:
        if not self._ours:
            if number := self._plan.perturbed:
                # In turns, because a tie between two may be close on one side only.
                by = -PERTURBATION if number % 2 == 0 else PERTURBATION
                self._unperturbed = enlarge_update(optimizer, by)
            self._inside += 1

    def _after_step(self, optimizer: Value, args: Args, kwargs: Kwargs) -> None:
        if not self._ours:
            self._inside = max(0, self._inside - 1)
            self._state.add_optimizer(optimizer)
            for group, name, value in self._unperturbed:
                group[name] = value
            self._unperturbed = []
            if self._inside == 0:
                self._count(1)

    def _scaler_step(self, step: Function) -> Function:
        def counted(*args: Any, **kwargs: Any) -> Value:
            if self._ours or self._inside or self._marked:
                return step(*args, **kwargs)
            self._inside += 1  # it may leave the optimizer's step out
            try:
                return step(*args, **kwargs)
            finally:
                self._inside = 0
                self._count(1)

        return counted

    def _graphed(self, call: Function) -> Function:
        def observed(step: Value, *args: Any, **kwargs: Any) -> Value:
            if self._ours or self._inside:
                return call(step, *args, **kwargs)
            self._steps[id(step)] = step
            if self._evaluates():
                asks = self._trains_in_eval_mode is None and self._torch.is_grad_enabled()
                before: list[int] = []
                if asks:
                    self._begin_call(args, kwargs)
                    before = self._trained()
                with self._out_of_the_way():
                    result = call(step, *args, **kwargs)
                if asks:
                    self._trains_in_eval_mode = self._trained() != before
                    if self._trains_in_eval_mode:
                        self._end_call()
                    else:
                        self._inputs = []
                return result
            self._begin_call(args, kwargs)
            if self.finished:
                return call(step, *args, **kwargs)
            captured, begun = step.stats.captured, time.perf_counter()
            with self._out_of_the_way():
                if self._mutant is not None:
                    result = self._mutant.call(functools.partial(call, step), args, kwargs)
                else:
                    result = call(step, *args, **kwargs)
            if step.stats.captured > captured and self._observed.setup_ms is None:
                took = (time.perf_counter() - begun) * 1e3
                self._observed = replace(self._observed, setup_ms=took)
            if self._marked:
                names = self._plan.outputs or ()
                for name, value in zip(names, result if len(names) > 1 else (result,)):
                    self._note_output(name, value)
            self._end_call()
            return result

        return observed

    def _evaluates(self) -> bool:
        """Whether a graphed function that also trains is called to evaluate now, as one for the
        phases "train" and "val" is. As in the original, that is no step."""
        if self._marked:
            return False
        trained = self._state.trained_modules()
        trains = self._torch.is_grad_enabled() and (
            self._trains_in_eval_mode or any(module.training for module in trained)
        )
        self._has_trained = self._has_trained or trains
        return self._has_trained and not trains

    def _trained(self) -> list[int]:
        """Digests of what the optimizers change."""
        return self._digests.digests([*self._state.parameters()])

    def _begin_marked(self) -> None:
        """The original: a marked step begins, and the one before has ended."""
        if self._ours:
            return
        try:
            if self._open:
                self._count(1)
            self._open = not self.finished
            if not self.finished:
                self._begin_step()
        except Exception as error:
            self._broke(error)

    def _note_output(self, name: str, value: Value) -> Value:
        """What a marked step has computed, as the state that it leaves holds it."""
        if self._comparing_now and not self._ours:
            tensors = tensors_of(self._torch, value, [])
            for number, tensor in enumerate(tensors):
                part = f" {number + 1}" if len(tensors) > 1 else ""
                self._outputs[f"output {name}{part}"] = tensor.detach().clone()
        return value

    @contextlib.contextmanager
    def _out_of_the_way(self) -> Iterator[None]:
        """`graphed` looks at all Python that runs in a step, and would find ours."""
        torch = self._torch
        ours = [(owner, name, vars(owner)[name])
                for owner, name in (
                    *((torch.Tensor, name) for name in READS),
                    (torch.amp.GradScaler, "step"),
                )
                if hasattr(vars(owner).get(name), "__wrapped__")]  # fmt: skip
        for owner, name, wrapper in ours:
            if owner is torch.Tensor:
                delattr(owner, name)
            else:
                setattr(owner, name, wrapper.__wrapped__)
        self._counting.close()
        self._inside = 1
        try:
            yield
        finally:
            self._inside = 0
            for owner, name, wrapper in ours:
                setattr(owner, name, wrapper)
            self._hook_optimizers()

    # ------------------------------------------------------------------------------- the units

    @property
    def _comparing_now(self) -> bool:
        return self._units < min(self._stretches.timed_from, self._until)

    @property
    def _is_usual(self) -> bool:
        """Whether the step takes its usual branches. Another one may give a model something else
        than the patch gives its function, and mutants never take it."""
        return self._switching.now is None

    def _begin_call(self, args: Args, kwargs: Kwargs) -> None:
        try:
            self._begin_step()
            if self._comparing_now and not self.finished:
                self._own = True
                if self._is_usual:
                    self._inputs += self._digests_in((args, kwargs))
                self._generator = self._generator_state()
                self._own = False
        except Exception as error:
            self._broke(error)

    def _end_call(self) -> None:
        try:
            if self._comparing_now and self._is_usual and not self._observed.draws_random:
                drawn = self._generator_state() != self._generator
                self._observed = replace(self._observed, draws_random=drawn)
            self._count(self._plan.units_per_call or 0)
        except Exception as error:
            self._broke(error)

    def _generator_state(self) -> bytes:
        torch = self._torch
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        state = torch.cuda.get_rng_state() if on_gpu else torch.get_rng_state()
        return bytes(state.numpy().tobytes())

    def _begin_step(self) -> None:
        """A training step begins: the state is what the steps before have left."""
        if self._units == self._written:
            return
        if self._units >= self._until:
            self._write_state()
            self._finish()
            return
        if not self._comparing_now:
            return
        self._own = True
        try:
            if self._units == 0 or self._written < 0:
                self._state.find_modules()
            self._write_state()
            if self._units >= self._stretches.compared:
                self._force_events()
        finally:
            self._own = False

    def _write_state(self) -> None:
        torch, own = self._torch, self._own
        self._own = True
        tensors = self._state.tensors() | self._outputs
        self._outputs = {}
        if tensors.keys() - self._observed.epsilons.keys():
            floats = {n: t for n, t in tensors.items() if t.is_floating_point()}
            epsilons = {name: float(torch.finfo(t.dtype).eps) for name, t in floats.items()}
            self._observed = replace(
                self._observed, epsilons={**self._observed.epsilons, **epsilons}
            )
        made = StepState(
            self._units,
            dict(zip(tensors, self._digests.digests([*tensors.values()]))),
            dict(zip(tensors, self._digests.sketches([*tensors.values()]))),
            tuple(self._reads),
            tuple(self._inputs),
            tuple(self._fetched),
            *self._updates(tensors),
        )
        self._reads, self._inputs, self._fetched = [], [], []
        self._written = self._units
        if self._file is not None:
            self._file.write(dumps(to_plain(made)) + "\n")
        done = min(self._units, self._until)
        self._folder.emit(events.PassProgress(RESULT, done, self._until))
        self._note_calls()
        if self._kept is not None:
            restored = self._kept.exchange(self._units, tensors)
            found = self._observed
            if restored and self._plan.restores:
                self._observed = replace(found, restored=(*found.restored, self._units))
            elif restored:
                self._observed = replace(found, keeps_states=True)
        self._own = own

    def _updates(self, tensors: dict[str, Any]) -> tuple[dict[str, tuple[float, ...]], int]:
        if self._kept is None:
            return {}, 0
        found = self._kept.updates(tensors, self._state.squares)
        sketches = self._digests.sketches([*found.values()])
        return dict(zip(found, sketches)), self._kept.since

    def _force_events(self) -> None:
        while self._forced:
            number, event = self._forced[0]
            if self._units < self._stretches.compared + number * EVENT_EVERY:
                return
            del self._forced[0]
            if event == "short_batch":
                self._short = self._short or self._fetches + 2
            elif force(self._torch, self._state, event, self._plan.evaluation):
                self._note_forced(event)

    def _note_forced(self, event: Any) -> None:
        found = self._observed
        self._observed = replace(found, forced=(*found.forced, event), short_fetch=self._short)

    def _count(self, units: int) -> None:
        self._units += units
        if self._units < self._stretches.timed_from or not units:
            return
        self._comparing.close()  # twice does no harm
        if self._windows.note(self._units):
            self._note_calls()
            if self._units >= self._until:
                self._finish()

    def _note_calls(self) -> None:
        stats = [step.stats for step in self._steps.values()]
        if stats:
            counts = (sum(s.eager for s in stats), sum(s.captured for s in stats),
                      sum(s.replayed for s in stats))  # fmt: skip
            self._calls.append(GraphedCalls(self._units, *counts))

    # ------------------------------------------------------------------------------- the end

    def _can_graph(self) -> bool:
        return self._runtime is not None and bool(self._runtime.cuda.gpu.available())

    def _write_result(self) -> None:
        self._note_calls()
        reasons = [r for step in self._steps.values() for r in step.stats.reasons]
        result = replace(
            self._observed,
            partial_momentum=self._state.has_partial_momentum(),
            switched=self._switching.done,
            switching=self._switching.now,
            graphs=self._can_graph(),
            units=self._units,
            window_ms=self._windows.unit_ms(),
            begins=tuple(self._begins),
            calls=tuple(self._calls),
            reasons=tuple((r.code, r.message, r.where or "", r.calls) for r in reasons),
        )
        if self._file is not None:
            self._file.close()
        self._folder.write(RESULT, result)

    def _finish(self) -> None:
        if self.finished:
            return
        self.finished = True
        self._comparing.close()
        self._counting.close()
        self._write_result()
        self._folder.emit(events.MeasuringEnded())
        if self._stop_file is None:
            self._stop()
        else:
            stop_together(self._torch, self._stop_file, self._stop, self._may_stop)

    def _may_stop(self) -> bool:
        return not self.unwound and get_ident() == self._thread

    def _stop(self) -> None:
        stop_script(self._torch, self._may_stop)

    def absorbs(self, error: BaseException) -> bool:
        """No error of the script is ours."""
        return False

    def script_ended(self) -> None:
        """By itself: what there is has to do."""
        if self._open:
            self._units += 1
        self.finished = True
        self._write_result()
        self._folder.emit(events.ScriptEnded(steps=self._units, optimizer_steps=self._units))

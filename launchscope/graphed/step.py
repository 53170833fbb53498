"""The life of a call: arguments, key, and a graph of that kind whose guard holds: a replay. Without
one the call is watched, captured, or eager for one reason."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import torch

from . import cuda
from .arguments import Tensor, flatten, key_of
from .capture import all_steps
from .check import Checks
from .guard import Gradients, Guard
from .judgment import ALIKE, WatchedCall, record
from .lines import LineRecord
from .optimizers import Optimizer, Optimizers
from .program import Kind, Program
from .ranks import Ranks, is_distributed
from .reach import Codes, Reach
from .stats import UNSTABLE, WARMUP, Counts, EagerReason, GraphedError, RefusedError, Stats

OnDifference = Literal["eager", "raise"]
P = ParamSpec("P")
R = TypeVar("R")

SWITCH = "LAUNCHSCOPE_GRAPHED"
_DDP_WARMUP = 11  # DistributedDataParallel rebuilds its buckets in the first calls
_MOST_MISSES = 30  # watched calls without a replay: the step is taken to be different every time
_running = threading.local()


@dataclass(frozen=True)
class Options:
    warmup: int = 3
    max_graphs: int = 8
    copy_outputs: bool = True
    check: int | None = None
    on_difference: OnDifference = "eager"
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        if self.warmup < 0 or self.max_graphs < 1 or (self.check or 0) < 0 or self.timeout_s <= 0:
            text = "warmup and check must be at least 0, max_graphs at least 1, timeout_s above 0"
            raise ValueError(text)
        if self.on_difference not in ("eager", "raise"):
            raise ValueError('on_difference must be "eager" or "raise"')


@dataclass
class _Turn:
    """What a call should do: "watch", "capture" or "replay", or run eagerly for a reason."""

    action: str | EagerReason
    key: Any = None
    kind: Kind | None = None
    gradients: list[Any] = field(default_factory=list)  # that a replay needs to know


class GraphedStep(Generic[P, R]):
    """A step that is replayed as a CUDA graph where that is safe. Made by `graphed`."""

    def __init__(self, function: Callable[P, R], options: Options):
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._name = getattr(function, "__qualname__", type(function).__name__)
        self._code = getattr(getattr(function, "__func__", function), "__code__", None)
        self._codes: Codes = {}
        where = None
        if self._code is not None:
            self._codes[self._code, self._code.co_filename] = function.__globals__
            where = f"{self._code.co_filename}:{self._code.co_firstlineno}"
        self._counts = Counts(self._name, where)
        self._checks = Checks(options.check, self._on_side)
        self.ranks: Ranks | None = None
        self.lines: tuple[LineRecord, ...] = ()  # of the last watched call
        self._misses = 0
        self._never: EagerReason | None = None
        self._thread: int | None = None
        self._sides: dict[int, Any] = {}  # the side stream of each device
        self._stream: Any = None
        self._kinds: dict[Any, list[Kind]] = {}
        self._roots: dict[int, Any] = {}  # objects that watched calls have used
        self._effects: set[str] = set()  # of the last call, if it was watched
        self.optimizers = Optimizers()
        # Names that the step binds to new tensors, with the namespaces, whose identity they hold.
        self._bound: dict[tuple[int, str], Any] = {}
        self._forgets = False  # autograd nodes that the script made elsewhere, before a capture
        self._generators: list[torch.Generator] = []
        if os.environ.get(SWITCH, "").strip() == "0":
            self._never = EagerReason("disabled", f"{SWITCH}=0 is set")
        all_steps.add(self)

    @property
    def stats(self) -> Stats:
        """What became of the calls so far, and why some were eager."""
        return self._counts.stats(len(self._programs()), self._checks.unchecked)

    def reset(self) -> None:
        """Free all graphs. Calls of each kind are watched again before the next capture."""
        self.release()
        self._kinds.clear()
        self._misses = 0

    def release(self) -> None:
        for kind in self._all_kinds():
            kind.release()

    def _all_kinds(self) -> list[Kind]:
        return list(chain.from_iterable(self._kinds.values()))

    def _programs(self) -> list[Program]:
        return [kind.program for kind in self._all_kinds() if kind.program is not None]

    def _give_up(self, reason: EagerReason) -> EagerReason:
        self._never = reason
        self.reset()
        self._counts.warn(reason)
        return reason

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._never is not None:
            if self.ranks is not None and threading.get_ident() == self._thread:
                self.ranks.turn(f"never {self._never.message}", self._never.message)
            return self._run_eagerly(self._never, args, kwargs)
        if getattr(_running, "step", False) or cuda.gpu.capturing():
            return self._function(*args, **kwargs)  # part of what another one does
        _running.step = True
        try:
            return self._call(args, kwargs)
        finally:
            _running.step = False

    def _call(self, args: Any, kwargs: Any) -> R:
        if self._thread is None and not cuda.gpu.available():
            self._never = EagerReason("no_cuda", "there is no CUDA device")
            return self._run_eagerly(self._never, args, kwargs)
        self._thread = self._thread or threading.get_ident()
        if threading.get_ident() != self._thread:
            reason = EagerReason("thread", "it is called from a second thread")
            return self._run_eagerly(reason, args, kwargs)
        leaves: list[Any] = []
        form = flatten((args, kwargs), leaves)
        turn = self._find(leaves, form)
        if self.ranks is not None:
            self._agree(self.ranks, turn)
        if isinstance(turn.action, EagerReason):
            return self._run_eagerly(turn.action, args, kwargs)
        if turn.kind is None or turn.action == "watch":
            return self._watch(turn, leaves, args, kwargs)
        if turn.kind.program is None:
            return self._capture(turn.kind, leaves, form, args, kwargs)
        return self._replay(turn.kind.program, leaves, turn.gradients, args, kwargs)

    def _find(self, leaves: list[Any], form: Any) -> _Turn:
        """What a call with these arguments should do."""
        if torch.is_anomaly_enabled() or torch._C._len_torch_dispatch_stack():
            text = "anomaly detection or a dispatch mode of torch is on"
            return _Turn(EagerReason("mode", text))
        try:
            key = key_of(leaves, form)
        except RefusedError as refused:
            return _Turn(refused.reason)
        for kind in self._kinds.get(key, ()):
            if (gradients := kind.holds()) is not None:
                return _Turn(self._action_for(kind), key, kind, gradients)
        return _Turn("watch", key)

    def _action_for(self, kind: Kind) -> str | EagerReason:
        if kind.refusal is not None:
            return kind.refusal
        if any(scaler._per_optimizer_states for scaler in kind.guard.scalers):
            return EagerReason("scaler", "a GradScaler is in the middle of an iteration")
        if kind.program is not None:
            return "replay"
        if kind.watched < ALIKE:
            return "watch"
        if self._counts.eager < self._needed_warmup():
            return WARMUP
        if len(self._programs()) >= self._options.max_graphs:
            text = f"there are max_graphs={self._options.max_graphs} graphs for other kinds"
            return EagerReason("max_graphs", text)
        return "capture"

    def _needed_warmup(self) -> int:
        warmup = self._options.warmup
        return max(warmup, _DDP_WARMUP) if is_distributed() else warmup

    def _agree(self, ranks: Ranks, turn: _Turn) -> None:
        """The same turn, or an eager call if the other ranks cannot do the same."""
        wish = turn.action if turn.action in ("replay", "capture") else "eager"
        if wish == "replay" and turn.kind is not None:
            wish = turn.kind.agreed
        why = getattr(turn.action, "message", "something has changed")
        outcome, _, rest = ranks.turn(str(wish), why).partition(" ")
        if outcome == "never":
            turn.action = self._give_up(EagerReason("ranks", rest))
        elif outcome == "eager" and wish != "eager":
            text = f"{rest} cannot do this call with a graph"
            turn.action = EagerReason("ranks", text) if rest else WARMUP

    def _run_eagerly(self, reason: EagerReason, args: Any, kwargs: Any) -> R:
        """As without us, but for the stream."""
        self._counts.add_eager(reason)
        if reason.code in ("disabled", "no_cuda", "thread"):
            return self._function(*args, **kwargs)
        return self._on_side(lambda: self._function(*args, **kwargs))  # type: ignore[no-any-return]

    def _on_side(self, call: Callable[[], Any]) -> Any:
        """On our stream on the current device."""
        device = cuda.gpu.device()
        if device not in self._sides:
            self._sides[device] = cuda.gpu.make_stream()
        with cuda.gpu.on(self._sides[device]):
            return call()

    def _watch(self, turn: _Turn, leaves: list[Any], args: Any, kwargs: Any) -> R:
        """Run eagerly and see whether the calls of this kind can be captured."""
        self._misses += 1
        if self._misses > _MOST_MISSES:
            kinds = self._kinds.get(turn.key, ())
            unlike = kinds[-1].unlike_now() if kinds else UNSTABLE
            return self._run_eagerly(self._give_up(unlike), args, kwargs)
        reach = self._look_around([leaf for leaf in leaves if not isinstance(leaf, Tensor)])
        kind, chosen = turn.kind, self.optimizers
        if kind is None or kind.holds() is None:  # looking around may have renewed the form
            guard = Guard(reach, chosen.inside, chosen.moving, self._bound)
            kind = Kind(guard, Gradients(guard.parameters), chosen.form)
        self._counts.add_eager(WARMUP)
        return WatchedCall(self, turn.key, kind, reach, leaves).run(args, kwargs)  # type: ignore[no-any-return]

    def _look_around(self, others: Iterable[Any]) -> Reach:
        """Find what there is now; decide which optimizers a graph can contain."""
        roots = [(getattr(self._function, "__name__", "the step"), self._function)]
        roots += [(type(root).__name__, root) for root in (*self._roots.values(), *others)]
        reach = Reach(self._codes, roots)
        for key, kinds in list(self._kinds.items()):
            for kind in [k for k in kinds if not k.guard.alive()]:
                kinds.remove(kind)
                kind.release()
            if not kinds:
                del self._kinds[key]
        stepped = [root for root in self._roots.values() if isinstance(root, Optimizer)]
        scaled = any(scaler.is_enabled() for scaler in reach.scalers)
        self.optimizers.sort(stepped, reach.optimizers, scaled)
        return reach

    def _keep(self, key: Any, kind: Kind) -> None:
        kinds = self._kinds.setdefault(key, [])
        if kind not in kinds:
            kinds.append(kind)

    def _capture(self, kind: Kind, leaves: list[Any], form: Any, args: Any, kwargs: Any) -> R:
        """Capture this call, which also runs it. After a failure it runs eagerly."""
        outcome = record(self, kind, leaves, form)
        if isinstance(outcome, EagerReason):
            return self._run_eagerly(outcome, args, kwargs)
        kind.program = outcome
        self._counts.captured += 1
        self._on_side(outcome.run_last)
        return outcome.outputs(leaves, self._options.copy_outputs)  # type: ignore[no-any-return]

    def _replay(
        self, program: Program, leaves: list[Any], gradients: list[Any], args: Any, kwargs: Any
    ) -> R:
        self._misses = 0
        self._effects = set()
        self._counts.replayed += 1
        program.replays += 1
        stream = cuda.gpu.stream()
        if stream != self._stream:
            if self._stream is not None:
                stream.wait_stream(self._stream)
            self._stream = stream
        copied = self._options.copy_outputs
        if not self._checks.is_due(program):
            return program.replay(leaves, gradients, copied)  # type: ignore[no-any-return]
        output, reason = self._checks.run(
            program,
            lambda: self._function(*args, **kwargs),
            lambda: program.replay(leaves, gradients, copied),
            self.ranks,
        )
        self._counts.checked += self._checks.unchecked is None
        if reason is not None:
            if self._options.on_difference == "raise":
                raise GraphedError(f"{self._name}: {reason}")
            self._give_up(reason)
        return output  # type: ignore[no-any-return]

"""`graphed`: a training or inference step as one CUDA graph, replayed only while nothing changed.

    @graphed
    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

The life of a step, in the order of this file:

1. The first calls run eagerly on a side stream and are watched (`_Watch`): the Python that runs,
   the operations, what they read. `_Reach` finds the Python values that this code can see. What
   torch.compile compiles is watched as it was written, and runs compiled from then on.
2. `_Guard` holds those values, and says later whether all of them are still the same.
3. Two watched calls of one kind that did the same are followed by a capture (`_Program`), which is
   replayed at once: each call is a real step. `_Form` holds the optimizers as a graph needs them,
   `SavedState` what a failure has to undo, and `GraphCapture` captures and repairs.
4. A call whose arguments (the key) and guard match a graph is a replay. Anything else runs eagerly.
5. Where the step communicates with other ranks, all of them capture and replay, or none (`_Ranks`).

It needs torch 2.6 or later and nothing else, so this file can be copied beside a script.
`LAUNCHSCOPE_GRAPHED=0` in the environment turns it off.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import dis
import functools
import gc
import glob
import importlib.util
import inspect
import io
import operator
import os
import random
import site
import sys
import threading
import time
import types
import warnings
import weakref
from collections import ChainMap, Counter, UserDict, UserList, defaultdict, deque
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

import torch
from torch.autograd.graph import get_gradient_edge
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle

__all__ = ["EagerReason", "GraphedError", "GraphedStep", "GraphedWarning", "Stats", "graphed"]

P = ParamSpec("P")
R = TypeVar("R")
Tensor = torch.Tensor
Optimizer = torch.optim.Optimizer
OnDifference = Literal["raise", "warn", "eager"]

_SWITCH = "LAUNCHSCOPE_GRAPHED"
_DDP_WARMUP = 11  # DistributedDataParallel rebuilds its buckets in the first calls
_ALIKE = 2  # watched calls of one kind before its capture
_MOST_UNLIKE = 3  # calls of ranks unlike the one before: FSDP2 gathers more after an evaluation
_COMPILED = 2  # more of them, which run and maybe make what torch.compile gives
_MOST_KINDS = 16  # remembered for one key
_UNUSED = 100  # calls without a graph after which another one may take its place
_MOST_MISSES = 30  # watched calls in a row, then the step is taken to be different every time
_MOST_PARTS = 1000  # elements of a container that are looked into
_TOLERANCE = 1e-3  # of an update, for `check_every`


class GraphedWarning(UserWarning):
    """A step, or some of its calls, run eagerly; the text says why and where."""


class GraphedError(RuntimeError):
    """CUDA is unusable after a failed capture, or a replay was not what eager computes."""


def _visible(text: str) -> str:
    """A name or the message of an error, of which no sign acts on a terminal or a log. In another
    encoding than UTF-8, a letter may be the byte of a control."""
    holds_all = "utf" in (getattr(sys.stderr, "encoding", None) or "utf-8").lower()
    shown = (sign.isprintable() and (holds_all or sign.isascii()) for sign in text)
    text = "".join(sign if is_shown else ascii(sign)[1:-1] for sign, is_shown in zip(text, shown))
    return text.replace("##", "#\\x23")  # begins a command of CI services


@dataclass(frozen=True)
class EagerReason:
    """Why calls ran eagerly. `code` is for programs, `message` and `where` are for people."""

    code: str
    message: str
    where: str | None = None  # file:line
    calls: int = 0

    def __post_init__(self) -> None:
        """However it is printed, no name and no error in it acts on what shows it."""
        object.__setattr__(self, "message", _visible(self.message))
        object.__setattr__(self, "where", None if self.where is None else _visible(self.where))

    def __str__(self) -> str:
        return f"{self.message} [{self.where}]" if self.where else self.message


@dataclass(frozen=True)
class Stats:
    """What became of the calls so far; every call is in exactly one of the first three."""

    eager: int
    captured: int
    replayed: int
    checked: int  # replayed calls that were also computed eagerly and compared
    graphs: int  # held now
    reasons: tuple[EagerReason, ...]  # of the eager calls

    def __str__(self) -> str:
        text = f"{self.eager} eager, {self.captured} captured, {self.replayed} replayed"
        told = [reason for reason in self.reasons if reason.code != "warmup"]
        if told:
            most = max(told, key=lambda reason: reason.calls)
            text += f"; {most} ({most.calls} call{'' if most.calls == 1 else 's'})"
        return text


class _RefusedError(Exception):
    """This call cannot be captured."""

    def __init__(self, code: str, message: str, where: str | None = None):
        super().__init__(message)
        self.reason = EagerReason(code, message, where)


@overload
def graphed(step: Callable[P, R], /) -> GraphedStep[P, R]: ...
@overload
def graphed(
    *,
    warmup: int = ...,
    max_graphs: int = ...,
    copy_outputs: bool = ...,
    check_every: int = ...,
    on_difference: OnDifference = ...,
    timeout_s: float = ...,
) -> Callable[[Callable[P, R]], GraphedStep[P, R]]: ...
def graphed(
    step: Callable[..., Any] | None = None,
    /,
    *,
    warmup: int = 3,
    max_graphs: int = 8,
    copy_outputs: bool = True,
    check_every: int = 0,
    on_difference: OnDifference = "raise",
    timeout_s: float = 300.0,
) -> Any:
    """Replay `step` as a CUDA graph wherever that gives what an eager call would give.

    At least `warmup` calls run eagerly first. Up to `max_graphs` graphs are held, one per kind of
    call. With `copy_outputs=False` a call returns the graph's own tensors, which the next call
    overwrites. Every `check_every`-th replay is also computed eagerly from the same state and
    compared; a difference raises GraphedError, warns, or turns the step to eager for good
    (`on_difference`). Raises ValueError for settings out of range.

    Where the step communicates with other ranks, each rank has to call it equally often. A rank
    waits for the others for `timeout_s` at most. Where one replays a call that another one cannot
    replay, the call raises GraphedError, because what they exchange would not fit together.
    """
    if warmup < 0 or max_graphs < 1 or check_every < 0 or timeout_s <= 0:
        raise ValueError(
            "warmup and check_every must be at least 0, max_graphs at least 1, timeout_s above 0"
        )
    if on_difference not in ("raise", "warn", "eager"):
        raise ValueError('on_difference must be "raise", "warn" or "eager"')

    def wrap(function: Callable[..., Any]) -> GraphedStep[Any, Any]:
        return GraphedStep(
            function, warmup, max_graphs, copy_outputs, check_every, on_difference, timeout_s
        )

    return wrap if step is None else wrap(step)


# --- The GPU -------------------------------------------------------------------------------------


# Of torch.backends.cuda and .cudnn, which ask the same and take three times as long.
_KERNEL_FLAGS: list[Callable[[], Any]] = [
    getattr(torch._C, name)
    for name in (
        "_get_cublas_allow_fp16_reduced_precision_reduction",
        "_get_cublas_allow_bf16_reduced_precision_reduction",
        "_get_cublas_allow_fp16_accumulation",
        "_get_flash_sdp_enabled",
        "_get_mem_efficient_sdp_enabled",
        "_get_math_sdp_enabled",
        "_get_cudnn_sdp_enabled",
        "_get_cudnn_enabled",
        "_get_cudnn_benchmark",
        "_get_cudnn_deterministic",
    )
    if hasattr(torch._C, name)  # torch 2.6 has no setting for the accumulation
]


class _Gpu:
    """All that this file asks of CUDA; tests put an emulation in its place."""

    type = "cuda"

    def available(self) -> bool:
        return torch.cuda.is_available()

    def capturing(self) -> bool:
        return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()

    def device(self) -> int:
        return torch.cuda.current_device()

    def stream(self) -> Any:
        return torch.cuda.current_stream()

    def make_stream(self) -> Any:
        return torch.cuda.Stream()

    @contextlib.contextmanager
    def on(self, side: Any) -> Iterator[None]:
        """Inside, work goes to the side stream, ordered with the caller's at both ends.

        Autograd remembers the stream on which a parameter was first used; for a capture that must
        not be the default stream.
        """
        outer = torch.cuda.current_stream()
        side.wait_stream(outer)
        try:
            with torch.cuda.stream(side):
                yield
        finally:
            outer.wait_stream(side)

    def make_pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def begin(
        self, pool: Any, generators: Iterable[torch.Generator], keep_graph: bool = False
    ) -> Any:
        graph = torch.cuda.CUDAGraph(keep_graph=True) if keep_graph else torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        # In the global mode a DataLoader's pin-memory thread breaks a capture.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        return graph

    def end(self, graph: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a part without GPU work is an empty graph
            graph.capture_end()

    def give_up(self, graph: Any, pool: Any) -> None:
        """End a capture that failed.

        torch may leave its allocator as in a capture then: it returns no memory to the GPU, and
        empty_cache() fails.
        """
        with contextlib.suppress(RuntimeError):  # torch has said what is wrong
            self.end(graph)
            return
        device = torch.cuda.current_device()
        name, old = "_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"  # torch 2.6
        with contextlib.suppress(RuntimeError, AttributeError):  # it has ended, or has another name
            getattr(torch._C, name if hasattr(torch._C, name) else old)(device, pool)
            torch._C._cuda_releasePool(device, pool)

    def clear_workspaces(self) -> None:
        """The next product of matrices gets new scratch memory from cuBLAS.

        cuBLAS keeps one piece for each stream. A graph that used the piece of the warm-up would
        write into freed memory as soon as somebody clears it, as torch.compile does for its own
        graphs; made in a capture, it belongs to the graph. Another capture has to make its own.
        """
        torch._C._cuda_clearCublasWorkspaces()

    def generators(self, more: Iterable[torch.Generator]) -> list[torch.Generator]:
        return [torch.cuda.default_generators[torch.cuda.current_device()], *more]

    def clone_state(self, generator: torch.Generator) -> Any:
        return generator.clone_state()

    def repair(self, generator: torch.Generator, clone: Any) -> None:
        generator.graphsafe_set_state(clone)

    def usable(self) -> bool:
        """Whether GPU work runs, random numbers included."""
        try:
            torch.rand(1, device="cuda")
            torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True

    def forget_errors(self) -> None:
        """Raise, and swallow, what a failed capture has left behind.

        CUDA keeps the last error of each thread until a kernel launched there raises it: a library
        that gave up in the capture (cuDNN's search) has not. Backwards may run in another thread.
        """
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device="cuda")
        with (
            contextlib.suppress(RuntimeError),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autograd.set_multithreading_enabled(True),
        ):
            torch.zeros(1, device="cuda", requires_grad=True).neg().backward()

    def make_event(self) -> Any:
        return torch.cuda.Event()

    def pinned(self, tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, pin_memory=True).copy_(tensor)

    def collect(self) -> None:
        """Make room for a graph. Garbage is searched only where memory may be short: with torch
        loaded, that takes a tenth of a second.

        Pinned memory that is free waits for events, which a capture cannot ask.
        """
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        if free < total / 2:
            gc.collect()
            torch.cuda.empty_cache()
        empty_pinned = getattr(torch._C, "_host_emptyCache", None)
        if empty_pinned is not None:
            empty_pinned()

    def host_random_state(self) -> Tensor:
        return torch.get_rng_state()

    def flags(self) -> tuple[Any, ...]:
        """Global settings that choose kernels."""
        return self.precisions(), *[ask() for ask in _KERNEL_FLAGS]

    def precisions(self) -> tuple[Any, ...]:
        """Of float32 products and convolutions.

        torch 2.9 has a setting for each operation. Where a script uses those, the older questions
        are errors; where it uses the older ones, the new settings say the same.
        """
        get = getattr(torch._C, "_get_fp32_precision_getter", None)
        if get is not None:
            return get("generic", "all"), *(get("cuda", what) for what in ("matmul", "conv", "rnn"))
        allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        return torch.get_float32_matmul_precision(), *allowed


_gpu: Any = _Gpu()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """What a collection runs is no part of the step (a library's callback, a finalizer), and a CUDA
    object that it frees would break a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# --- Ranks ---------------------------------------------------------------------------------------

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02  # between two looks at the store
_LISTEN_EVERY_S = 0.2
_MOST_CALLS_APART = 64  # between two attempts to agree on a graph
_MOST_NAMED = 8
_COMMUNICATING = ("c10d", "_c10d_functional", "symm_mem")  # namespaces of operations
_DISTRIBUTED = os.path.join(os.path.dirname(torch.__file__), "distributed", "")


def _is_distributed() -> bool:
    """Whether there is a process group, of one rank or more."""
    distributed: Any = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized())


def several_ranks() -> bool:
    """Whether this process is one of the ranks of a process group."""
    distributed: Any = torch.distributed
    return _is_distributed() and bool(distributed.get_world_size() > 1)


class RankAgreement:
    """What all ranks decide together, over the store of their process group.

    The store is no collective: waiting there cannot get mixed up with what the script exchanges,
    every wait has an end, and an outcome is the same for all ranks, however late one of them comes.
    """

    def __init__(self, name: str):
        distributed: Any = torch.distributed
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        store = distributed.distributed_c10d._get_default_store()
        self.store = distributed.PrefixStore(f"launchscope/{name}", store)

    def decide(
        self, topic: str, answer: str, choose: Callable[[list[str]], str], timeout_s: float
    ) -> str:
        """What `choose` makes of the answers of all ranks, in their order.

        "late ..." with the ranks that did not answer in time, or if the store is gone.
        """
        outcome = f"{topic}/outcome"
        answers = [f"{topic}/{rank}" for rank in range(self.size)]
        try:
            self.store.set(answers[self.rank], answer)
            if self.store.add(f"{topic}/count", 1) == self.size:
                found = [self.store.get(key).decode() for key in answers]
                for key in (*answers, f"{topic}/count"):
                    self.store.delete_key(key)
                return self.settle(topic, choose(found))
            pause, end = _FIRST_PAUSE_S, time.monotonic() + timeout_s
            while not self.store.check([outcome]):
                if time.monotonic() > end:
                    missing = [r for r, key in enumerate(answers) if not self.store.check([key])]
                    return self.settle(topic, f"late {_named_ranks(missing)}")
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            return str(self.store.get(outcome).decode())
        except RuntimeError:  # the process that holds the store has ended
            return "late the store of the process group"

    def settle(self, topic: str, outcome: str) -> str:
        """The outcome of a topic: this one, unless there was one before."""
        return str(self.store.compare_set(f"{topic}/outcome", "", outcome).decode())


def _named_ranks(ranks: list[int]) -> str:
    listed = ", ".join(map(str, ranks[:_MOST_NAMED])) + (", ..." if ranks[_MOST_NAMED:] else "")
    return f"rank{'' if len(ranks) == 1 else 's'} {listed}"


def _common(answers: list[str]) -> str:
    """What all ranks do in a call: the same graph or the same capture, otherwise eager."""
    for rank, answer in enumerate(answers):
        if answer.startswith("never"):
            return f"never rank {rank}: {answer.removeprefix('never').strip()}"
    if len(set(answers)) == 1:
        return answers[0]
    eager = [rank for rank, answer in enumerate(answers) if answer == "eager"]
    return f"eager {_named_ranks(eager or [0])}"


def _all_done(answers: list[str]) -> str:
    """Whether all ranks have captured."""
    failed = [(rank, answer) for rank, answer in enumerate(answers) if answer != "done"]
    return f"failed rank {failed[0][0]}: {failed[0][1]}" if failed else "done"


_names_of_ranks: Counter[str] = Counter()


class _Ranks:
    """What the ranks do in each call of one step that communicates.

    They vote, by the number of the call. As long as they have agreed on a graph, no replay asks:
    only a rank that cannot replay it asks again, and then does nothing before all have answered. A
    thread answers for a rank that has replayed that call already. In eager calls they vote ever
    more rarely. All of this depends only on the outcomes, so it is the same on all ranks.
    """

    def __init__(self, name: str, warmup: int, timeout_s: float):
        _names_of_ranks[name] += 1
        self.agreement = RankAgreement(f"graphed/{name}/{_names_of_ranks[name]}")
        self._timeout_s = timeout_s
        self.calls = 0
        self._standing: str | None = None  # the replay that was agreed upon
        self._since = 0  # the call of that
        self._next_vote, self._gap = warmup, 1
        self._parts = 0
        self._over = False
        # The listener's.
        self._lock = threading.Lock()
        self._forced = self._voting = 0  # calls
        self._broken: str | None = None
        self._stopped = threading.Event()
        self._listener: threading.Thread | None = None

    def turn(self, answer: str, why: str) -> str:
        """What all ranks do in this call, where this one would do `answer`, because of `why`.

        "eager ..." names the ranks that want that. Raises GraphedError if another rank has replayed
        this call.
        """
        with self._lock:
            self.calls += 1
            call, standing = self.calls, self._standing
            if self._broken is not None:
                raise GraphedError(self._broken)
            if self._over or (standing is None and call < self._next_vote):
                return "eager"
            if standing == answer and call != self._forced:
                return answer
            self._voting = call
        topic = f"call {call}"
        if standing is not None and call != self._forced:
            self.agreement.settle(f"after {self._since}", str(call))  # for the listeners
        outcome = self.agreement.decide(topic, answer, _common, self._timeout_s)
        kind, _, rest = outcome.partition(" ")
        self._parts, self._standing = 0, None
        if kind in ("late", "replayed") and standing is not None:
            text = f"{rest} has replayed it" if kind == "replayed" else f"{rest} gave no answer"
            raise GraphedError(
                f"call {call} cannot be replayed on rank {self.agreement.rank} ({why}), and "
                f"{text}; {_SWITCH}=0 runs all ranks eagerly"
            )
        if kind == "late":
            kind, outcome = "never", f"never {rest} gave no answer"
        self._over = kind == "never"
        if kind == "replay":
            self._stand(outcome)
        else:
            self._next_vote = call + self._gap
            self._gap = min(2 * self._gap, _MOST_CALLS_APART)
        return outcome

    def confirm(self, answer: str) -> None:
        """In a capture: go on if all ranks could record this part. Raises _OtherRankError."""
        topic = f"call {self.calls} part {self._parts}"
        self._parts += 1
        outcome = self.agreement.decide(topic, answer, _all_done, self._timeout_s)
        kind, _, rest = outcome.partition(" ")
        if kind == "late":
            raise GraphedError(f"in a capture of all ranks {rest} gave no answer")
        if kind != "done":
            raise _OtherRankError(rest)

    def interrupted(self) -> None:
        topic = f"call {self.calls} part {self._parts}"
        with contextlib.suppress(RuntimeError):
            self.agreement.settle(topic, f"failed rank {self.agreement.rank}: interrupted")

    def captured(self) -> str:
        """The name of the graph of this call, which all ranks have made, and replay from now on."""
        self._stand(f"replay {self.calls}")
        return f"replay {self.calls}"

    def ask_again(self) -> None:
        """Vote in the next call."""
        self._standing, self._next_vote = None, self.calls + 1

    def _stand(self, standing: str) -> None:
        with self._lock:
            self._standing, self._since, self._gap = standing, self.calls, 1
        if self._listener is None:
            self._listener = threading.Thread(target=self._listen, daemon=True)
            self._listener.start()

    def _listen(self) -> None:
        """Answer a rank that cannot replay a call: not yet replayed here, or too late."""
        store = self.agreement.store
        with contextlib.suppress(RuntimeError):  # the store is gone
            while not self._stopped.wait(_LISTEN_EVERY_S):
                since, key = self._since, f"after {self._since}/outcome"
                if self._standing is None or not store.check([key]):
                    continue
                call = int(store.get(key))
                with self._lock:
                    if self._since != since or self._voting == call:
                        continue
                    if self.calls < call:
                        self._forced = call
                        continue
                rank = self.agreement.rank
                if self.agreement.settle(f"call {call}", f"replayed rank {rank}") == (
                    f"replayed rank {rank}"
                ):
                    self._broken = f"another rank could not replay call {call}; this one has"
                return

    def stop(self) -> None:
        self._stopped.set()
        if self._listener is not None and self._listener is not threading.current_thread():
            self._listener.join(2 * _LISTEN_EVERY_S)


class _OtherRankError(Exception):
    """Another rank could not capture."""


@atexit.register
def _free_shared_graphs() -> None:
    """Free the graphs that communicate with other ranks.

    NCCL ends a communicator only when no graph uses it: `destroy_process_group()` and the end of
    the process would wait for ever.
    """
    for step in list(_all_steps):
        if step._ranks is not None:
            step.reset()


@functools.cache
def _free_before_shutdown() -> None:
    """`destroy_process_group()` calls one of these for each group."""
    distributed: Any = torch.distributed
    group, module = distributed.ProcessGroup, distributed.distributed_c10d
    for owner, name in ((group, "shutdown"), (group, "abort"), (module, "_shutdown_backend")):
        if hasattr(owner, name):
            setattr(owner, name, _freeing_first(getattr(owner, name)))


def _freeing_first(end: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(end)
    def call(group: Any, *args: Any, **kwargs: Any) -> Any:
        _free_shared_graphs()
        if group is torch.distributed.group.WORLD:
            for step in list(_all_steps):
                step._leave_ranks()
        return end(group, *args, **kwargs)

    return call


# --- Where code is -------------------------------------------------------------------------------


@functools.cache
def _owners() -> dict[str, str]:
    """Whose code a folder or a file holds. An installer leaves metadata beside its packages."""
    main, own = sys.modules.get("__main__"), {}
    script = None if getattr(main, "__spec__", None) else getattr(main, "__file__", None)
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    installed += [p for p in sys.path if glob.glob(os.path.join(glob.escape(p), "*.dist-info"))]
    if script is not None:
        own = {os.path.dirname(script): "person"}
    own |= dict.fromkeys(installed, "installed") | {os.path.dirname(os.__file__): "python"}
    own |= {os.path.dirname(torch.__file__): "torch", __file__: "torch"}
    own |= {} if script is None else {script: "person"}
    spellings = (os.path.abspath, os.path.realpath)
    return {spelled(path): owner for path, owner in own.items() for spelled in spellings}


@functools.cache
def _owner(file: str) -> str:
    """Where torch, Python and the installed packages lie decides, not what a folder is called."""
    if not os.path.isabs(file):  # generated
        return "python" if file.startswith("<frozen") else "person"
    paths = map(Path, (os.path.normpath(file), os.path.realpath(file)))
    folders = chain.from_iterable((path, *path.parents) for path in paths)
    return next((_owners()[f] for f in map(str, folders) if f in _owners()), "person")


def _is_torch(file: str) -> bool:
    return _owner(file) == "torch"


def _is_installed(file: str) -> bool:
    return _owner(file) == "installed"


def _is_library(file: str) -> bool:
    """Code of torch, of Python, or ours: what it does is not the step's doing."""
    return _owner(file) in ("python", "torch")


def _line(frame: types.FrameType | None) -> str | None:
    """The innermost line that is neither torch's nor Python's own."""
    while frame is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _raising_line(error: BaseException) -> str | None:
    found, trace = None, error.__traceback__
    while trace is not None:
        if not _is_library(trace.tb_frame.f_code.co_filename):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _line_of_name(codes: Iterable[types.CodeType], name: str) -> str | None:
    """The first line that stores to `name`, or else the first that uses it."""
    used = None
    for code in codes:
        lines = dict(dis.findlinestarts(code))
        line: int | None = code.co_firstlineno
        for instruction in dis.get_instructions(code):
            line = lines.get(instruction.offset) or line
            if instruction.argval == name:
                if instruction.opname.startswith(("STORE", "DELETE")):
                    return f"{code.co_filename}:{line}"
                used = used or f"{code.co_filename}:{line}"
    return used


# --- 1. What the step can see --------------------------------------------------------------------

_PLAIN = frozenset(
    (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
)
_KEPT = object()


def _is_plain(value: Any) -> bool:
    """Immutable, and compared by value."""
    kind = type(value)
    return kind in _PLAIN or (kind is tuple and all(map(_is_plain, value))) or _is_number(value)


def _is_number(value: Any) -> bool:
    """Of NumPy: what `betas[epoch]` gives."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.number, numpy.bool_))


_NAMES_A_GLOBAL = ("_GLOBAL", "_GLOBALS", "LOAD_NAME")  # instructions


# These take the names of attributes, or give something that does.
_BY_TEXT = {"getattr", "__getattribute__", "vars", "__dict__", "attrgetter", "asdict"}
_WHOLE = {"asdict", "astuple", "fields", "vars", "__dict__"}  # read all fields, and name none


def _texts(code: types.CodeType) -> Iterator[str]:
    """Those that may name attributes."""
    by_text = not _BY_TEXT.isdisjoint(code.co_names)
    # `case Stage(kind="joint")`, and `case {"kind": "joint"}` of what vars() may have given.
    patterns = ("MATCH_CLASS", "MATCH_KEYS") if by_text else ("MATCH_CLASS",)
    for names, pattern in pairwise(dis.get_instructions(code)):
        if pattern.opname in patterns and isinstance(names.argval, tuple):
            yield from (name for name in names.argval if isinstance(name, str))
    for text in code.co_consts if by_text else ():
        if isinstance(text, str):
            yield from (text, *text.split("."))  # attrgetter("loss.weight")


@functools.cache
def _matches_positions(code: types.CodeType) -> bool:
    """Whether it has a pattern like `Stage("joint")`, whose class says what that reads."""
    return any(i.opname == "MATCH_CLASS" and i.arg for i in dis.get_instructions(code))


def _match_args(kind: type) -> frozenset[str]:
    return frozenset[str]().union(*(vars(b).get("__match_args__", ()) for b in kind.__mro__))


@functools.cache
def _names(code: types.CodeType) -> frozenset[str]:
    """Of globals and attributes, in nested functions too, and in texts that may name attributes."""
    nested = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return frozenset((*code.co_names, *_texts(code))).union(*map(_names, nested))


@functools.cache
def _global_names(code: types.CodeType) -> frozenset[str]:
    """Of globals alone: `optimizer.step()` does not read a counter that is called `step`."""
    nested = (c for c in code.co_consts if isinstance(c, types.CodeType))
    own = (i.argval for i in dis.get_instructions(code) if i.opname.endswith(_NAMES_A_GLOBAL))
    return frozenset(own).union(*map(_global_names, nested))


def _looks_up_method(instruction: dis.Instruction) -> bool:
    """Of what is called at once, so that it is no plain value."""
    flagged = sys.version_info >= (3, 12) and instruction.opname == "LOAD_ATTR"
    return instruction.opname == "LOAD_METHOD" or (flagged and bool((instruction.arg or 0) & 1))


@functools.cache
def _read_names(code: types.CodeType) -> frozenset[str]:
    """Of `_names`, those that are not only looked up to be called: `self.optimizer.step()` does not
    read a counter that is called `self.step`."""
    nested = (c for c in code.co_consts if isinstance(c, types.CodeType))
    read = (i.argval for i in dis.get_instructions(code) if not _looks_up_method(i))
    own = {*code.co_names}.intersection(read)
    return frozenset((*own, *_texts(code))).union(*map(_read_names, nested))


class _Codes:
    """Functions' code, each with its globals. Python takes that of two files for equal where it is
    the same text on the same lines."""

    def __init__(self) -> None:
        self._known: dict[tuple[types.CodeType, str], dict[str, Any]] = {}
        self.by_getters: set[str] = set()  # attributes that an attrgetter reads: it has no code

    def add(self, code: types.CodeType, space: dict[str, Any]) -> None:
        self._known[code, code.co_filename] = space

    def __contains__(self, code: types.CodeType) -> bool:
        return (code, code.co_filename) in self._known

    def __iter__(self) -> Iterator[types.CodeType]:
        return (code for code, _ in self._known)

    def items(self) -> Iterator[tuple[types.CodeType, dict[str, Any]]]:
        return ((code, space) for (code, _), space in self._known.items())


@functools.cache
def _imports(code: types.CodeType) -> list[tuple[str, tuple[str, ...]]]:
    """The modules that a function imports, and the names that it takes from them; a relative one
    begins with dots. A text may be one where code asks for a module by text."""
    found: list[tuple[str, tuple[str, ...]]] = []
    level: Any = None
    taken: Any = None
    for instruction in dis.get_instructions(code):  # level and names are loaded in front
        if instruction.opname == "IMPORT_NAME":
            name = str(instruction.argval)
            if isinstance(taken, tuple):
                found.append(("." * level + name, taken))
            else:  # `import a.b` gives a, of which the code then reads b
                found.append((name.partition(".")[0], ()))
        elif instruction.opname != "EXTENDED_ARG":
            level, taken = taken, instruction.argval
    names = {*code.co_names}
    if names & {"import_module", "__import__"} or names >= {"sys", "modules"}:
        found += [(text, ()) for text in code.co_consts if isinstance(text, str)]
    return found


def _file_of(module: Any) -> str:
    """Where a module is; a package without a file of its own is a folder."""
    file: str | None = getattr(module, "__file__", None)
    return file or next(iter(getattr(module, "__path__", None) or ()), "<frozen")


@functools.cache
def _names_of_class(kind: type) -> frozenset[str]:
    """What the methods of a module's class use, beside what only makes or describes the module."""
    apart = {"__init__", "__setstate__", "reset_parameters", "extra_repr"}
    return frozenset[str]().union(
        *(
            _names(method.__code__)
            for base in kind.__mro__
            if base not in (torch.nn.Module, object)
            for name, method in vars(base).items()
            if isinstance(method, types.FunctionType) and name not in apart
        )
    )


class _Slots:
    """The attributes of an object without a dictionary, as one."""

    def __init__(self, owner: Any):
        self._owner = owner

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self._owner, key)
        except AttributeError:
            raise KeyError(key) from None

    def get(self, key: str) -> Any:
        return getattr(self._owner, key, None)


@functools.cache
def _slot_names(kind: Any) -> frozenset[str]:
    return frozenset(
        name
        for base in kind.__mro__
        for name, part in vars(base).items()
        if isinstance(part, types.MemberDescriptorType) and base.__module__ != "builtins"
    )


class _Content:
    """A NumPy array as a container of its bytes, which are compared by value."""

    def __init__(self, array: Any):
        self._array = array

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[bytes]:
        return iter((self._array.tobytes(),))


# What holds values for Python to read, beside objects and their attributes.
_CONTAINERS = (list, dict, set, deque, bytearray, array.array, UserDict, UserList, ChainMap,
               types.MappingProxyType, KeysView, ValuesView, ItemsView)  # fmt: skip


# Attributes that only the library reads, by the module of a class.
_UNNAMED = {
    "torch.optim.lr_scheduler": ("_last_lr",),  # get_last_lr()
    "configparser": ("_sections", "_defaults", "_parser"),
    "weakref": ("data",),  # of dictionaries
    "_weakrefset": ("data",),
}
# Of torch.utils.data, for the length of a loader, a sampler or a part of a data set.
_OF_LOADERS = {"dataset", "datasets", "indices", "cumulative_sizes", "tensors", "data_source",
               "sampler", "batch_sampler", "batch_size", "drop_last", "num_samples",
               "_num_samples", "_length"}  # fmt: skip
_ROWS = {"dataset", "data_source", "indices", "tensors"}


def _is_small_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and value.size <= _MOST_PARTS


def _moves(value: Any) -> bool:
    """Whether reading it changes it, which no replay would do."""
    drawn = isinstance(value, random.Random) or type(value).__module__.startswith("numpy.random")
    return drawn or (isinstance(value, Iterator) and not isinstance(value, io.IOBase))


def _function_of(value: Any) -> types.FunctionType | None:
    """That a class has under a name."""
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", getattr(value, "func", value))
    return value if isinstance(value, types.FunctionType) else None


class _Reach:
    """The Python values that the step's code can reach by name.

    `codes` are the functions that ran in watched calls, with their globals. Of an object only those
    attributes count whose names occur in them.
    """

    def __init__(self, function: Any, codes: _Codes, roots: Iterable[Any]):
        self.codes = codes
        self.modules: dict[int, torch.nn.Module] = {}
        self.optimizers: list[Optimizer] = []
        self.scalers: list[Any] = []
        self.slots: dict[tuple[int, str], tuple[Any, str, str]] = {}  # namespace, key, label
        self.cells: list[tuple[Any, str]] = []
        self.containers: list[tuple[Any, str]] = []
        self.objects: list[tuple[Any, str]] = []  # their attributes: a new one may hide another
        self.moving: list[str] = []  # iterators and sources of random numbers
        self.compiled: list[Any] = []  # what torch.compile has given
        self.hooked: list[Any] = []  # what torch keeps hooks of
        self._known: dict[int, Any] = {}
        self._names = frozenset(codes.by_getters).union(*map(_names, codes))
        self._read_names = frozenset(codes.by_getters).union(*map(_read_names, codes))
        own = [code for code in codes if not _is_installed(code.co_filename)]
        self._reads_whole = any(not _WHOLE.isdisjoint(_names(code)) for code in own)
        self._matches_positions = any(map(_matches_positions, codes))
        # Of optimizers that stay eager, too: `p.mul_(1 - group["lr"] * decay)` is in the graph.
        self.reads_groups = "param_groups" in self._names
        for code, space in codes.items():
            for name in _global_names(code).intersection(space):
                self._slot(space, name, name)
            self._visit_imports(code, space)
        self._visit_hooks(torch.nn.modules.module, "torch.nn")
        self._visit_hooks(sys.modules[Optimizer.__module__], "torch.optim")
        self._visit(function, getattr(function, "__name__", "the step"))
        for root in roots:
            self._visit(root, type(root).__name__)

    def _slot(self, space: Any, key: str, label: str) -> None:
        if (id(space), key) not in self.slots:
            self.slots[id(space), key] = space, key, label
            self._visit(space[key], label)

    def _slot_of_rows(self, space: Any, key: str, label: str) -> None:
        """Of its rows, only how many there are is read: a list of dictionaries is not gone
        through."""
        value = space[key]
        if isinstance(value, list | tuple | dict) or type(value).__module__ == "numpy":
            self.slots[id(space), key] = space, key, label
            if id(value) not in self._known:
                self._known[id(value)] = value
                self.objects.append((value, label))
        else:
            self._slot(space, key, label)

    def _visit(self, value: Any, label: str) -> None:
        if _is_plain(value) or id(value) in self._known:
            return
        self._known[id(value)] = value
        if isinstance(value, Tensor):
            self._visit_tensor(value, label)
        elif isinstance(value, Optimizer):
            self._visit_optimizer(value, label)
        elif isinstance(value, torch.amp.GradScaler):
            self.scalers.append(value)
        elif isinstance(value, torch.nn.Module):
            for name, module in value.named_modules():
                self._visit_module(module, f"{label}.{name}".rstrip("."))
        elif isinstance(value, types.FunctionType):
            self._visit_function(value)
        elif isinstance(value, GraphedStep):
            self._visit(value._function, label)
        elif isinstance(value, types.MethodType | types.BuiltinMethodType):
            self._visit(getattr(value, "__func__", None), label)
            self._visit(value.__self__, label)
        elif isinstance(value, functools.partial):
            for part in (value.func, *value.args, value.keywords):
                self._visit(part, label)
            self._visit_names(value, label)
        elif isinstance(value, property):
            self._visit(value.fget, label)
        elif isinstance(value, operator.attrgetter):
            texts: Any = value.__reduce__()[1]
            self.codes.by_getters.update(name for text in texts for name in text.split("."))
        elif isinstance(value, weakref.ref):
            self._visit(value(), label)
        elif isinstance(value, _CONTAINERS):
            self.containers.append((value, label))
            parts = value.values() if isinstance(value, Mapping) else value
            for part in list(parts)[:_MOST_PARTS]:
                self._visit(part, label)
            self._visit_names(value, label)
        elif isinstance(value, tuple | frozenset):
            for part in value:
                self._visit(part, label)
            if type(value) not in (tuple, frozenset):
                self._visit_names(value, label)
        elif _is_small_array(value):
            self.containers.append((_Content(value), label))
            for part in value.flat if value.dtype.hasobject else ():
                self._visit(part, label)
        elif _moves(value):
            self.moving.append(label)
        else:
            self._visit_object(value, label)

    def _visit_hooks(self, owner: Any, label: str) -> None:
        """A hook counts like other values; no code of the step names what one of torch reads."""
        self.hooked.append(owner)
        for space, name in _hook_tables(owner):
            self._slot(space, name, f"{label}.{name}")
            for hook in space[name].values():
                held = getattr(hook, "__dict__", {})
                for key in held if type(hook).__module__.startswith("torch.") else ():
                    self._slot(held, key, f"{label}.{name}.{key}")

    def _visit_tensor(self, tensor: Tensor, label: str) -> None:
        """What the script has put on it: `parameter.mask`."""
        self._visit_hooks(tensor, label)
        space: Any = getattr(tensor, "__dict__", None)
        for key in self._names.intersection(space or ()):
            if key in self._read_names or not _is_plain(space[key]):
                self._slot(space, key, f"{label}.{key}")

    def _visit_optimizer(self, optimizer: Optimizer, label: str) -> None:
        """Its groups and its state have guards of their own."""
        self.optimizers.append(optimizer)
        self._visit_hooks(optimizer, label)
        space, kind = vars(optimizer), type(optimizer)
        # Its own step() is in no graph: a replay runs what that counts.
        step = getattr(inspect.unwrap(kind.step), "__code__", None)
        codes = [code for code in self.codes if code is not step]
        names = frozenset(self.codes.by_getters).union(*map(_names, codes))
        read = frozenset(self.codes.by_getters).union(*map(_read_names, codes))
        for key in names.intersection(space) - {"param_groups", "state", "step"}:
            plain = _is_plain(space[key])
            if key in read if plain else not isinstance(space[key], Tensor):
                self._slot(space, key, f"{label}.{key}")
        if not kind.__module__.startswith("torch."):
            self.objects.append((space, label))
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._visit(parameter, "a parameter")
            for key, value in group.items() if self.reads_groups else ():
                if key != "params":
                    self._visit(value, f"{key} of {kind.__name__}")
        for base in kind.__mro__:
            self._visit(base, base.__name__)

    def _visit_imports(self, code: types.CodeType, space: dict[str, Any]) -> None:
        """What a function imports counts like its globals; nothing is imported here."""
        for name, taken in _imports(code):
            with contextlib.suppress(ImportError):  # outside of a package
                name = importlib.util.resolve_name(name, space.get("__package__"))
            module = sys.modules.get(name)
            if module is None or _is_library(_file_of(module)):
                continue
            if not taken:
                self._slot(sys.modules, name, name)
            held = getattr(module, "__dict__", {})  # anything may stand for a module
            for key in set(taken).intersection(held):
                self._slot(held, key, key)

    def _visit_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        if hasattr(function, "_torchdynamo_orig_callable"):
            self.compiled.append(function)
        if vars(function):
            self._visit_names(function, code.co_name)
        if code not in self.codes and not _is_library(code.co_filename):
            return  # it did not run
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._visit(default, f"a default of {function.__name__}()")
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            with contextlib.suppress(ValueError):  # not filled yet
                self._visit(cell.cell_contents, name)
                self.cells.append((cell, name))

    def _visit_object(self, value: Any, label: str) -> None:
        """A class, a module of Python, or an instance."""
        kind = value if isinstance(value, type) else type(value)
        if isinstance(value, types.ModuleType):
            folder = _file_of(value)
            if _is_library(folder) or _is_installed(folder):
                return
        elif kind.__module__ != "__main__":
            file = getattr(sys.modules.get(kind.__module__), "__file__", None)
            scheduler = isinstance(value, torch.optim.lr_scheduler.LRScheduler)
            if not scheduler and (file is None or _is_library(file)):
                if not isinstance(value, type):  # `args` of argparse, say
                    self._visit_names(value, label)
                return
        space = self._visit_names(value, label)
        if isinstance(value, type):
            for key, part in list(space.items()):
                if (function := _function_of(part)) is not None and function.__code__ in self.codes:
                    self._slot(space, key, f"{label}.{key}")
                    self._visit(function, key)
            self._visit(type(value), label)
        if not isinstance(value, types.ModuleType):
            for base in kind.__mro__:
                self._visit(base, base.__name__)

    def _positions(self, kind: type) -> frozenset[str]:
        return _match_args(kind) if self._matches_positions else frozenset()

    def _visit_names(self, value: Any, label: str) -> Any:
        """The attributes of an object that the code names; the result is where they are."""
        space: Any = getattr(value, "__dict__", None)
        kind: Any = type(value)
        whole = self._positions(kind)
        if self._reads_whole and is_dataclass(value) and not isinstance(value, type):
            whole |= {field.name for field in fields(value)}
        more = whole.union(*(_UNNAMED.get(base.__module__, ()) for base in kind.__mro__))
        if kind.__module__.startswith("torch.utils.data."):
            more |= _OF_LOADERS
        names = self._names | more if more else self._names
        for key in names.intersection(space or ()):
            # What cannot be called is not what was called.
            if key in self._read_names or key in more or not _is_plain(space[key]):
                if key in _ROWS and key in more - whole:
                    self._slot_of_rows(space, key, f"{label}.{key}")
                else:
                    self._slot(space, key, f"{label}.{key}")
        if space is not None and not isinstance(value, types.ModuleType | types.FunctionType):
            self.objects.append((space, label))
        slotted = _Slots(value)
        for key in names & _slot_names(kind):
            if hasattr(value, key):
                self._slot(slotted, key, f"{label}.{key}")
        return space

    def _visit_module(self, module: torch.nn.Module, label: str) -> None:
        if id(module) in self.modules:
            return
        self._known[id(module)] = self.modules[id(module)] = module
        space = vars(module)
        self.objects.append((space, label))
        if space.get("_compiled_call_impl") is not None:
            self.compiled.append(space["_compiled_call_impl"])
        if "_orig_mod" in module._modules:
            self.compiled.append(module)
        kind: Any = type(module)
        self._visit(kind, kind.__name__)
        named = self._names | self._positions(kind) | _names_of_class(kind)
        own = (named | {"forward"}).intersection(space)
        for key in own - {"_parameters", "_buffers", "_modules"}:
            self._slot(space, key, f"{label}.{key}")
        self._visit_hooks(module, label)
        for table in (module._parameters, module._buffers):
            for key, tensor in table.items():
                self._visit(tensor, f"{label}.{key}")
        if "require_backward_grad_sync" in space:  # no_sync() of DistributedDataParallel
            self._slot(space, "require_backward_grad_sync", f"{label}.require_backward_grad_sync")


def _makes_graphs(compiled: Any) -> bool:
    """Whether code of torch.compile makes CUDA graphs of its own. It may, unless Inductor made it,
    whose settings say: those at the call of torch.compile, and those of now."""
    ask = getattr(compiled, "get_compiler_config", None)
    settings = None if ask is None else ask()
    of_all = sys.modules.get("torch._inductor.config")
    return (
        not isinstance(settings, dict)
        or bool(settings.get("triton.cudagraphs", True))
        or (of_all is not None and bool(of_all.triton.cudagraphs))
    )


_HOOKS_OF_TENSORS = [name for name in dir(Tensor) if name.endswith("_hooks")]


def _hook_tables(*owners: Any) -> Iterator[tuple[Any, str]]:
    """The attributes that hold hooks, of modules, tensors and optimizers, and of modules of Python
    for the hooks of all modules and of all optimizers."""
    for owner in owners:
        space: Any = _Slots(owner) if isinstance(owner, Tensor) else vars(owner)
        names = space if isinstance(space, dict) else _HOOKS_OF_TENSORS
        for name in [name for name in names if name.endswith("_hooks")]:
            if (table := space.get(name)) and isinstance(table, dict):
                yield space, name


def _code_of(function: Any) -> types.CodeType | None:
    return getattr(getattr(function, "__func__", function), "__code__", None)


def _place(code: types.CodeType | None) -> str | None:
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


# --- 2. The guard --------------------------------------------------------------------------------

_contents = operator.attrgetter("cell_contents")
_grad = operator.attrgetter("grad")
_requires_grad = operator.attrgetter("requires_grad")
_description = operator.attrgetter("shape", "requires_grad")
_pointer: Callable[[Tensor], int] = Tensor.data_ptr
# In torch with CUDA, for its own graphs: whether tensors are at these addresses, asked in C++.
_all_at: Callable[..., bool] | None = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)
_END = (object(),)  # behind a table: what moves from the end of one to the next is seen


class _DifferentError(Exception):
    """Two tensors that are not the same object were about to be compared."""


class _NoComparison(TorchFunctionMode):
    """Inside, comparing tensors by value, which would run on the GPU, is an error."""

    def __torch_function__(self, *_: Any) -> Any:
        raise _DifferentError


_no_comparison = _NoComparison()


class _Same:
    """Equal to this very object alone."""

    def __init__(self, value: Any):
        self._value = value

    def __hash__(self) -> int:
        return id(self._value)

    def __eq__(self, other: object) -> bool:
        return other is self._value or (isinstance(other, _Same) and other._value is self._value)


def _by_identity(values: Iterable[Any]) -> list[Any]:
    """For `_identical`: what Python would compare by value gets a `_Same`."""
    plain: Any = object.__eq__
    return [v if isinstance(v, Tensor) or type(v).__eq__ is plain else _Same(v) for v in values]


def _identical(now: list[Any], then: list[Any]) -> bool:
    """Whether these are the same objects; `then` is from `_by_identity`.

    Python passes over equal parts of two lists twenty times as fast as `map` calls `is`.
    """
    try:
        with _no_comparison:
            return now == then
    except _DifferentError:
        return False


def _equal(now: Any, then: Any) -> bool:
    """One and the same object, or equal values of one immutable kind."""
    return now is then or (
        type(now) is type(then) and _is_plain(now) and _is_plain(then) and bool(now == then)
    )


class _Guard:
    """What a graph depends on beside its arguments, as it was; `holds` compares in C.

    `structure` are the containers of parameters, buffers, modules and optimizer state: once they
    hold something else, the graph can never serve again. Values of the script may come back.
    """

    def __init__(
        self,
        reach: _Reach,
        inside: Iterable[Optimizer],
        moving: set[Any],
        attributes: Iterable[tuple[int, str]] = (),
    ):
        self.modules = list(reach.modules.values())
        # Names that the step binds to new tensors are what it gives, and no condition of a graph.
        self.attributes = [reach.slots[at] for at in attributes if at in reach.slots]
        self.optimizers = list(inside)
        # One that is not enabled passes everything on, and has no state.
        self.scalers = [scaler for scaler in reach.scalers if scaler.is_enabled()]
        tables = [t for m in self.modules for t in (m._parameters, m._buffers, m._modules)]
        structure: list[tuple[Any, str]] = [
            (t.values(), "the model's parameters, buffers or modules") for t in tables if t
        ]
        slots = [slot for at, slot in reach.slots.items() if at not in attributes]
        self._own = len(slots)
        for o in self.optimizers:
            kind = type(o).__name__
            parts = (o.state.values(), *(s.values() for s in o.state.values()), o.param_groups,
                     *(group["params"] for group in o.param_groups))  # fmt: skip
            structure += [(part, f"the state of {kind}") for part in parts]
            slots += [
                (group, key, f"{key} of {kind}")
                for number, group in enumerate(o.param_groups)
                for key, value in group.items()
                if (key in ("params", *o.defaults) or _is_plain(value))
                and (id(o), number, key) not in moving
            ]
        groups: list[tuple[Any, str]] = []  # how many settings they have
        for o in reach.optimizers if reach.reads_groups else ():
            known = {"params", *(o.defaults if o in self.optimizers else ())}
            slots += [
                (group, key, f"{key} of {type(o).__name__}")
                for group in o.param_groups
                for key, value in group.items()
                if not isinstance(value, Tensor) and key not in known
                and not (o in self.optimizers and _is_plain(value))
            ]  # fmt: skip
            groups += [(group, f"a setting of {type(o).__name__}") for group in o.param_groups]
        for scaler in self.scalers:
            slots += [(vars(scaler), name, f"GradScaler.{name}") for name in vars(scaler)
                      if name != "_per_optimizer_states"]  # fmt: skip
        values = [*reach.containers]
        values += [(c.values(), label) for c, label in reach.containers if isinstance(c, Mapping)]
        short = [(view, label) for view, label in values if len(view) <= _MOST_PARTS]
        self._spaces, self._keys = [s[0] for s in slots], [s[1] for s in slots]
        self._cells = [cell for cell, _ in reach.cells]
        self._views = [view for view, _ in short]
        self._structure = [view for view, _ in structure]
        sized = [*reach.objects, *groups]
        self._sized = [*structure, *values, *sized]
        self._sizes = [len(view) for view, _ in self._sized]
        self._values = [view for view, _ in (*values, *sized)]
        self._value_sizes = list(map(len, self._values))
        self._held = self._read()
        self._held_structure = list(chain.from_iterable(self._structure))
        # The names of what is held, for people.
        self._labels = [label for _, _, label in slots] + [label for _, label in reach.cells]
        self._labels += [label for view, label in (*short, *structure) for _ in view]
        self._types = list(map(type, self.modules))
        self._owners = [
            (o, o.state, o.param_groups, [*o.param_groups, *o.state.values()])
            for o in self.optimizers
        ]
        tables += [group["params"] for o in self.optimizers for group in o.param_groups]
        self._tables = [part for table in tables if table for part in (table, _END)]
        self._tables += [state for o in self.optimizers for state in o.state.values()]
        self._tables += [_END, *(table for table in tables if not table)]
        self._parts = _by_identity(gc.get_referents(*self._tables))

        owned = [p for o in self.optimizers for g in o.param_groups for p in g["params"]]
        held = [p for m in self.modules for p in m._parameters.values() if p is not None]
        self.parameters: list[Tensor] = list({id(p): p for p in (*held, *owned)}.values())
        self._requires_grad = list(map(_requires_grad, self.parameters))
        self.buffers = [b for m in self.modules for b in m._buffers.values() if b is not None]
        state = [
            t
            for o in self.optimizers
            for s in (*o.state.values(), *o.param_groups)
            for t in s.values()
            if isinstance(t, Tensor)
        ]
        state += [v for v in self._held if isinstance(v, Tensor)]
        located = [t for t in (*self.parameters, *self.buffers, *state) if _address(t)]
        self._sharded = [t for t in located if hasattr(t, "_local_tensor")]
        self._shards = list(map(_local, self._sharded))
        self.tensors = list(map(_memory, located))
        self._pointers = [t.data_ptr() for t in self.tensors]
        self._numbers = list(range(len(self.tensors)))
        self._hooked, self._next_hook = reach.hooked, RemovableHandle.next_id
        self._hook_tables = len(list(_hook_tables(*self._hooked)))
        self._plain_tensors = [v for v in self._held if isinstance(v, Tensor)]
        self._described = list(map(_description, self._plain_tensors))
        self._own_tensors = set(map(id, self._plain_tensors))
        self._entered = self._entry()

    def _read(self) -> list[Any]:
        return [
            *map(operator.getitem, self._spaces, self._keys),
            *map(_contents, self._cells),
            *chain.from_iterable(self._views),
        ]

    def alive(self) -> bool:
        """Whether the model and the optimizers still consist of the same tensors and objects.

        The garbage collector's function is the fastest way into thousands of dictionaries: it gives
        their values in order, and a list's parts.
        """
        return (
            all(
                o.state is state
                and o.param_groups is groups
                and len(groups) + len(state) == len(parts)
                and all(map(operator.is_, chain(groups, state.values()), parts))
                for o, state, groups, parts in self._owners
            )
            and _identical(gc.get_referents(*self._tables), self._parts)
            and list(map(type, self.modules)) == self._types
            and all(map(operator.is_, map(_local, self._sharded), self._shards))
            and self._in_place()
        )

    def _in_place(self) -> bool:
        if _all_at is not None:
            return _all_at(self.tensors, self._pointers, self._numbers)
        return list(map(_pointer, self.tensors)) == self._pointers

    def holds(self) -> bool:
        """Whether nothing that the graph depends on is different."""
        try:
            now = self._read()
        except (KeyError, ValueError):  # a name is gone
            return False
        return (
            list(map(len, self._values)) == self._value_sizes
            and (all(map(operator.is_, now, self._held)) or all(map(_equal, now, self._held)))
            and list(map(_requires_grad, self.parameters)) == self._requires_grad
            and list(map(_description, self._plain_tensors)) == self._described
            and self.hooks_hold()
            and self.alive()
        )

    def hooks_hold(self) -> bool:
        """Whether none was added where there was none, which raises the number compared first."""
        if self._next_hook != RemovableHandle.next_id:
            if len(list(_hook_tables(*self._hooked))) != self._hook_tables:
                return False
            self._next_hook = RemovableHandle.next_id
        return True

    def _entry(self) -> list[Any]:
        """What Python may ask about the names that the step binds before it does so: whether there
        is a tensor, of which shape, and whether it is one of the script's own."""
        return [
            (v.shape, v.stride(), v.dtype, v.device, id(v) if id(v) in self._own_tensors else 0)
            if isinstance(v := space.get(key, _KEPT), Tensor)
            else v if _is_plain(v) else _Same(v)
            for space, key, _ in self.attributes
        ]  # fmt: skip

    def entered_alike(self) -> bool:
        return not self.attributes or self._entry() == self._entered

    def rebound(self) -> dict[tuple[int, str], tuple[Any, Tensor]]:
        """The names that hold another tensor than they did, with their namespaces."""
        found = {}
        for space, key, old in list(zip(self._spaces, self._keys, self._held))[: self._own]:
            if not isinstance(old, Tensor) or not isinstance(space, dict):
                continue
            new = space.get(key)
            if isinstance(new, Tensor) and new is not old:
                found[id(space), key] = space, new
        return found

    def difference(self) -> str | None:
        """The name of something that has changed; None if nothing has."""
        for (view, label), size in zip(self._sized, self._sizes):
            if len(view) != size:
                return label
        try:
            now = [*self._read(), *chain.from_iterable(self._structure)]
        except (KeyError, ValueError):
            return "a name"
        for label, new, old in zip(self._labels, now, [*self._held, *self._held_structure]):
            if not _equal(new, old):
                return label
        if list(map(_requires_grad, self.parameters)) != self._requires_grad:
            return "requires_grad"
        if list(map(_description, self._plain_tensors)) != self._described:
            return "the shape of a tensor"
        if not self.hooks_hold():
            return "a hook"
        return None if self.alive() else "the memory of the model"


# --- The watched call ----------------------------------------------------------------------------

_SYNC_OPS = {"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"}
_DYNAMIC_OPS = {"aten::nonzero", "aten::argwhere", "aten::masked_select", "aten::bincount"}
_COPY_OPS = {"aten::copy_", "aten::_to_copy", "aten::to", "aten::_copy_from"}
_INDEX_OPS = {"aten::index", "aten::index_put", "aten::index_put_"}
_IMPORT = getattr(importlib, "_bootstrap")._find_and_load.__code__  # noqa: B009 - it has no type
_CLOCKS = {"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns",
           "process_time", "process_time_ns", "thread_time", "sleep"}  # fmt: skip
_LOOKS = {"stat", "lstat", "access", "listdir", "scandir", "open", "urandom"}


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


_local = operator.attrgetter("_local_tensor")


def _memory(tensor: Tensor) -> Tensor:
    """What is in the memory of this process: of a DTensor its own shard, also on its way."""
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        for name in ("_local_tensor", "elem"):
            tensor = getattr(tensor, name, tensor)
    return tensor


def _memory_at(tensor: Tensor) -> int:
    """Where the memory begins of which a tensor is a view; 0 if it has none."""
    tensor = _memory(tensor)
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0


def _identity(tensor: Tensor) -> int:
    """Of its storage, whatever becomes of its memory."""
    try:
        return int(_memory(tensor).untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return -1


def _address(tensor: Tensor) -> int:
    """Of its storage's memory; 0 without one."""
    try:
        return _memory(tensor).untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse tensors and the like
        return 0


class _Watch(TorchDispatchMode):
    """One eager call under observation: its Python, its operations, what they read."""

    supports_higher_order_operators = True

    def __init__(self, arguments: Iterable[Any], codes: _Codes):
        super().__init__()  # type: ignore[no-untyped-call]
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        self.arguments = set(map(_address, tensors))
        self.plain = [a for a in tensors if not a.requires_grad]
        self._codes = codes
        self._device = _gpu.device()
        self._depth = 0  # within an optimizer's step, whose numbers are not the step's
        self._importing = 0  # within an import, which happens once and is no part of the step
        self.new_code = False
        self.effects: dict[str, str | None] = {}  # what it did, with its line
        self.blockers: list[tuple[str, str | None]] = []
        self.external: dict[int, tuple[Tensor, str | None]] = {}  # by address, the first use
        self.generators: dict[int, torch.Generator] = {}
        self.optimizers: dict[int, Optimizer] = {}
        self.scalers: dict[int, Any] = {}
        self.modules: dict[int, torch.nn.Module] = {}
        self._freed: set[Any] = set()  # autograd nodes that a backward of the step has freed
        self.backward = self.communicates = False
        self.fills = False  # it changed a list or a dictionary that it was given
        self.signature = 0  # of all operations with their plain arguments
        self.ops = 0
        self._made: set[int] = set()
        self._references: list[StorageWeakRef] = []  # so that no identity is used twice
        self._calls: dict[types.CodeType, Callable[[dict[str, Any]], None]] = {
            torch.nn.Module._call_impl.__code__: self._on_module,
            inspect.unwrap(torch.autograd.backward).__code__: self._on_backward,
            torch.autograd.grad.__code__: self._on_backward,
            torch.amp.GradScaler.scale.__code__: self._on_scaler,
            torch.amp.GradScaler.step.__code__: self._on_scaler_step,
        }
        for seed in (torch.random.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all):
            self._calls[inspect.unwrap(seed).__code__] = self._on_seed

    def run(self, call: Callable[[], Any]) -> Any:
        """The result of the call, in which nothing is compiled. Its errors come through."""
        numpy = sys.modules.get("numpy")
        host, python = _gpu.host_random_state(), random.getstate()
        of_numpy = None if numpy is None else numpy.random.get_state()
        hooks = (
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        )
        previous = sys.getprofile()
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(_no_collection())
                # Compiled code would run eagerly under a dispatch mode, from then on. torch also
                # compiles by itself, in each call of torch.cond.
                stack.enter_context(torch.compiler.set_stance("force_eager"))
                # In this thread, whose Python is watched, and not in one of autograd's own.
                stack.enter_context(torch.autograd.set_multithreading_enabled(False))
                stack.enter_context(self)
                sys.setprofile(self._on_python)
                result = call()
        finally:
            sys.setprofile(previous)
            for hook in hooks:
                hook.remove()
        if python != random.getstate():
            self._effect("draws from random", "random")
        if numpy is not None and of_numpy is not None:
            now = numpy.random.get_state()
            if now[2:] != of_numpy[2:] or (now[1] != of_numpy[1]).any():
                self._effect("draws from numpy.random", "random")
        if not bool((host == _gpu.host_random_state()).all()):
            self._effect("draws random numbers of torch on the CPU", "torch")
        return result

    def made(self, tensor: Tensor) -> bool:
        """Whether an operation of the call made it."""
        return _identity(tensor) in self._made

    def _effect(self, what: str, name: str) -> None:
        self.effects.setdefault(what, _line_of_name(self._codes, name))

    # Python.

    def _on_python(self, frame: types.FrameType, event: str, arg: Any) -> None:
        """Each call of a Python or a built-in function in this thread."""
        code = frame.f_code
        if code is _IMPORT and event in ("call", "return"):
            self._importing += 1 if event == "call" else -1
        elif self._importing:
            self.new_code = self.new_code or code.co_name == "<module>"
        elif event == "call":
            self.communicates = self.communicates or code.co_filename.startswith(_DISTRIBUTED)
            if code in self._calls:
                self._calls[code](frame.f_locals)
            elif code not in self._codes and not _is_library(code.co_filename):
                self._codes.add(code, frame.f_globals)
                self.new_code = True
        elif event == "return":
            if code is torch.amp.GradScaler.step.__code__:
                self._depth -= 1
        elif event == "c_call":
            name = getattr(arg, "__name__", "")
            if name in ("_cuda_synchronize", "synchronize") and code.co_filename != __file__:
                text = "the host waits for the GPU (synchronize())"
                self.blockers.append((text, _line(frame)))
            owner = getattr(arg, "__self__", None)
            if name in ("tolist", "numpy") and self._depth == 0 and isinstance(owner, Tensor):
                text = f"the values of a tensor are read on the host ({name}())"
                self.blockers.append((text, _line(frame)))
            what = _impure(arg, name)
            if what is not None and not _by_torch(frame):
                self.effects.setdefault(f"calls {what}", _line(frame))

    def _on_module(self, local: dict[str, Any]) -> None:
        self.modules[id(local["self"])] = local["self"]

    def _on_backward(self, local: dict[str, Any]) -> None:
        self.backward = True
        if local.get("retain_graph") or local.get("create_graph"):
            return
        roots: Any = local.get("tensors", local.get("outputs"))
        left = [root.grad_fn for root in ([roots] if isinstance(roots, Tensor) else roots)]
        while left:
            node = left.pop()
            if node is not None and node not in self._freed:
                self._freed.add(node)
                left += [function for function, _ in node.next_functions]

    def is_spent(self, node: Any) -> bool:
        """Whether no backward can go through this autograd node anymore: one of the step has freed
        it, or all to which it leads. A mean of losses, say, that is only shown."""
        seen: set[Any] = set()
        left = [node]
        while left:
            node = left.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            leaf = hasattr(node, "variable")  # which another backward reaches again
            if node in self._freed and not leaf:
                continue
            if leaf or not node.next_functions:
                return False
            left += [function for function, _ in node.next_functions]
        return True

    def _on_scaler(self, local: dict[str, Any]) -> None:
        self.scalers[id(local["self"])] = local["self"]

    def _on_scaler_step(self, local: dict[str, Any]) -> None:
        self._depth += 1  # its .item() is no blocker: an optimizer that needs it stays eager

    def _on_seed(self, local: dict[str, Any]) -> None:
        """A replay would go on drawing where the last one ended."""
        self._effect("calls manual_seed()", "manual_seed")

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.optimizers[id(optimizer)] = optimizer
        self._depth += 1
        if any(given is not None for given in (*args[1:], *kwargs.values())):
            text = "an optimizer's step() gets a closure"
            self.blockers.append((text, _line(sys._getframe(1))))

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._depth -= 1

    # Operations.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            return _run_unseen(func, self, *args, **kwargs)
        leaves = pytree.tree_leaves((args, kwargs))
        inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if self._depth == 0:
            self._look_at(func, args, kwargs, leaves, inputs)
        result = func(*args, **kwargs)
        known = set(map(_identity, inputs))
        for tensor in _tensors(result):
            made = _identity(tensor)
            if made not in known and made not in self._made:
                self._made.add(made)
                if _address(tensor):
                    self._references.append(StorageWeakRef(tensor.untyped_storage()))
        return result

    def _look_at(
        self, func: Any, args: Any, kwargs: Any, leaves: list[Any], inputs: list[Tensor]
    ) -> None:
        name = func._schema.name
        self.ops += 1
        self.communicates = self.communicates or func.namespace in _COMMUNICATING
        devices = {tensor.device.index for tensor in inputs if tensor.device.type == _gpu.type}
        elsewhere = devices - {None, self._device}
        described = [
            (*leaf.shape, leaf.dtype) if isinstance(leaf, Tensor)
            else repr(leaf) if _is_plain(leaf) else type(leaf)
            for leaf in leaves
        ]  # fmt: skip
        self.signature = hash((self.signature, str(func), *described))
        where = _line(sys._getframe(1))
        problem = self._blocker(name, args, kwargs, inputs)
        if elsewhere:
            problem = f"it works on device {min(elsewhere)}, and the current device is another one"
        if problem:
            self.blockers.append((problem, where))
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args):
                written = argument.alias_info is not None and argument.alias_info.is_write
                if written and any(_address(t) in self.arguments for t in _tensors(value)):
                    self.effects.setdefault("writes into an argument", where)
        generator = kwargs.get("generator")
        if generator is not None and generator.device.type == _gpu.type:
            self.generators[id(generator)] = generator
        for tensor in inputs:
            address = _address(tensor)
            if address and _identity(tensor) not in self._made:
                if tensor.device.type != _gpu.type and name not in _COPY_OPS:
                    text = f"a tensor in host memory is read ({name.removeprefix('aten::')})"
                    self.blockers.append((text, where))
                if address not in self.arguments:
                    self.external.setdefault(address, (tensor.detach(), where))

    def _blocker(self, name: str, args: Any, kwargs: Any, inputs: list[Tensor]) -> str | None:
        """What a capture cannot contain, in the words that a person would search for."""
        if name in _COPY_OPS:
            return self._copy_blocker(name, args, kwargs)
        if not any(tensor.device.type == _gpu.type for tensor in inputs):
            return None
        if name in _SYNC_OPS:
            return "a value is read on the host (.item(), if tensor:, ...)"
        if name in _INDEX_OPS:
            masks = [i for i in args[1] or () if isinstance(i, Tensor)]
            scalar = name != "aten::index" and len(args) > 2 and args[2].numel() == 1
            if not scalar and any(i.dtype in (torch.bool, torch.uint8) for i in masks):
                return "a boolean mask makes a shape that depends on values"
        dynamic = name in _DYNAMIC_OPS or name.startswith(("aten::unique", "aten::_unique"))
        if name == "aten::repeat_interleave" and kwargs.get("output_size") is None:
            dynamic = True
        short = name.removeprefix("aten::")
        return f"the shape of {short}() depends on values" if dynamic else None

    def _copy_blocker(self, name: str, args: Any, kwargs: Any) -> str | None:
        if name == "aten::copy_":
            target, source = args[0].device.type, args[1]
            waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        else:
            source, wanted = args[0], kwargs.get("device")
            target = source.device.type if wanted is None else torch.device(wanted).type
            waits = not kwargs.get("non_blocking", False)
        if source.device.type == target or _gpu.type not in (source.device.type, target):
            return None
        if target != _gpu.type:
            return "a tensor is copied to the host"
        if waits:
            return "a tensor is copied to the GPU; do that before the call, or non_blocking=True"
        if _address(source) not in self.arguments and not source.is_pinned():
            return "a tensor is copied to the GPU from memory that is not pinned"
        return None


def _run_unseen(operator: Any, watch: _Watch, *args: Any, **kwargs: Any) -> Any:
    """What torch does in a mode for an operator such as `torch.cond`."""
    text = f"{operator.name()} is an operator of torch that runs others unseen"
    watch.blockers.append((text, _line(sys._getframe(1))))
    return operator(*args, **kwargs)


if not hasattr(TorchDispatchMode, "supports_higher_order_operators"):  # in older versions
    for _operator in torch._ops._higher_order_ops.values():
        _operator.py_impl(_Watch)(functools.partial(_run_unseen, _operator))


def _impure(function: Any, name: str) -> str | None:
    """What a built-in function does that no replay would do again; None if nothing is known."""
    module = getattr(function, "__module__", None)
    if module == "builtins" and name in ("print", "input"):
        return f"{name}()"
    if module in ("io", "_io") and name == "open":
        return "open()"
    if module == "time" and name in _CLOCKS:
        return f"time.{name}()"
    if module == os.name and name in _LOOKS:
        return f"os.{name}()"
    owner = getattr(function, "__self__", None)
    if isinstance(owner, io.IOBase) and name.startswith("write"):
        return "write() of a file"
    if isinstance(owner, type) and name in ("now", "utcnow", "today"):
        return f"{owner.__name__}.{name}()" if owner.__module__ == "datetime" else None
    return None


def _by_torch(frame: types.FrameType | None) -> bool:
    """Whether code of torch stands between this call and the script."""
    while frame is not None and _is_library(frame.f_code.co_filename):
        if _is_torch(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


# --- 3. Optimizers -------------------------------------------------------------------------------

# Optimizers of torch whose numbers can all be on the GPU: with `capturable`, or with `fused`.
_NAMES = ("Adadelta", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
_CAPTURABLE = {getattr(torch.optim, name) for name in _NAMES}
_FUSED = {torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW}


def _hypers(optimizers: Iterable[Optimizer]) -> dict[Any, Any]:
    """Plain hyperparameters by optimizer, number of the group, and name."""
    return {
        (id(optimizer), number, name): value
        for optimizer in optimizers
        for number, group in enumerate(optimizer.param_groups)
        for name, value in group.items()
        if name in optimizer.defaults and _is_plain(value)
    }


def _fits(optimizer: Optimizer, moving: set[Any], scaled: bool) -> bool:
    """Whether a graph can contain the optimizer's step; otherwise it runs eagerly after the graph.

    A graph has plain numbers in it as constants. Of those that move only a learning rate can be a
    tensor, and only some classes take one. Under a GradScaler the optimizer must be able to skip a
    step without asking the host, which the fused ones can.
    """
    kind, groups = type(optimizer), optimizer.param_groups
    names = {name for owner, _, name in moving if owner == id(optimizer)}
    fused = kind in _FUSED and all(group.get("fused") for group in groups)
    if names - {"lr"} or any(group.get("differentiable") for group in groups):
        return False
    if fused or scaled:
        return fused
    if kind is torch.optim.SGD:
        return not names and not any(isinstance(group["lr"], Tensor) for group in groups)
    on_host = any(
        isinstance(value, Tensor) and value.device.type != _gpu.type and name != "step"
        for state in optimizer.state.values()
        for name, value in state.items()
    )
    return kind in _CAPTURABLE and not on_host


class _Form:
    """Optimizers in the form that a graph contains, while `with` lasts.

    Outside, a learning rate is what the script has put there and step counts are on the CPU. The
    counts are views of one tensor, so that one addition keeps them right after a replay.
    """

    def __init__(self, optimizers: Iterable[Optimizer], moving: set[Any]):
        self._swaps: list[tuple[dict[str, Any], str, Any]] = []
        self._theirs: list[Any] = []
        self._rates: list[tuple[dict[str, Any], Tensor]] = []
        self._rate_values: list[Any] = []
        self._optimizers = list(optimizers)
        for optimizer in self._optimizers:
            for number, group in enumerate(optimizer.param_groups):
                device = next((p.device for p in group["params"]), torch.device(_gpu.type))
                on_host = isinstance(group["lr"], Tensor) and group["lr"].device != device
                if (id(optimizer), number, "lr") in moving or on_host:
                    rate = torch.zeros((), dtype=torch.float32, device=device)
                    self._rates.append((group, rate))
                    self._rate_values.append(None)
                    self._swaps.append((group, "lr", rate))
                if group.get("capturable") is False:
                    self._swaps.append((group, "capturable", True))
        self._groups = [group for o in self._optimizers for group in o.param_groups]
        counted = self._counted()
        self.on_host = torch.tensor([float(s["step"]) for s in counted], dtype=torch.float32)
        self.on_device: Tensor | None = None
        if counted:
            self.on_device = self.on_host.to(_gpu.type, copy=True)
            for index, state in enumerate(counted):
                state["step"] = self.on_host[index]
                self._swaps.append((state, "step", self.on_device[index]))
        self._counts = [(state, state["step"]) for state in counted]
        self._synced = self.on_host.clone()

    def _counted(self) -> list[dict[str, Any]]:
        """The states whose step count is on the CPU."""
        return [
            state
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            if group.get("capturable") is False and not group.get("fused")
            for state in (optimizer.state.get(p, {}) for p in group["params"])
            if isinstance(state.get("step"), Tensor)
        ]

    def serves(self, optimizers: list[Optimizer]) -> bool:
        """Whether these are the optimizers, and hold what they held."""
        groups, counted = [g for o in optimizers for g in o.param_groups], self._counted()
        return (
            optimizers == self._optimizers
            and list(map(id, groups)) == list(map(id, self._groups))
            and list(map(id, counted)) == [id(state) for state, _ in self._counts]
            and all(state["step"] is count for state, count in self._counts)
        )

    def __enter__(self) -> None:
        self._theirs = [table[key] for table, key, _ in self._swaps]
        for table, key, ours in self._swaps:
            table[key] = ours

    def __exit__(self, *error: Any) -> None:
        for (table, key, _), theirs in zip(self._swaps, self._theirs):
            table[key] = theirs

    def refresh(self) -> None:
        """Put the learning rates and counts of this moment where the graph reads them."""
        for index, (group, rate) in enumerate(self._rates):
            value = float(group["lr"])
            if value != self._rate_values[index]:
                rate.fill_(value)
                self._rate_values[index] = value
        if self.on_device is not None and not torch.equal(self.on_host, self._synced):
            self.on_device.copy_(self.on_host)  # the script, or an eager call, has counted
            self._synced.copy_(self.on_host)

    def count(self, increments: Tensor) -> None:
        """After a replay, whose counts on the GPU are ahead by the same."""
        if self.on_device is not None:
            self.on_host.add_(increments)
            self._synced.add_(increments)

    def tensors(self) -> list[Tensor]:
        counts = [] if self.on_device is None else [self.on_device]
        return [*(rate for _, rate in self._rates), *counts, self.on_host]


# --- Saved state ---------------------------------------------------------------------------------


def _clone(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.preserve_format)


def _whole(tensor: Tensor) -> Tensor:
    """All elements of the tensor's storage, in one dimension."""
    tensor = _memory(tensor)
    storage = tensor.untyped_storage()
    flat: Any = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    whole: Tensor = flat.set_(storage, 0, (storage.nbytes() // tensor.element_size(),))
    return whole


def _scaler_state(scaler: Any) -> dict[int, dict[str, Any]]:
    """What a GradScaler knows about this iteration: which optimizer is unscaled, found_inf."""
    return {
        key: {k: dict(v) if isinstance(v, dict) else v for k, v in state.items()}
        for key, state in scaler._per_optimizer_states.items()
    }


def _same_leaves(one: Any, other: Any) -> bool:
    first, second = pytree.tree_leaves(one), pytree.tree_leaves(other)
    return len(first) == len(second) and all(map(operator.is_, first, second))


def _set_scaler_state(scaler: Any, state: dict[int, dict[str, Any]]) -> None:
    if state or scaler._per_optimizer_states:
        fresh: Any = defaultdict(scaler._per_optimizer_states.default_factory)
        fresh.update({key: dict(value) for key, value in state.items()})
        scaler._per_optimizer_states = fresh


class SavedState:
    """What a step may change, to put back: objects, and the values of `tensors`.

    `tables` are the dictionaries of the optimizers and of their state, because a GradScaler leaves
    its scale as an attribute of a fused optimizer whose step() fails. `generators` are those beside
    the device's own; None saves no generator.
    """

    def __init__(
        self,
        parameters: list[Tensor],
        tables: Iterable[dict[Any, Any]] = (),
        scalers: Iterable[Any] = (),
        generators: Iterable[torch.Generator] | None = (),
        tensors: Iterable[Tensor] = (),
    ):
        self._parameters = parameters
        self._gradients = list(map(_grad, parameters))
        self._scalers = [(scaler, _scaler_state(scaler)) for scaler in scalers]
        self._tables = [(table, dict(table)) for table in tables]
        known = [] if generators is None else _gpu.generators(generators)
        self._generators = [(generator, generator.get_state()) for generator in known]
        # Whole storages, because several tensors may share one.
        self.live = list({_address(t): _whole(t) for t in tensors if _address(t)}.values())
        self.copies = list(map(_clone, self.live))

    def restore(self) -> None:
        for table, entries in self._tables:
            table.clear()
            table.update(entries)
        with torch.no_grad():
            for live, copy in zip(self.live, self.copies):
                live.copy_(copy)
        for parameter, gradient in zip(self._parameters, self._gradients):
            parameter.grad = gradient
        for scaler, kept in self._scalers:
            _set_scaler_state(scaler, kept)
        for generator, position in self._generators:
            generator.set_state(position)


# --- A capture -----------------------------------------------------------------------------------


class GraphCapture:
    """How everything in this project captures: on a side stream, after a warm-up on that stream.

    `with` prepares, and after an error ends what was recording. Inside, `begin` and `end` stand
    around the work of each graph; a capture runs nothing, so replay a graph as soon as it is there.
    After an error, `repair` makes the process as it was.
    """

    def __init__(
        self,
        pool: Any = None,
        generators: Iterable[torch.Generator] = (),
        *,
        keep_graph: bool = False,
    ):
        """Waits for the GPU. The memory of all graphs is in `pool`, by default one of their own."""
        _gpu.collect()
        self.pool = _gpu.make_pool() if pool is None else pool
        self._generators = list(generators)
        self._keep_graph = keep_graph
        self._clones = [(g, _gpu.clone_state(g)) for g in _gpu.generators(self._generators)]
        self._graph: Any = None  # the one that is recorded
        self._prepared = contextlib.ExitStack()

    @property
    def recording(self) -> bool:
        return self._graph is not None

    def __enter__(self) -> GraphCapture:
        self._prepared.enter_context(_no_collection())
        # A graph must not read what autocast has cached outside of it, nor the other way around.
        torch.clear_autocast_cache()
        self._prepared.callback(torch.clear_autocast_cache)
        return self

    def __exit__(self, *error: Any) -> None:
        with self._prepared:
            if self._graph is not None:
                _gpu.give_up(self._graph, self.pool)
                self._graph = None
                _gpu.clear_workspaces()

    def begin(self) -> None:
        _gpu.clear_workspaces()
        self._graph = _gpu.begin(self.pool, self._generators, self._keep_graph)

    def end(self) -> Any:
        """The graph of the work since `begin`. Raises what torch raises if that failed."""
        graph = self._graph
        _gpu.end(graph)
        _gpu.clear_workspaces()
        self._graph = None
        return graph

    def repair(self, saved: SavedState) -> bool:
        """After an error and the end of the `with`: put `saved` back; False if no GPU work runs."""
        _gpu.forget_errors()
        if not _gpu.usable():
            self._repair_generators()
            if not _gpu.usable():
                return False
        saved.restore()
        return True

    def _repair_generators(self) -> None:
        """After some failures a generator still counts on a capture, and no GPU work runs.

        It gets a new inner state, which no graph made so far knows: they are given up.
        """
        for generator, clone in self._clones:
            _gpu.repair(generator, clone)
        for kind in chain.from_iterable(step._all_kinds() for step in list(_all_steps)):
            kind.release()


# Autograd has one AccumulateGrad node for each parameter while any graph refers to it. It runs on
# the stream on which it was made, and a capture cannot wait for the default stream.


def _has_node(parameter: Tensor) -> bool:
    """Whether some graph keeps the node of a parameter alive: what is written on it stays then."""
    if not parameter.requires_grad or type(parameter) not in (Tensor, torch.nn.Parameter):
        return False
    with torch.inference_mode(False):
        first: Any = get_gradient_edge(parameter).node
        first.metadata["graphed"] = True
        del first
        again: Any = get_gradient_edge(parameter).node
        return again.metadata.pop("graphed", False) is True


def _forget_node(parameter: Tensor) -> None:
    """The next graph makes a new node, because torch takes the old one for that of another dtype.
    Graphs that exist keep theirs, which accumulate into the same gradient."""
    data = parameter.data
    other = torch.float32 if data.dtype == torch.float64 else torch.float64
    parameter.data = torch.empty(0, dtype=other, device=data.device)
    parameter.data = data


# --- A captured call -----------------------------------------------------------------------------


@dataclass
class _Part:
    """A graph, where it leaves gradients and scalers, and maybe a call that stays eager."""

    graph: Any
    gradients: list[Any]  # _KEPT where it makes no new one
    scalers: list[tuple[Any, dict[int, dict[str, Any]]]]
    then: Callable[[], Any] | None = None


class _Program:
    """One captured call of the step: graphs, and between them the optimizers that stay eager."""

    def __init__(
        self, step: GraphedStep[Any, Any], kind: _Kind, leaves: list[Any], capture: GraphCapture
    ):
        self._step, self._kind, self._capture = step, kind, capture
        self.form = step._form
        self.makes = kind.makes
        self.pool: Any = capture.pool
        self.external = kind.external  # held, because the graph reads and writes this memory
        self.carried: dict[int, Tensor] = {}  # gradients at entry, by the number of the parameter
        self.parts: list[_Part] = []
        self._at_start: tuple[list[Tensor | None], Any] = [], ()  # gradients, scalers
        self._leaves = list(leaves)
        self.targets: list[Tensor] = []
        self.sources: list[int] = []
        self._done: Any = None
        seen: dict[int, Tensor] = {}
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                if id(leaf) not in seen:
                    on_gpu = leaf.device.type == _gpu.type
                    if not on_gpu and self._done is None:
                        self._done = _gpu.make_event()
                    seen[id(leaf)] = _clone(leaf) if on_gpu else _gpu.pinned(leaf)
                    self.targets.append(seen[id(leaf)])
                    self.sources.append(index)
                self._leaves[index] = seen[id(leaf)]
        self.form.refresh()
        counts = self.form.on_device
        self._before = None if counts is None else counts.clone()
        self._increments = torch.zeros_like(self.form.on_host)

    def capture(self, spec: Any) -> None:
        """Run the step's Python once. Raises what that raises; undoing it is the caller's business.

        Each part but the last is replayed as soon as it is there, because an eager call follows.
        """
        step = self._step
        args, kwargs = _unflatten(spec, iter(self._leaves))
        with contextlib.ExitStack() as stack:
            stack.enter_context(_gpu.on(step._side()))
            stack.enter_context(self._capture)
            if not self._kind.compiles:
                # As in the calls that were watched: what cuDNN has found for a convolution, it
                # knows in the thread that searched, and a capture cannot search.
                stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            self.form.refresh()
            stack.enter_context(self.form)
            self._intercept(stack)
            self._begin()
            output = step._function(*args, **kwargs)
            self._end(None)
        self._keep_outputs(output)

    def _intercept(self, stack: contextlib.ExitStack) -> None:
        """Optimizers that stay eager end a part. What a GradScaler steps for them does, too."""
        step = self._step
        scalers = [s for s in self._kind.guard.scalers if s.is_enabled()]

        def eager(run: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._capture.recording:  # within that of an optimizer around it
                return run(*args, **kwargs)
            self._end(functools.partial(run, *args, **kwargs))
            self.form.__exit__()
            bound = self._bound()
            try:
                result = run(*args, **kwargs)
            finally:
                self.form.__enter__()
                self._begin()
            if _tensors(result) or not all(map(operator.is_, self._bound(), bound)):
                # A replay would give what this call has made.
                text = "a step() that stays outside of the graph makes a tensor that others see"
                raise _RefusedError("optimizer", text, _line(sys._getframe(1)))
            return result

        def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self._capture.recording and optimizer not in self._kind.guard.optimizers:
                text = f"the step() of {type(optimizer).__name__} cannot be taken out of the graph"
                raise _RefusedError("optimizer", text, _line(sys._getframe(1)))

        if step._outside:
            for owner in scalers or step._outside:
                _around(stack, owner, "step", eager)
                if owner in scalers:
                    _around(stack, owner, "update", eager)
        stack.callback(register_optimizer_step_pre_hook(before_step).remove)

    def _bound(self) -> list[Any]:
        """What the names hold that the step binds to new tensors."""
        return [space.get(key) for space, key, _ in self._kind.guard.attributes]

    def _begin(self) -> None:
        guard = self._kind.guard
        self._at_start = list(map(_grad, guard.parameters)), list(map(_scaler_state, guard.scalers))
        self._capture.begin()

    def _end(self, then: Callable[[], Any] | None) -> None:
        graph, guard = self._capture.end(), self._kind.guard
        before, states = self._at_start
        gradients = [_KEPT if g is b else g for g, b in zip(map(_grad, guard.parameters), before)]
        scalers = [
            (scaler, state)
            for scaler, old in zip(guard.scalers, states)
            if not _same_leaves(state := _scaler_state(scaler), old)
        ]
        self.parts.append(_Part(graph, gradients, scalers, then))
        if then is not None:
            self._step._confirm("done")
            graph.replay()  # a capture runs nothing

    def _keep_outputs(self, output: Any) -> None:
        """Refuses an output that the watched calls did not announce."""
        leaves, self._output_spec = pytree.tree_flatten(output)
        if _plain_outputs(leaves, self._output_spec) != self._kind.outputs:
            raise _RefusedError("output", "it returns something else in each call")
        own = {id(p) for p in self._kind.guard.tensors}
        arguments = {id(leaf): index for index, leaf in enumerate(self._leaves)
                     if isinstance(leaf, Tensor)}  # fmt: skip
        self._outputs = [
            _Argument(arguments[id(leaf)]) if id(leaf) in arguments
            else leaf.detach() if isinstance(leaf, Tensor) and id(leaf) not in own
            else leaf
            for leaf in leaves
        ]  # fmt: skip
        # A view of a parameter is the script's own memory: a copy would lose what is written to it.
        guarded = {_memory_at(t) for t in self._kind.guard.tensors} - {0}
        self._made = {
            id(o) for o in self._outputs
            if isinstance(o, Tensor) and id(o) not in own and _memory_at(o) not in guarded
        }  # fmt: skip
        self._attributes = [
            (space, key, space[key].detach()) for space, key, _ in self._kind.guard.attributes
        ]

    def run_last(self) -> None:
        """The rest of the captured call's own work."""
        self.parts[-1].graph.replay()
        if self._before is not None and self.form.on_device is not None:
            self._increments = (self.form.on_device - self._before).to("cpu")
            self.form.count(self._increments)
        if self._done is not None:
            self._done.record()

    def replay(self, leaves: list[Any], current: list[Tensor | None]) -> Any:
        """One step. `current` are the gradients that the parameters have now."""
        if self._done is not None:
            self._done.synchronize()  # the previous replay has read the host inputs
        for index, target in zip(self.sources, self.targets):
            target.copy_(leaves[index], non_blocking=True)
        self.form.refresh()
        for number, kept in self.carried.items():
            gradient = current[number]
            if gradient is not None and gradient is not kept:
                kept.copy_(_memory(gradient).detach())
        parameters = self._kind.guard.parameters
        for part in self.parts:
            part.graph.replay()
            if not _identical(current, part.gradients):
                for parameter, gradient in zip(parameters, part.gradients):
                    if gradient is not _KEPT:
                        parameter.grad = gradient
            for scaler, state in part.scalers:
                _set_scaler_state(scaler, state)
            if part.then is not None:
                part.then()
                current = list(map(_grad, parameters))
        self.form.count(self._increments)
        if self._done is not None:
            self._done.record()
        return self.outputs(leaves)

    def outputs(self, leaves: list[Any]) -> Any:
        """What the call returns: copies, the caller's own arguments, or the model's tensors. Names
        that the step binds get copies, too."""
        copied = self._step._copy_outputs
        copies: dict[Any, Tensor] = {}

        def copy(tensor: Tensor) -> Tensor:
            """One copy of a tensor that has two names."""
            at = _geometry(tensor)
            if at not in copies:
                copies[at] = _clone(tensor)
            return copies[at]

        for space, key, tensor in self._attributes:
            space[key] = copy(tensor) if copied else tensor
        values = [
            leaves[output.index] if isinstance(output, _Argument)
            else copy(output) if copied and id(output) in self._made
            else output
            for output in self._outputs
        ]  # fmt: skip
        return pytree.tree_unflatten(values, self._output_spec)

    def release(self) -> None:
        for part in self.parts:
            part.graph.reset()
        self.parts, self._outputs, self.external, self._attributes = [], [], [], []
        self.carried = {}


def _geometry(tensor: Tensor) -> Any:
    """Equal for tensors that are one and the same memory, seen in the same way."""
    if tensor.layout != torch.strided or type(tensor) is not Tensor:
        return id(tensor)
    return tensor.data_ptr() or id(tensor), tensor.shape, tensor.stride(), tensor.dtype


@dataclass(frozen=True)
class _Argument:
    """An output that is an argument."""

    index: int


def _form_of(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _plain_outputs(leaves: list[Any], spec: Any) -> list[Any]:
    """What two calls of one kind return alike: everything but the values of tensors."""
    described = [(leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return [spec, *described]


def _around(stack: contextlib.ExitStack, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Until the stack closes, calls of `owner.name` go through `around(original, ...)`."""
    original, own = getattr(owner, name), name in vars(owner)
    setattr(owner, name, functools.wraps(original)(functools.partial(around, original)))
    stack.callback(*((setattr, owner, name, original) if own else (delattr, owner, name)))


# --- The arguments -------------------------------------------------------------------------------


def _flatten(value: Any, leaves: list[Any]) -> Any:
    """The form of nested lists, dictionaries and tuples; what they hold goes to `leaves`."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind, tuple([_flatten(part, leaves) for part in value])
    if kind is dict:
        return kind, tuple(value), tuple([_flatten(part, leaves) for part in value.values()])
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind, kind._make, tuple([_flatten(part, leaves) for part in value])
    leaves.append(value)
    return None


def _unflatten(form: Any, leaves: Iterator[Any]) -> Any:
    if form is None:
        return next(leaves)
    parts = [_unflatten(part, leaves) for part in form[-1]]
    if form[0] is dict:
        return dict(zip(form[1], parts))
    return form[-2](parts)  # type of the sequence, or how a named tuple is made


def _key(leaves: list[Any], spec: Any) -> Any:
    """All that belongs to the call itself. Raises _RefusedError if no graph can serve it."""
    parts: list[Any] = []
    known: dict[int, int] = {}  # each tensor gets one copy, also of memory that others share
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            if type(leaf) is not Tensor or leaf.layout != torch.strided:
                text = f"an argument is a {type(leaf).__name__}, not a plain strided tensor"
                raise _RefusedError("argument", text)
            if leaf.requires_grad and torch.is_grad_enabled():
                raise _RefusedError("argument", "an argument requires a gradient")
            first = known.setdefault(id(leaf), index)
            parts.append((leaf.shape, leaf.stride(), leaf.dtype, leaf.device, first))
        elif type(leaf).__module__ == "numpy" and not _is_plain(leaf):
            raise _RefusedError("argument", "an argument is a NumPy array, whose values may change")
        else:
            parts.append((type(leaf), leaf) if _is_plain(leaf) else _Same(leaf))
    autocast = torch.is_autocast_enabled(_gpu.type)
    return (
        tuple(parts),
        spec,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        (torch.get_autocast_dtype(_gpu.type), torch.is_autocast_cache_enabled()) if autocast else 0,
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        torch._C._len_torch_function_stack(),  # modes that may put anything in a function's place
        _gpu.flags(),
        _gpu.device(),
    )


def _new_in(key: Any, before: Any) -> str | None:
    """The first argument of a call that is another one than in the call with the key `before`."""
    if before is None or before[1] != key[1]:
        return None
    for now, then in zip(key[0], before[0]):
        if now != then:
            shaped = isinstance(now, tuple) and isinstance(now[0], torch.Size)
            return "the shape of an argument" if shaped else "an argument that is no tensor"
    return None


# --- 4. The step ---------------------------------------------------------------------------------


class _Kind:
    """Calls with one key and one guard: watched, then refused or captured."""

    def __init__(self, guard: _Guard):
        self.guard = guard
        self.watched = 0  # calls without an effect
        self.effects: set[str] = set()  # of watched calls
        self.unlike = 0
        self.used = 0  # the number of the last call
        self.refusal: EagerReason | None = None
        self.program: _Program | None = None
        self.compiles = False  # it runs what torch.compile gives
        self.compiled = 0  # calls of that which are still to come
        self.agreed = "replay"  # the name of the program among ranks
        self.signature: Any = None  # of the operations of the last watched call
        self.outputs: list[Any] = []
        self.external: list[Tensor] = []  # read, and neither an argument nor guarded
        self.addresses: set[int] = set()  # of these
        self.uses_gradients = True
        self.makes: frozenset[int] = frozenset()  # indices of gradients that it replaces
        self.read_gradients: set[int] = set()  # indices of those whose values at entry it reads
        self._at_entry = [g is None for g in map(_grad, guard.parameters)]
        self._pointers: dict[int, int] = {}

    def holds(self) -> list[Tensor | None] | None:
        """The gradients that a replay needs to know, if a call now is of this kind."""
        if not self.guard.entered_alike() or not self.guard.holds():
            return None
        now = list(map(_grad, self.guard.parameters)) if self.uses_gradients else []
        if not self._gradients_hold(now):
            return None
        return [] if self.program is None else now  # an eager call must be free to free them

    def _gradients_hold(self, now: list[Tensor | None]) -> bool:
        if not self.uses_gradients:
            return True
        program = self.program
        if program is not None and self._loops and _identical(now, program.parts[-1].gradients):
            return True
        return self._fit(now)

    def _fit(self, now: list[Tensor | None]) -> bool:
        """Whether gradients are None where they were, and at the addresses that the graph reads, or
        like those that it gets copies of."""
        if [g is None for g in now] != self._at_entry:
            return False
        carried = {} if self.program is None else self.program.carried
        pointers = {i: _memory(g).data_ptr() for i in self._pointers if (g := now[i]) is not None}
        return pointers == self._pointers and all(
            (g := now[i]) is not None and _form_of(_memory(g)) == _form_of(kept)
            for i, kept in carried.items()
        )

    def captured(self, program: _Program, entry: list[Tensor | None]) -> None:
        self.program = program
        read = {i: _memory(g) for i in self.read_gradients if (g := entry[i]) is not None}
        # What the backward of another model has added to, the step then replaces: the graph reads a
        # copy of it. A gradient that stays is the script's own, and the graph writes to it.
        program.carried = {i: gradient for i, gradient in read.items() if i in self.makes}
        self._pointers = {i: g.data_ptr() for i, g in read.items() if i not in self.makes}
        last = program.parts[-1].gradients
        self._loops = not any(g is _KEPT for g in last) and self._fit(last)

    def release(self) -> None:
        if self.program is not None:
            self.program.release()
            self.program = None


# The key of a call, its kind, what it should do ("watch", "capture", "replay" or why it is eager),
# and the gradients that a replay needs to know.
_Turn: TypeAlias = tuple[Any, _Kind | None, str | EagerReason, list[Any]]
_running = threading.local()
_all_steps: weakref.WeakSet[GraphedStep[Any, Any]] = weakref.WeakSet()


class GraphedStep(Generic[P, R]):
    """A step that is replayed as a CUDA graph where that is safe. Made by `graphed`."""

    def __init__(
        self,
        function: Callable[P, R],
        warmup: int,
        max_graphs: int,
        copy_outputs: bool,
        check_every: int,
        on_difference: OnDifference,
        timeout_s: float,
    ):
        functools.update_wrapper(self, function)
        self._function = function
        self._name = _visible(getattr(function, "__qualname__", type(function).__name__))
        self._codes = _Codes()
        code = _code_of(function)
        self._where = _place(code)
        if code is not None:
            self._codes.add(code, function.__globals__)
        self._warmup, self._max_graphs = warmup, max_graphs
        self._copy_outputs, self._check_every = copy_outputs, check_every
        self._on_difference, self._timeout_s = on_difference, timeout_s
        self._ranks: _Ranks | None = None
        self._eager = self._captured = self._replayed = self._checked = self._misses = 0
        self._reasons: Counter[EagerReason] = Counter()
        self._warned: set[str] = set()
        self._never: EagerReason | None = None
        self._thread: int | None = None
        self._sides: dict[int, Any] = {}  # the side stream of each device
        self._stream: Any = None
        self._kinds: dict[Any, list[_Kind]] = {}
        self._roots: dict[int, Any] = {}  # objects that watched calls have used
        self._effects: set[str] = set()  # of the last watched call
        self._effects_at = 0  # the number of replays by then
        self._inside: list[Optimizer] = []
        self._outside: list[Optimizer] = []
        self._form = _Form((), set())
        self._moving: set[Any] = set()  # hyperparameters that have changed
        # Names that the step binds to new tensors, with the namespaces, whose identity they hold.
        self._attributes: dict[tuple[int, str], Any] = {}
        self._tried: set[Any] = set()  # learning rates that were tensors in a capture that failed
        self._forgets = False  # autograd nodes that the script made elsewhere, before a capture
        self._hypers: dict[Any, Any] = {}
        self._generators: list[torch.Generator] = []
        if os.environ.get(_SWITCH, "").strip() == "0":
            self._never = EagerReason("disabled", f"{_SWITCH}=0 is set")
        _all_steps.add(self)

    @property
    def stats(self) -> Stats:
        """What became of the calls so far, and why some were eager."""
        reasons = tuple(
            EagerReason(r.code, r.message, r.where, calls) for r, calls in self._reasons.items()
        )
        counts = (self._eager, self._captured, self._replayed, self._checked, len(self._programs()))
        return Stats(*counts, reasons)

    def reset(self) -> None:
        """Free all graphs. Calls of each kind are watched again before the next capture."""
        for kind in self._all_kinds():
            kind.release()
        self._kinds.clear()
        self._misses = 0

    def _leave_ranks(self) -> None:
        """There is no process group anymore."""
        if self._ranks is not None:
            self._ranks.stop()
            self._ranks = None

    def _save(self, guard: _Guard, tensors: Iterable[Tensor]) -> SavedState:
        tables = [*map(vars, (*self._inside, *self._outside)), *self._optimizer_states()]
        return SavedState(guard.parameters, tables, guard.scalers, self._generators, tensors)

    def _optimizer_states(self) -> list[dict[Any, Any]]:
        optimizers = (*self._inside, *self._outside)
        return [state for o in optimizers for state in (o.state, *o.state.values())]

    def _everything(self, kind: _Kind) -> list[Tensor]:
        """All tensors that the step may change."""
        gradients = [g for g in map(_grad, kind.guard.parameters) if g is not None]
        values = chain.from_iterable(map(dict.values, self._optimizer_states()))
        states = [t for t in values if isinstance(t, Tensor)]
        return [*kind.guard.tensors, *kind.external, *states, *self._form.tensors(), *gradients]

    def _side(self) -> Any:
        """Our stream on the current device."""
        device = _gpu.device()
        if device not in self._sides:
            self._sides[device] = _gpu.make_stream()
        return self._sides[device]

    def _all_kinds(self) -> list[_Kind]:
        return list(chain.from_iterable(self._kinds.values()))

    def _programs(self) -> list[_Program]:
        return [kind.program for kind in self._all_kinds() if kind.program is not None]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._never is not None:
            if self._ranks is not None and threading.get_ident() == self._thread:
                self._ranks.turn(f"never {self._never.message}", self._never.message)
            return self._run_eagerly(self._never, args, kwargs)
        if getattr(_running, "step", False) or _gpu.capturing():
            return self._function(*args, **kwargs)  # part of what another one does
        _running.step = True
        try:
            return self._call(args, kwargs)
        finally:
            _running.step = False

    def _call(self, args: Any, kwargs: Any) -> R:
        if self._thread is None and not _gpu.available():
            self._never = EagerReason("no_cuda", "there is no CUDA device")
            return self._run_eagerly(self._never, args, kwargs)
        self._thread = self._thread or threading.get_ident()
        if threading.get_ident() != self._thread:
            reason = EagerReason("thread", "it is called from a second thread")
            return self._run_eagerly(reason, args, kwargs)
        leaves: list[Any] = []
        spec = _flatten((args, kwargs), leaves)
        turn = self._find(leaves, spec)
        if self._ranks is not None:
            turn = self._agreed(self._ranks, turn)
        key, kind, action, gradients = turn
        if isinstance(action, EagerReason):
            return self._run_eagerly(action, args, kwargs)
        if kind is None or action == "watch":
            return self._watch(key, kind, leaves, args, kwargs)
        if kind.program is None:
            return self._capture(kind, leaves, spec, args, kwargs)
        self._misses = 0
        self._replayed += 1
        stream = _gpu.stream()
        if stream != self._stream:
            if self._stream is not None:
                stream.wait_stream(self._stream)
            self._stream = stream
        if self._check_every and self._replayed % self._check_every == 0:
            if self._ranks is not None:
                self._ranks.ask_again()  # a difference may be found on one rank alone
            return self._checked_replay(kind, leaves, gradients, args, kwargs)
        return kind.program.replay(leaves, gradients)  # type: ignore[no-any-return]

    def _find(self, leaves: list[Any], spec: Any) -> _Turn:
        """What a call with these arguments should do."""
        if torch.is_anomaly_enabled() or torch._C._len_torch_dispatch_stack():
            text = "anomaly detection or a dispatch mode of torch is on"
            return None, None, EagerReason("mode", text), []
        try:
            key = _key(leaves, spec)
        except _RefusedError as refused:
            return None, None, refused.reason, []
        found = ((k, now) for k in self._kinds.get(key, ()) if (now := k.holds()) is not None)
        kind, gradients = next(found, (None, []))
        if kind is None:
            return key, None, "watch", []
        kind.used = self._eager + self._replayed
        if kind.refusal is not None:
            return key, kind, kind.refusal, []
        if any(scaler._per_optimizer_states for scaler in kind.guard.scalers):
            text = "a GradScaler is in the middle of an iteration"
            return key, kind, EagerReason("scaler", text), []
        if kind.program is not None:
            return key, kind, "replay", gradients
        if kind.watched < _ALIKE:
            return key, kind, "watch", []
        if self._eager < self._needed_warmup():
            return key, kind, _WARMUP, []
        if kind.compiled:
            kind.compiled -= 1
            return key, kind, _WARMUP, []
        if len(self._programs()) >= self._max_graphs and self._unused() is None:
            text = f"there are max_graphs={self._max_graphs} graphs for other kinds of calls"
            return key, kind, EagerReason("max_graphs", text), []
        return key, kind, "capture", []

    def _unused(self) -> _Kind | None:
        """The kind of calls whose graph has not been used for the longest time, if that is long: a
        value of an earlier epoch made it."""
        last = min((k for k in self._all_kinds() if k.program is not None), key=lambda k: k.used)
        return last if self._eager + self._replayed - last.used >= _UNUSED else None

    def _agreed(self, ranks: _Ranks, turn: _Turn) -> _Turn:
        """The same, or an eager call if the other ranks cannot do the same."""
        key, kind, action, gradients = turn
        wish = action if action in ("replay", "capture") else "eager"
        if wish == "replay" and kind is not None:
            wish = kind.agreed
        why = action.message if isinstance(action, EagerReason) else "something has changed"
        outcome, _, rest = ranks.turn(str(wish), why).partition(" ")
        if outcome == "never":
            action = self._never = EagerReason("ranks", rest)
            self._warn(action)
            self.reset()
        elif outcome == "eager" and wish != "eager":
            text = f"{rest} cannot do this call with a graph"
            action = EagerReason("ranks", text) if rest else _WARMUP
        return key, kind, action, gradients

    def _confirm(self, answer: str) -> None:
        if self._ranks is not None:
            self._ranks.confirm(answer)

    def _needed_warmup(self) -> int:
        return max(self._warmup, _DDP_WARMUP) if _is_distributed() else self._warmup

    # Eager calls.

    def _note(self, reason: EagerReason) -> None:
        self._reasons[reason] += 1
        if reason.code not in ("warmup", "disabled"):
            self._warn(reason)

    def _warn(self, reason: EagerReason) -> None:
        """Once per step and kind of reason."""
        if reason.code in self._warned:
            return
        self._warned.add(reason.code)
        depth, frame = 1, sys._getframe()
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            depth, frame = depth + 1, frame.f_back
        known = reason.where or self._where is None
        text = str(reason) if known else _visible(f"{reason} [{self._where}]")
        warnings.warn(f"{self._name} runs eagerly: {text}", GraphedWarning, stacklevel=depth)

    def _run_eagerly(self, reason: EagerReason, args: Any, kwargs: Any) -> R:
        """As without us, but for the stream."""
        self._eager += 1
        self._note(reason)
        if reason.code in ("disabled", "no_cuda", "thread"):
            return self._function(*args, **kwargs)
        return self._on_side(lambda: self._function(*args, **kwargs))  # type: ignore[no-any-return]

    def _on_side(self, call: Callable[[], Any]) -> Any:
        """Eager work on our stream. Out of memory frees the graphs, and tries again if it can."""
        guard = next((k.guard for k in self._all_kinds() if k.program is not None), None)
        if guard is None or self._ranks is not None:  # one rank alone must not try again
            with _gpu.on(self._side()):
                return call()
        stepped: list[Any] = []
        saved, versions = self._save(guard, guard.buffers), list(map(_version, guard.tensors))
        hook = register_optimizer_step_pre_hook(lambda optimizer, *_: stepped.append(optimizer))
        try:
            with _gpu.on(self._side()):
                return call()
        except torch.cuda.OutOfMemoryError:
            buffers = set(map(id, guard.buffers))
            pairs = zip(guard.tensors, versions)
            if stepped or any(id(t) not in buffers and _version(t) != v for t, v in pairs):
                self._give_up_memory()
                raise
        finally:
            hook.remove()
        self._give_up_memory()
        saved.restore()
        with _gpu.on(self._side()):
            return call()

    def _give_up_memory(self) -> EagerReason:
        self.reset()
        _gpu.collect()
        self._never = EagerReason("memory", "the GPU has no room for its graphs")
        self._warn(self._never)
        return self._never

    # Watched calls.

    def _watch(self, key: Any, kind: _Kind | None, leaves: list[Any], args: Any, kwargs: Any) -> R:
        """Run eagerly and see whether the calls of this kind can be captured."""
        self._misses += 1
        if self._misses > _MOST_MISSES:
            kinds = self._kinds.get(key, ())
            before = next(reversed(self._kinds), None)
            name = kinds[-1].guard.difference() if kinds else _new_in(key, before)
            name = name or "an argument or what it reads"
            self._never = EagerReason("unstable", f"{name} is different in every call")
            self.reset()
            return self._run_eagerly(self._never, args, kwargs)
        others = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
        reach = self._look_around(others)
        if kind is not None and kind.holds() is None:  # looking around has renewed the form
            kind = None
        if kind is None:
            kind = _Kind(_Guard(reach, self._inside, self._moving, self._attributes))
        guard = kind.guard
        olds = [(space.get(key), label) for space, key, label in guard.attributes]
        kept = {_address(old): label for old, label in olds if isinstance(old, Tensor)}
        hypers = _hypers(reach.optimizers)
        gradients = list(map(_grad, guard.parameters))
        watch = _Watch(leaves, self._codes)
        self._eager += 1
        self._note(_WARMUP)
        output = self._on_side(lambda: watch.run(lambda: self._function(*args, **kwargs)))
        after: list[Any] = []
        form = _flatten((args, kwargs), after)
        watch.fills = form != key[1] or not all(map(operator.is_, after, leaves))
        if watch.communicates and self._ranks is None and several_ranks():
            self.reset()  # nobody has agreed on graphs from before
            self._ranks = _Ranks(self._name, self._needed_warmup(), self._timeout_s)
            _free_before_shutdown()
            weakref.finalize(self, self._ranks.stop)
        used = (*watch.modules.values(), *watch.optimizers.values(), *watch.scalers.values())
        fresh = {id(value): value for value in used if id(value) not in self._roots}
        known = {id(o) for o in (*reach.optimizers, *reach.scalers)} | set(reach.modules)
        self._roots.update(fresh)
        made = {at: found for at, found in guard.rebound().items() if watch.made(found[1])}
        if made:
            self._attributes.update({at: space for at, (space, _) in made.items()})
            return output  # type: ignore[no-any-return]
        changed = guard.difference()
        now = _hypers(reach.optimizers)
        for hyper, value in hypers.items():
            if now.get(hyper, value) != value:
                changed = f"{hyper[2]} of an optimizer"
        if changed is not None:
            name = changed.rpartition(".")[2].split(" ")[0]
            watch.effects.setdefault(f"changes {changed}", _line_of_name(self._codes, name))
        replayed, self._effects_at = self._effects_at, self._replayed
        before, self._effects = self._effects, set(watch.effects)
        for what, where in watch.effects.items():  # once may be the making of something
            in_each = what in before and self._replayed == replayed
            if in_each or what in kind.effects:
                reason = EagerReason("side_effect", f"the step {what}", where)
                self._warn(reason)
                if in_each:
                    self._never = reason
                    self.reset()
                    return output  # type: ignore[no-any-return]
                kind.refusal = reason
        if watch.effects:
            kind.effects |= self._effects
            self._keep(key, kind)
            return output  # type: ignore[no-any-return]
        if changed is None and not watch.new_code and not fresh.keys() - known:
            self._judge(key, kind, watch, gradients, output, reach, kept)
        return output  # type: ignore[no-any-return]

    def _look_around(self, others: Iterable[Any]) -> _Reach:
        """Find what there is now; decide which optimizers a graph can contain."""
        known, roots = None, (*self._roots.values(), *others)
        while known != len(self._codes.by_getters):  # objects seen before a getter may have these
            known = len(self._codes.by_getters)
            reach = _Reach(self._function, self._codes, roots)
        hypers = _hypers(reach.optimizers)
        moved = {k for k, v in self._hypers.items() if k in hypers and hypers[k] != v}
        self._hypers = hypers
        grown = moved - self._moving
        self._moving |= moved
        scaled = any(scaler.is_enabled() for scaler in reach.scalers)
        inside = [o for o in reach.optimizers if _fits(o, self._moving, scaled)]
        self._outside = [o for o in reach.optimizers if o not in inside]
        for key, kinds in list(self._kinds.items()):
            for kind in [k for k in kinds if not k.guard.alive()]:
                kinds.remove(kind)
                kind.release()
            if not kinds:
                del self._kinds[key]
        if grown or not self._form.serves(inside):
            with torch.inference_mode(False):
                self._inside, self._form = inside, _Form(inside, self._moving)
        return reach

    def _keep(self, key: Any, kind: _Kind) -> None:
        kinds = self._kinds.setdefault(key, [])
        if kind not in kinds:
            spare = [k for k in kinds if k.program is None]
            if len(kinds) >= _MOST_KINDS and spare:
                kinds.remove(spare[0])
            kinds.append(kind)

    def _judge(
        self,
        key: Any,
        kind: _Kind,
        watch: _Watch,
        gradients: list[Tensor | None],
        output: Any,
        reach: _Reach,
        kept: dict[int, str],
    ) -> None:
        """Note what the call did. The second of its kind decides whether the third is captured."""
        self._keep(key, kind)
        guard, before = kind.guard, kind.signature
        kind.compiles = bool(reach.compiled)
        kind.compiled = _COMPILED if kind.compiles else 0
        at = {_address(g): i for i, g in enumerate(gradients) if g is not None}
        guarded = {_address(t) for t in guard.tensors} | at.keys()
        # FSDP gives the memory of whole parameters back; a graph has its own.
        unknown = {
            a: found
            for a, found in watch.external.items()
            if a not in guarded and _address(found[0]) == a
        }
        strangers = [found for a, found in unknown.items() if a not in kind.addresses]
        leaves, spec = pytree.tree_flatten(output)
        kind.watched += 1
        kind.signature = watch.signature
        kind.external = [tensor for tensor, _ in unknown.values()]
        kind.addresses = set(unknown)
        kind.read_gradients |= {i for a, i in at.items() if a in watch.external}
        now = list(map(_grad, guard.parameters))
        kind.makes = frozenset(i for i, (g, old) in enumerate(zip(now, gradients)) if g is not old)
        kind.uses_gradients = watch.backward or bool(kind.read_gradients) or bool(kind.makes)
        outputs, kind.outputs = kind.outputs, _plain_outputs(leaves, spec)
        generators = (*self._generators, *watch.generators.values())
        self._generators = list({id(generator): generator for generator in generators}.values())
        if kind.watched < _ALIKE:
            return
        if before != watch.signature and _is_distributed() and kind.unlike < _MOST_UNLIKE:
            kind.unlike += 1
            kind.watched -= 1
            return
        attributes = [space.get(key) for space, key, _ in guard.attributes]
        pending = [
            leaf for leaf in (*leaves, *attributes)
            if isinstance(leaf, Tensor) and not watch.is_spent(leaf.grad_fn)
        ]  # fmt: skip
        graded = [
            leaf for leaf in (*leaves, *attributes)
            if isinstance(leaf, Tensor) and leaf.requires_grad and _address(leaf) not in guarded
            and (leaf.is_leaf or leaf.retains_grad)
        ]  # fmt: skip
        foreign = [leaf for leaf in leaves if not isinstance(leaf, Tensor) and not _is_plain(leaf)]
        findings: list[tuple[Any, str, str, str | None]] = [
            (any(map(_makes_graphs, reach.compiled)), "compiled",
             "it uses torch.compile, which makes graphs of its own", None),
            *((True, "blocker", text, where) for text, where in watch.blockers),
            (pending, "output", "a tensor that it returns or binds still needs a backward", None),
            (graded, "output", "it returns a tensor whose gradient is kept", None),
            (any(map(_requires_grad, watch.plain)), "argument",
             "it makes an argument require a gradient", None),
            (watch.fills, "argument",
             "it changes a list or a dictionary that is an argument", None),
            *((True, "external", f"an argument is {label} of the call before, which the step "
               "replaces", None) for a, label in kept.items() if a in watch.arguments),
            *((True, "external", f"it reads {kept[a]} of the call before; make it an argument",
               where) for a, (_, where) in watch.external.items() if a in kept),
            *((True, "side_effect", f"the step changes {label}",
               _line_of_name(self._codes, name))
              for (_, name, label), value in zip(guard.attributes, attributes)
              if not (isinstance(value, Tensor) and watch.made(value))),
            (foreign, "output", "it returns something that is no tensor and no plain value", None),
            (outputs != kind.outputs, "output", "it returns a Python value that changes", None),
            *((True, "external", "it reads a tensor that is another one in each call; make it an "
               "argument", where) for _, where in strangers),
            (before != watch.signature, "signature", "its operations, or the numbers in them, "
             "change in calls that look alike", None),
            *((True, "side_effect", f"it draws from {label}, which moves on with each call", None)
              for label in reach.moving),
            (not watch.ops, "no_gpu_work", "it runs no operation of torch", None),
        ]  # fmt: skip
        for found, code, text, where in findings:
            if found:
                kind.refusal = EagerReason(code, text, where)
                self._warn(kind.refusal)
                return

    # Graphs.

    def _capture(self, kind: _Kind, leaves: list[Any], spec: Any, args: Any, kwargs: Any) -> R:
        """Capture this call, which also runs it. After a failure it runs eagerly."""
        if len(self._programs()) >= self._max_graphs and (unused := self._unused()) is not None:
            unused.release()
            for kinds in self._kinds.values():
                if unused in kinds:
                    kinds.remove(unused)
        guard = kind.guard
        entry = list(map(_grad, guard.parameters))
        # Not those of DistributedDataParallel, which have its hooks.
        nodes = [] if _is_distributed() else [p for p in guard.parameters if _has_node(p)]
        for parameter in nodes if self._forgets else ():
            _forget_node(parameter)
        capture = GraphCapture(self._pool(kind), self._generators)
        # Where parts run before the next one is captured, a failure has to be undone.
        saved = self._save(guard, self._everything(kind) if self._outside else ())
        program: _Program | None = None
        try:
            program = _Program(self, kind, leaves, capture)
            program.capture(spec)
            if not guard.holds() and not self._outside:
                text = f"the capture changed {guard.difference()}, which the warm-up did not"
                raise _RefusedError("state_created", text)
            self._confirm("done")
        except BaseException as error:
            alone = self._tell_ranks(error)
            if not capture.repair(saved):
                text = f"CUDA is unusable after {self._name} could not be captured; set {_SWITCH}=0"
                raise GraphedError(text) from error
            if program is not None:
                for other in self._programs():
                    if other.pool is program.pool:
                        other.pool = None  # a failed capture leaves it recording
                program.release()
            if not isinstance(error, Exception):
                raise
            if alone is not None:
                raise alone from error
            if isinstance(error, torch.cuda.OutOfMemoryError):
                return self._run_eagerly(self._give_up_memory(), args, kwargs)
            moving = {key for key in self._moving if key[2] == "lr" and key not in self._tried}
            if moving and not isinstance(error, _RefusedError | _OtherRankError):
                # Not every form of an optimizer takes a learning rate that is a tensor.
                self._tried |= moving
                self._moving |= {(owner, number, "any") for owner, number, _ in moving}
                self.reset()
                return self._run_eagerly(_WARMUP, args, kwargs)
            if nodes and not (self._forgets or isinstance(error, _RefusedError)):
                self._forgets = True
                return self._run_eagerly(_WARMUP, args, kwargs)
            if isinstance(error, _RefusedError):
                kind.refusal = error.reason
            elif isinstance(error, _OtherRankError):
                kind.refusal = EagerReason("ranks", str(error))
            else:
                text = f"the capture failed: {type(error).__name__}: {error}".splitlines()[0]
                kind.refusal = EagerReason("capture_failed", text, _raising_line(error))
            return self._run_eagerly(kind.refusal, args, kwargs)
        kind.captured(program, entry)
        if self._ranks is not None:
            kind.agreed = self._ranks.captured()
        self._captured += 1
        self._misses = 0
        with _gpu.on(self._side()):
            program.run_last()
        return program.outputs(leaves)  # type: ignore[no-any-return]

    def _tell_ranks(self, error: BaseException) -> GraphedError | None:
        """After an error in a capture, which the others must not replay. The result is an error if
        it is not known what they do."""
        if self._ranks is None or isinstance(error, _OtherRankError):
            return None
        if isinstance(error, GraphedError):
            return error
        if not isinstance(error, Exception):
            self._ranks.interrupted()
            return None
        try:
            self._ranks.confirm(f"{type(error).__name__}: {error}".splitlines()[0])
        except _OtherRankError:  # this one
            return None
        except GraphedError as missing:
            return missing
        return None

    def _pool(self, kind: _Kind) -> Any:
        """Graphs share memory if each replaces the gradients that another one may have left.

        A pool is dead once all of its graphs are gone, so only a graph that is alive has one.
        """
        for other in self._programs():
            if other.pool is not None and other.makes == kind.makes:
                return other.pool
        return None

    def _checked_replay(
        self, kind: _Kind, leaves: list[Any], gradients: list[Any], args: Any, kwargs: Any
    ) -> R:
        """Compute the call eagerly first, from the same state and in the form that was captured."""
        program = kind.program
        assert program is not None
        self._checked += 1
        # First: the rates of this call must not be taken back, because the replay sets only those
        # that have changed.
        program.form.refresh()
        saved = self._save(kind.guard, self._everything(kind))
        with _gpu.on(self._side()), program.form:
            expected = list(map(_clone, _tensors(self._function(*args, **kwargs))))
            state = list(map(_clone, saved.live))
        # The counts have two forms; a gradient that was there need not be the one that is left.
        apart = {_address(t) for t in (*program.form.tensors(), *gradients) if t is not None}
        saved.restore()
        output: R = program.replay(leaves, gradients)
        results: list[Any] = [(e, f, None) for e, f in zip(expected, _tensors(output))]
        results += [
            (e, live, before)
            for e, live, before in zip(state, saved.live, saved.copies)
            if _address(live) not in apart
        ]
        worst = max((_error(*result) for result in results), default=0.0)
        if worst > _TOLERANCE:
            text = f"a replay of {self._name} differs from eager by {worst:.1e} of the update"
            if self._on_difference == "raise":
                raise GraphedError(text)
            reason = EagerReason("difference", text)
            self._warn(reason)
            if self._on_difference == "eager":
                self._never = reason
                self.reset()
        return output


_WARMUP = EagerReason("warmup", "the first calls of each kind run eagerly")


def _version(leaf: Any) -> int:
    """Of the writes to a tensor."""
    return leaf._version if isinstance(leaf, Tensor) and not leaf.is_inference() else 0


def _error(expected: Tensor, found: Tensor, before: Tensor | None) -> float:
    """The difference relative to the update, or to the value of an output."""
    if torch.equal(expected, found) or not expected.is_floating_point():
        return 0.0 if torch.equal(expected, found) else float("inf")
    wanted, got = expected.double(), found.double()
    if bool((wanted.isnan() == got.isnan()).all()):
        wanted, got = wanted.nan_to_num(), got.nan_to_num()
    scale = wanted if before is None else wanted - before.double().nan_to_num()
    return float((wanted - got).norm() / scale.norm().clamp_min(1e-30))


@atexit.register
def _print_summary() -> None:
    if sys.stderr is None:  # it was closed, and print() would take the other stream
        return
    for step in list(_all_steps):
        stats = step.stats
        disabled = step._never is not None and step._never.code == "disabled"
        if stats.eager + stats.captured + stats.replayed and not disabled:
            print(f"launchscope.graphed: {step._name}: {stats}", file=sys.stderr)

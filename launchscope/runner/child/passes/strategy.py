"""The first steps under a strategy: what they cost, and whether the losses follow eager's."""

from __future__ import annotations

import sys
import time

from launchscope.model import Reason, StrategyResult
from launchscope.runner.child.capture.strategies import Strategy
from launchscope.runner.child.context import Context
from launchscope.runner.child.passes import Pass, Skip
from launchscope.runner.child.reasons import ReasonError, reason_of
from launchscope.runner.child.source_lines import raising_frame, user_line
from launchscope.runner.child.torch_types import Value


class StrategyPass(Pass[StrategyResult]):
    """Waits for each step; compiling and warming up happen in these steps."""

    name = "adoption"
    label = "adopting graphs"
    result_type = StrategyResult
    order = 5
    on_cpu = True
    time_limit_s = 600.0  # to compile a large model takes minutes

    def skip(self, context: Context) -> Skip | None:
        return Skip("skipped", Reason("no_strategy")) if context.strategy is None else None

    def start(self, context: Context) -> None:
        super().start(context)
        assert context.strategy is not None
        self._strategy = context.strategy
        self._wanted = self.steps(context.schedule)
        self._settle: list[float] = []
        self._graphs_at_first = 0
        self._begun: float | None = None
        if context.on_gpu:
            context.torch.cuda.reset_peak_memory_stats()

    def begin(self) -> None:
        self._synchronize()
        self._begun = time.perf_counter()

    def end(self) -> bool:
        self._synchronize()
        if self._begun is not None:
            self._settle.append((time.perf_counter() - self._begun) * 1e3)
            self._begun = None
        if len(self._settle) == 1:
            self._graphs_at_first = _compiled_graphs()
        return len(self._settle) >= self._wanted

    def finish(self, complete: bool) -> StrategyResult:
        strategy, compiled = self._strategy, self._strategy.mode == "compile"
        graphs = _compiled_graphs() if compiled else None
        reserved = used = None
        if self.context.on_gpu:
            cuda = self.context.torch.cuda
            reserved = cuda.max_memory_reserved() / 2**20
            free, total = cuda.mem_get_info()
            used = (total - free) / 2**20
        nothing = compiled and not graphs
        result = StrategyResult(
            mode=strategy.mode,
            status="failed" if nothing else "adopted",
            reason=Reason("no_graph_compiled") if nothing else None,
            modules=strategy.modules,
            setup_ms=strategy.setup_ms,
            settle_ms=tuple(self._settle),
            values=strategy.values(),
            of="output" if strategy.of_outputs else "loss",
            adopted_at=strategy.adopted_at,
            graphs=graphs,
            recompilations=None if graphs is None else graphs - self._graphs_at_first,
            graph_breaks=_graph_breaks() if compiled else None,
            skips=tuple(strategy.skips.most_common()),
            reserved_mib=reserved,
            device_used_mib=used,
        )
        strategy.close()
        return result

    def failed_inside_step(self, error: BaseException) -> StrategyResult | None:
        """Before the graphs the step ran without an error; under eager an error is its own."""
        if self._strategy.mode == "eager" or not isinstance(error, Exception):
            return None
        return failed_strategy(self._strategy, error)

    def failed(self, error: BaseException) -> StrategyResult:
        return failed_strategy(self._strategy, error)

    def _synchronize(self) -> None:
        if self.context.on_gpu:
            self.context.torch.cuda.synchronize()


def failed_strategy(strategy: Strategy, error: BaseException) -> StrategyResult:
    """The result for a strategy that failed, with the reason and your line."""
    where = None
    if not isinstance(error, ReasonError):
        where = user_line(raising_frame(error))
    return StrategyResult(
        mode=strategy.mode,
        status="failed",
        reason=reason_of(error),
        where=where,
        modules=strategy.modules,
        skips=tuple(strategy.skips.most_common()),
    )


def _counters() -> Value:
    utils = sys.modules.get("torch._dynamo.utils")
    return getattr(utils, "counters", {})


def _compiled_graphs() -> int:
    return int(_counters().get("stats", {}).get("unique_graphs", 0))


def _graph_breaks() -> int:
    return int(sum(_counters().get("graph_break", {}).values()))


PASS = StrategyPass

"""The first steps under a strategy: what they cost, and whether the losses follow eager's."""

from __future__ import annotations

from dataclasses import replace

from launchscope.model import Reason, StrategyResult
from launchscope.runner.child.events.compile_hooks import (
    dynamo_counters,
    graph_breaks,
    skipped_graphs,
)
from launchscope.runner.child.facts.clock import clock
from launchscope.runner.child.passes import Context, Pass, Skip


class StrategyPass(Pass[StrategyResult]):
    """Waits for each step; compiling and warming up happen in these steps."""

    name = "strategy"
    captures = True
    time_limit_s = 600.0  # to compile a large model takes minutes

    def skip(self, context: Context) -> Skip | None:
        return Skip("skipped", Reason("no_strategy")) if context.strategy is None else None

    def start(self, context: Context) -> None:
        super().start(context)
        assert context.strategy is not None
        self._strategy = context.strategy
        self._settle: list[float] = []
        self._graphs_at_first = 0
        pattern = context.pattern
        self._strategy.apply(
            None if pattern is None else pattern.keys, pattern is None or pattern.backwards > 0
        )
        self._begun: float | None = None
        if context.on_gpu:
            context.torch.cuda.reset_peak_memory_stats()

    def begin(self) -> None:
        self.context.synchronize()
        self._begun = clock.perf_counter()

    def end(self) -> bool:
        self.context.synchronize()
        if self._begun is not None:
            self._settle.append((clock.perf_counter() - self._begun) * 1e3)
            self._begun = None
        if len(self._settle) == 1:
            self._graphs_at_first = _compiled_graphs()
        return len(self._settle) >= self.wanted

    def finish(self, complete: bool) -> StrategyResult:
        strategy = self._strategy
        result = replace(strategy.adopted, settle_ms=tuple(self._settle), values=strategy.values())
        if strategy.mode == "compile":
            graphs = _compiled_graphs()
            result = replace(
                result,
                status="adopted" if graphs else "failed",
                reason=None if graphs else Reason("no_graph_compiled"),
                graphs=graphs,
                recompilations=graphs - self._graphs_at_first,
                graph_breaks=graph_breaks(),
                skipped_graphs=skipped_graphs(),
            )
        if self.context.on_gpu:
            reserved_mib = self.context.torch.cuda.max_memory_reserved() / 2**20
            result = replace(result, reserved_mib=reserved_mib)
        strategy.close()
        return result

    def failed_inside_step(self, error: BaseException) -> StrategyResult | None:
        """Before the graphs the step ran without an error; under eager an error is its own."""
        if self._strategy.mode == "eager" or not isinstance(error, Exception):
            return None
        return self._strategy.failed(error)

    def failed(self, error: BaseException) -> StrategyResult:
        return self._strategy.failed(error)


def _compiled_graphs() -> int:
    return int(dynamo_counters().get("stats", {}).get("unique_graphs", 0))


PASS = StrategyPass

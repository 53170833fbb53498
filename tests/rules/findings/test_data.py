from __future__ import annotations

from tests.rules.cases import Case
from tests.rules.profiles import profile, share

SLOW = {"loader_ms": 7.25, "loader_workers": 4}
CASES = (
    Case(
        "waits for data for 4.00 ms per iteration (43 %)",
        profile(metrics={"data_wait_ms": 4.0}),
        profile(),
    ),
    Case(
        "the data loader's 4 workers take 7.25 ms per step, in parallel",
        profile(metrics={"replayed_iteration_ms": 7.25}, facts=SLOW),
        profile(metrics={"replayed_iteration_ms": 7.5}, facts=SLOW),
    ),
    Case(
        "waits for data for 6.00 ms",
        profile(
            metrics={
                "removable_pct": share(2.0, 1.0, 3.0),
                "data_wait_ms": 6.0,
                "syncs_per_step": 1,
            },
        ),
        profile(),
    ),
)
SAME = ("out",)

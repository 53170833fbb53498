"""Adoptions for tests: one of each outcome."""

from __future__ import annotations

from dataclasses import replace

from launchscope.model import (
    Adoption,
    Environment,
    Metric,
    MutantCheck,
    Reason,
    SourceLine,
    Target,
)

_DIFF = """\
diff --git a/train.py b/train.py
--- a/train.py
+++ b/train.py
@@ -3,6 +3,7 @@
 import torch
+from launchscope import graphed
@@ -28,10 +29,15 @@
+@graphed
+def train_step(x, y):
+    optimizer.zero_grad()
+    loss = loss_fn(model(x), y)
+    loss.backward()
+    optimizer.step()
+    return loss.detach()
+
+
 for x, y in loader:
-    optimizer.zero_grad()
-    loss = loss_fn(model(x), y)
-    loss.backward()
-    optimizer.step()
+    loss = train_step(x, y)"""


def verified() -> Adoption:
    return Adoption(
        Target("script", "train.py", ("--epochs", "1")),
        Environment(device="NVIDIA H200", torch="2.11.0", cuda="13.0", driver="580.95"),
        "verified",
        recommendation="adopt",
        projected=2.51,
        file="train.py",
        diff=tuple(_DIFF.split("\n")),
        function="train_step",
        covered="step",
        lines=(31, 34),
        fixes=("fused",),
        steps=83,
        reads=9,
        printed=9,
        held=182,
        before=Metric.of_samples((16.4, 16.6, 16.6, 16.9), "ms"),
        after=Metric.of_samples((6.7, 6.8, 6.8, 7.0), "ms"),
        replayed_pct=99.1,
        mutants=(
            MutantCheck("frozen_rate", "noticed", 55),
            MutantCheck("stale_batch", "noticed", 7),
            MutantCheck("repeated_random", "not_applicable"),
        ),
        forced=("learning_rate", "evaluation", "state_dict"),
        not_forced=("short_batch",),
        switched=("args.clip", "(step + 1) % 100 == 0"),
        not_switched=("args.labels",),
        seeded=True,
        runs=7,
    )


def unverified() -> Adoption:
    known = verified()
    return Adoption(
        known.target,
        Environment(torch="2.11.0"),
        "unverified",
        diff=known.diff,
        covered=known.covered,
        runs=2,
    )


def refused() -> Adoption:
    reason = Reason("host_read", {"name": "loss.item()"})
    made = Adoption(verified().target, verified().environment, "refused", "adopt_after_fixes")
    return replace(made, reason=reason, where=SourceLine("train.py", 31))


def failed() -> Adoption:
    reason = Reason(
        "state_differs", {"unit": 7, "name": "0.weight", "difference": 0.41, "allowed": 3e-4}
    )
    made = Adoption(verified().target, verified().environment, "failed", "adopt")
    return replace(made, reason=reason, runs=4)


def not_needed() -> Adoption:
    return Adoption(verified().target, verified().environment, "not_needed", "stay_eager")

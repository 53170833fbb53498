"""Adoptions for tests, one of each outcome, and a Watch."""

from __future__ import annotations

from msgspec.structs import replace

from launchscope.model import (
    Adoption,
    Environment,
    Metric,
    Reason,
    SourceLine,
    Target,
    Watch,
    Window,
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
        steps=24,
        values=2524,
        reads=9,
        printed=9,
        before=Metric.of_samples((16.4, 16.6, 16.6, 16.9), "ms"),
        after=Metric.of_samples((6.7, 6.8, 6.8, 7.0), "ms"),
        replayed_pct=99.1,
        unreached=(SourceLine("train.py", 40),),
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
        steps=24,
        values=2524,
        exact=True,
        printed=9,
        runs=4,
    )


WHY = (
    "a value is read on the host (.item(), if tensor:, ...); read it after the call, or keep it on "
)
WHY += "the GPU with torch.where()"


def refused() -> Adoption:
    reason = Reason("host_read", {"name": "if loss.item() > 1:", "why": WHY})
    made = Adoption(verified().target, verified().environment, "refused", "adopt_after_fixes")
    return replace(made, reason=reason, where=SourceLine("train.py", 31))


def failed() -> Adoption:
    reason = Reason(
        "value_differs",
        {"unit": 7, "kind": "end", "name": "count", "original": "7", "patched": "8"},
    )
    made = Adoption(verified().target, verified().environment, "failed", "adopt")
    return replace(made, reason=reason, runs=4)


def not_needed() -> Adoption:
    return Adoption(verified().target, verified().environment, "not_needed", "stay_eager")


def watch() -> Watch:
    found = Window(3.1, 1.4, 0.2, 0.05, 1e6), Window(3.3, 1.5, 0.4, 0.05, 9.9e5)
    return Watch(verified().target, verified().environment, 15.0, 2_000_000, 7200.0, 21.0, found)

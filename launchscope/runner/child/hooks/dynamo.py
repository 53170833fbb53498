"""Keeps launchscope and torch.compile out of each other's way."""

from __future__ import annotations

import contextlib
import sys


def keep_dynamo_out() -> None:
    """Dynamo takes our frames below a compiled region for the person's, and compiles them too."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    with contextlib.suppress(Exception):  # its interface is torch's own affair
        if rules is not None and not rules.SKIP_DIRS_RE.match(__file__):
            rules.add("launchscope")


def let_dynamo_look_again() -> None:
    """Dynamo's table of torch's functions may hold our wrappers, if it was made among them."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    table = getattr(rules, "get_torch_obj_rule_map", None)
    forget = getattr(table, "cache_clear", None)
    if forget is not None:
        forget()

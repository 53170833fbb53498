"""Finds the rules: every module of `findings` that exposes a RULE."""

from __future__ import annotations

from functools import cache

from launchscope.plugins import load_plugins
from launchscope.rules.rule import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by code. Two files with one code are a mistake of ours."""
    rules = load_plugins("launchscope.rules.findings", "RULE", Rule)
    codes = [rule.code for rule in rules]
    assert len(set(codes)) == len(codes), f"two rules share a code: {codes}"
    return tuple(sorted(rules, key=lambda rule: rule.code))


def find_rule(code: str) -> Rule | None:
    """The rule with this code, whatever its case."""
    return next((rule for rule in all_rules() if rule.code == code.strip().upper()), None)

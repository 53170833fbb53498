"""Finds the rules: every module of `findings` named `ls<number>_...` exposes one RULE."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache

from launchscope.rules import findings
from launchscope.rules.rule import Rule

_RULE_FILE = re.compile(r"ls\d{3}_\w+")


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by code. Two files with one code are a mistake of ours."""
    names = [m.name for m in pkgutil.iter_modules(findings.__path__)]
    rules: list[Rule] = []
    for name in sorted(filter(_RULE_FILE.fullmatch, names)):
        rule = importlib.import_module(f"{findings.__name__}.{name}").RULE
        assert isinstance(rule, Rule), f"{name}.RULE is not a Rule"
        rules.append(rule)
    codes = [rule.code for rule in rules]
    assert len(set(codes)) == len(codes), f"two rules share a code: {codes}"
    return tuple(sorted(rules, key=lambda rule: rule.code))


def find_rule(code: str) -> Rule | None:
    """The rule with this code, whatever its case."""
    return next((rule for rule in all_rules() if rule.code == code.strip().upper()), None)

"""Profile -> findings and a verdict. One rule per file; the advisor weighs them."""

from __future__ import annotations

from launchscope.rules.rule import Rule, all_rules, find_rule, with_current_codes
from launchscope.rules.verdict.advisor import advise

__all__ = ["Rule", "advise", "all_rules", "find_rule", "with_current_codes"]

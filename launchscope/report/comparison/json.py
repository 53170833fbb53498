"""The Comparison as its JSON file: what is saved and rendered from again."""

from __future__ import annotations

from launchscope.model import Comparison
from launchscope.report.comparison.reporter import ComparisonReporter


def render(comparison: Comparison, /, **options: object) -> bytes:
    """One indented JSON object, `schema` first; parser.read_comparison reads it back."""
    import msgspec

    fields = msgspec.to_builtins(comparison)
    ordered = {"schema": fields.pop("schema"), **fields}
    return msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n"


REPORTER = ComparisonReporter("json", (".json",), render)

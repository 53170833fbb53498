"""A value as its JSON file: what is saved, compared and rendered from again."""

from __future__ import annotations

from launchscope.model import Check, Comparison, Difference, Profile, Ranks
from launchscope.report.reporter import Reporter


def render(value: Profile | Check | Comparison | Difference | Ranks, /, **options: object) -> bytes:
    """One indented JSON object, `schema` first; parser.read_profile reads a Profile back."""
    import msgspec

    fields = msgspec.to_builtins(value)
    ordered = {"schema": fields.pop("schema"), **fields}
    return msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n"


REPORTER = Reporter(
    "json", (".json",), dict.fromkeys((Profile, Check, Comparison, Difference, Ranks), render)
)

"""A value as its JSON file: what is saved, compared and rendered from again."""

from __future__ import annotations

from launchscope.report.documents import DOCUMENTS
from launchscope.report.reporter import RenderOptions, Reporter


def render(value: object, options: RenderOptions) -> bytes:
    """One indented JSON object, `schema` first; parser.read_profile reads a Profile back."""
    import msgspec

    fields = msgspec.to_builtins(value)
    ordered = {"schema": fields.pop("schema"), **fields}
    return msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n"


REPORTER = Reporter("json", (".json",), dict.fromkeys(DOCUMENTS, render))

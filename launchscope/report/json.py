"""A value as its JSON file: what is saved, compared and rendered from again."""

from __future__ import annotations

import msgspec

from launchscope.report import RenderOptions, Reporter, with_texts
from launchscope.report.documents import DOCUMENTS
from launchscope.visible import encodable, inert_json


def render(value: object, options: RenderOptions) -> bytes:
    """One indented JSON object, `schema` first; parser.read_profile reads a Profile back."""
    fields = msgspec.to_builtins(value)
    return encoded({"schema": fields.pop("schema"), **fields})


def encoded(fields: object) -> bytes:
    """Indented JSON; what would act on a terminal that shows the file is escaped."""
    data = msgspec.json.encode(with_texts(fields, encodable))
    return inert_json(msgspec.json.format(data, indent=1)) + b"\n"


REPORTER = Reporter("json", (".json",), dict.fromkeys(DOCUMENTS, render), exact=True)

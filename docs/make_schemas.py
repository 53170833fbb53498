"""Writes the JSON schema of each value that is saved as JSON to docs/schema: `python -m
docs.make_schemas`."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from launchscope.model import Profile
from launchscope.parser import SAVED

SCHEMAS = Path(__file__).parent / "schema"


def make_schemas(to: Path = SCHEMAS) -> None:
    to.mkdir(exist_ok=True)
    for name, kind in {"profile": Profile, **SAVED}.items():
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        schema |= msgspec.json.schema(kind)
        text = json.dumps(schema, indent=1, ensure_ascii=False)
        (to / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    make_schemas()

"""Chrome-trace documents as text: in Kineto's own layout, and as other programs write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def kineto_text(document: dict[str, Any]) -> str:
    """Each event on lines of its own between braces with two spaces, times with three decimals."""
    head = {key: value for key, value in document.items() if key != "traceEvents"}
    lines = ["{"]
    lines += [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    lines.append('  "traceEvents": [')
    lines.append(",\n".join(_event(event) for event in document["traceEvents"]))
    return "\n".join(lines) + '\n  ],\n  "traceName": "trace.json"\n}'


def _event(event: dict[str, Any]) -> str:
    first = [f'"{key}": {json.dumps(event[key])}' for key in ("ph", "cat", "name", "pid", "tid")]
    times = ", ".join(f'"{key}": {_time(event[key])}' for key in ("ts", "dur") if key in event)
    args = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in event["args"].items())
    return (
        f'  {{\n    {", ".join(first)},\n    {times},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _time(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else json.dumps(value)


LAYOUTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "kineto": kineto_text,
    "json.dumps": json.dumps,
    "compact": lambda document: json.dumps(document, separators=(",", ":")),
    "indented": lambda document: json.dumps(document, indent=2),
    "tabs": lambda document: json.dumps(document, indent="\t"),
    "events first": lambda document: json.dumps(
        {"traceEvents": document["traceEvents"], **document}, indent=1
    ),
}

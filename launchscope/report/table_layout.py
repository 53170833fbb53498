"""How a table fits a page: which columns go side by side, and how wide they are."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope.report.document import Table

_LEAST = {"wrap": 12, "cut": 12, "cut_start": 16}
_LONGEST_WORD = 30  # longer ones are broken


@dataclass(frozen=True)
class Part:
    """Some columns of a table, by index, with their widths."""

    widths: dict[int, int]


def parts_of(table: Table, width: int, gap: int) -> list[Part]:
    """The table in as few parts as fit `width`; its key columns are in all of them.

    Columns of figures are never narrowed. Texts wrap or are cut as their column allows, and the
    columns that still do not fit go below.
    """
    from rich.cells import cell_len

    columns = range(len(table.columns))
    texts = [[c.heading, *(row[i].text for row in table.rows)] for i, c in enumerate(table.columns)]
    wanted = {i: max(map(cell_len, texts[i])) for i in columns}
    least = {i: min(wanted[i], _LEAST.get(table.columns[i].fit, wanted[i])) for i in columns}
    for i in columns:
        if table.columns[i].fit == "wrap":
            longest = max(cell_len(word) for text in texts[i] for word in text.split() or [""])
            least[i] = max(least[i], min(longest, _LONGEST_WORD))
    keys = [i for i in columns if table.columns[i].key]
    parts: list[list[int]] = [list(keys)]
    for i in columns:
        if i in keys:
            continue
        taken = sum(least[j] + gap for j in parts[-1])
        if len(parts[-1]) > len(keys) and taken + least[i] > width:
            parts.append(list(keys))
        parts[-1].append(i)
    return [Part(_widths(sorted(part), wanted, least, width, gap)) for part in parts]


def _widths(
    part: list[int], wanted: dict[int, int], least: dict[int, int], width: int, gap: int
) -> dict[int, int]:
    """The width each column wants; if that is too much, the widest columns shrink first."""
    widths = {i: max(1, wanted[i]) for i in part}
    room = width - gap * (len(part) - 1)
    while sum(widths.values()) > room:
        flexible = [i for i in part if widths[i] > least[i]]
        if not flexible:
            break
        widths[max(flexible, key=lambda i: widths[i])] -= 1
    return widths

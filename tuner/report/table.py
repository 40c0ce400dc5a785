"""The one renderer of text tables: aligned columns, blanks between them, no lines."""

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

GAP = "  "
BOLD, DIM, GREEN, YELLOW, RED, PLAIN = "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m", "\033[0m"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    right: bool = False
    # Columns are left out from the highest number down when a terminal is too narrow; 0 always stays.
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table, one text per column."""

    cells: tuple[str, ...]
    style: str = ""


def write_table(columns: Sequence[Column], rows: Iterable[Row], file: TextIO, *, width: int | None = None) -> None:
    """Write the rows under their titles; as wide as they need where `file` is no terminal and no width is given."""
    rows = list(rows)
    width = width if width is not None else terminal_width(file)
    widths = [max(len(c.title), *(len(row.cells[i]) for row in rows), 0) for i, c in enumerate(columns)]
    kept = _fit(columns, widths, width)
    color = wants_color(file)
    titles = Row(tuple(column.title for column in columns), BOLD)
    for row in (titles, *rows):
        cells = [_align(row.cells[i], widths[i], right=columns[i].right) for i in kept]
        line = GAP.join(cells).rstrip()
        file.write(f"{row.style}{line}{PLAIN}\n" if color and row.style else f"{line}\n")


def terminal_width(file: TextIO) -> int | None:
    """Columns of the terminal behind the file, None when it is not one."""
    return shutil.get_terminal_size().columns if file.isatty() else None


def wants_color(file: TextIO) -> bool:
    """True on a terminal, unless NO_COLOR says otherwise."""
    return file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _align(text: str, width: int, *, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _fit(columns: Sequence[Column], widths: Sequence[int], width: int | None) -> list[int]:
    """Positions of the columns that fit, most dispensable ones dropped first."""
    kept = list(range(len(columns)))
    while width is not None and sum(widths[i] + len(GAP) for i in kept) - len(GAP) > width:
        spare = max(kept, key=lambda i: (columns[i].spare, i))
        if columns[spare].spare == 0:
            break
        kept.remove(spare)
    return kept

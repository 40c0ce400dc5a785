"""Markdown tables, aligned so that they also read well in a terminal, and the texts of their cells."""

from collections.abc import Iterable, Sequence

from tuner.measurement import Latency
from tuner.report import numbers

MISSING = numbers.MISSING


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The rows under their titles; the first column is text, the others are numbers and stand to the right.

    Raises:
        ValueError: a row has not one cell per title.
    """
    cells = [[_escape(cell) for cell in row] for row in (titles, *rows)]
    for row in cells:
        if len(row) != len(titles):
            raise ValueError(f"the row {row} has {len(row)} cells for {len(titles)} columns")
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(titles))]
    rule = ["-" * width if column == 0 else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join(_line(row, widths) for row in (cells[0], rule, *cells[1:]))


def ratio(latency: Latency) -> str:
    """A ratio with its 95 % interval."""
    return numbers.ratio_interval(latency.ratio, latency.low, latency.high)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = row
    aligned = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
    return f"| {' | '.join((first.ljust(widths[0]), *aligned))} |"


def _escape(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")

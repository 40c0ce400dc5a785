"""What every layer saw in one run of a policy, as text and JSON."""

import math
from typing import Any, TextIO

from tuner.report import numbers
from tuner.report.json_text import finite
from tuner.report.table import RED, YELLOW, Column, Row, write_table
from tuner.stability import OUTPUTS, Counts, Stability, Watched

FORMAT = 1

_COLUMNS = (
    Column("layer"),
    Column("what"),
    Column("format", spare=1),
    Column("smallest", right=True, spare=3),
    Column("largest", right=True, spare=2),
    Column("not finite", right=True),
    Column("saturated", right=True),
    Column("to zero", right=True),
    Column("values", right=True, spare=4),
    Column("executions", right=True, spare=5),
)


def write_stability(stability: Stability, file: TextIO, *, width: int | None = None) -> None:
    """One line per array that a layer reads or gives, in the order in which they ran, and what a reader should know."""
    write_table(_COLUMNS, [_row(one) for one in stability.watched], file, width=width)
    file.write("\n")
    for sentence in stability.sentences():
        file.write(f"{sentence}\n")


def stability_json(stability: Stability) -> dict[str, Any]:
    """The versioned JSON form of `tuner show --stability --json`."""
    return {
        "format": FORMAT,
        "first_non_finite": _name(stability.first_non_finite),
        "first_saturated": _name(stability.first_saturated),
        "first_underflowed": _name(stability.first_underflowed),
        "sentences": stability.sentences(),
        "watched": [_watched_json(one) for one in stability.watched],
    }


def _row(one: Watched) -> Row:
    counts = one.counts
    cells = (
        one.layer,
        one.part,
        one.format,
        _number(one.smallest),
        _number(one.largest),
        *(_share(number, counts) for number in (counts.non_finite, counts.saturated, counts.underflowed)),
        numbers.amount(counts.count),
        str(one.executions),
    )
    return Row(cells, RED if counts.non_finite else YELLOW if counts.saturated else "")


def _number(value: float) -> str:
    return numbers.MISSING if math.isnan(value) else f"{value:.3g}"


def _share(number: int, counts: Counts) -> str:
    """A share in percent, and never 0 % for what happened."""
    if not number:
        return numbers.MISSING
    percent = 100 * number / counts.count
    return f"{percent:.3g}%" if percent >= 0.01 else "<0.01%"


def _name(one: Watched | None) -> str | None:
    return None if one is None else one.layer


def _watched_json(one: Watched) -> dict[str, Any]:
    counts = one.counts
    return {
        "layer": None if one.layer == OUTPUTS else one.layer,
        "part": one.part,
        "format": one.format,
        "smallest": finite(one.smallest),
        "largest": finite(one.largest),
        "largest_given": finite(counts.largest_given),
        "values": counts.count,
        "non_finite": counts.non_finite,
        "saturated": counts.saturated,
        "underflowed": counts.underflowed,
        "executions": one.executions,
        "broke_in_execution": None if one.broke is None else one.broke.execution,
    }

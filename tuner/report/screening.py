"""What screening found: the time and the effect of every precision of every layer alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from tuner.effect import Effect, Screening
from tuner.report import numbers
from tuner.report.table import DIM, Column, Row, write_table

FORMAT = 1

_COLUMNS = (
    Column("layer"),
    Column("precision"),
    Column("kernel", spare=3),
    Column("ms", right=True, spare=2),
    Column("of as written", right=True, spare=1),
    Column("error", right=True),
    Column("divergence", right=True, spare=4),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreenedPrecision:
    """One precision of one layer alone."""

    layer: str
    precision: str
    kernel: str
    # In one call of the program; None or NaN where it was not timed, as for inputs.
    seconds: float | None
    # The same layer as written.
    written: float | None
    effect: Effect | None


def write_screening(rows: Sequence[ScreenedPrecision], file: TextIO) -> None:
    """One line per layer and precision."""
    write_table(_COLUMNS, [_row(row) for row in rows], file)


def screening_json(rows: Sequence[ScreenedPrecision], screening: Screening) -> dict[str, Any]:
    """The versioned JSON form of `tuner layers --screen --json`."""
    return {
        "format": FORMAT,
        "refusal": screening.refusal,
        "missing": screening.missing,
        "layers": [
            {
                "name": row.layer,
                "precision": row.precision,
                "kernel": row.kernel,
                "seconds": _known(row.seconds),
                "seconds_as_written": _known(row.written),
                "error": None if row.effect is None else _known(row.effect.error),
                "divergence": None if row.effect is None else row.effect.kl,
                "examples": 0 if row.effect is None else row.effect.examples,
            }
            for row in rows
        ],
    }


def _row(row: ScreenedPrecision) -> Row:
    seconds, written, effect = _known(row.seconds), _known(row.written), row.effect
    cells = (
        row.layer,
        row.precision,
        row.kernel,
        numbers.MISSING if seconds is None else numbers.milliseconds(1000 * seconds),
        numbers.MISSING if seconds is None or not written else numbers.ratio(seconds / written),
        numbers.MISSING if effect is None else f"{effect.error:.2g}",
        numbers.MISSING if effect is None or effect.kl is None else f"{effect.kl:.2g}",
    )
    return Row(cells, DIM if row.precision == "original" else "")


def _known(value: float | None) -> float | None:
    """None for what is not finite, which JSON has no number for."""
    return value if value is not None and abs(value) < float("inf") else None

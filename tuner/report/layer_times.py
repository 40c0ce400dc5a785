"""What each layer takes alone: its share of the program as written, what would be fastest, and what that gains."""

import math
from dataclasses import dataclass
from typing import Any, TextIO

from tuner.report import numbers
from tuner.report.table import DIM, Column, Row, write_table

FORMAT = 1

_COLUMNS = (
    Column("layer"),
    Column("share", right=True),
    Column("ms", right=True, spare=2),
    Column("fastest precision"),
    Column("kernel"),
    Column("ms then", right=True, spare=1),
    Column("of as written", right=True),
    Column("gain", right=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTime:
    """One layer timed alone, in one call of the program. What was not timed is NaN."""

    layer: str
    # As written, in seconds, when it was timed beside the others of this row.
    written: float
    # The same as a share of the whole program as written, timed in turns with that.
    share: float
    # The fastest of what it may take, original included, and its kernel and seconds.
    precision: str
    kernel: str
    seconds: float
    # Seconds in its own formats, with the fastest kernel for these.
    same_formats: float

    @property
    def gain(self) -> float:
        """The share of the whole program that the fastest saves."""
        return self.share * (1 - self.seconds / self.written)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTimes:
    """All layers of a program that may change, in program order, and the whole program as written in seconds."""

    rows: tuple[LayerTime, ...]
    whole: float

    @property
    def share(self) -> float:
        """What the timed layers have of the whole program; they are timed alone, so that it may come out above one."""
        return sum(row.share for row in self.rows if math.isfinite(row.share))

    @property
    def predicted(self) -> float:
        """What the program would take with the fastest of each layer, as a ratio to the program as written."""
        return 1 - sum(row.gain for row in self.rows if math.isfinite(row.gain))

    @property
    def predicted_in_same_formats(self) -> float:
        """The same without changing a number format: other kernels alone."""
        gains = (row.share * max(0.0, 1 - row.same_formats / row.written) for row in self.rows)
        return 1 - sum(gain for gain in gains if math.isfinite(gain))

    @property
    def untimed(self) -> int:
        """Layers without a time, as written or in anything else."""
        return sum(not math.isfinite(row.written) or not math.isfinite(row.seconds) for row in self.rows)


def write_layer_times(times: LayerTimes, file: TextIO) -> None:
    """One line per layer, and what they come to together."""
    write_table(_COLUMNS, [_row(row) for row in times.rows], file)
    file.write("\n")
    for sentence in explain(times):
        file.write(f"{sentence}\n")


def explain(times: LayerTimes) -> list[str]:
    """What the table amounts to. Predictions say that they are some."""
    whole = f"{numbers.milliseconds(1000 * times.whole)} ms"
    said = [
        f"Timed one by one, these layers take {times.share:.0%} of the {whole} that the program takes as written.",
        f"With the fastest of each the program is predicted to take {numbers.ratio(times.predicted)} of that; in the formats "
        f"it has, with other kernels alone, {numbers.ratio(times.predicted_in_same_formats)}.",
    ]
    if times.untimed:
        what = "layer is" if times.untimed == 1 else "layers are"
        said.append(f"{times.untimed} {what} not timed for want of time; the same command goes on from here.")
    return said


def layer_times_json(times: LayerTimes) -> dict[str, Any]:
    """The versioned JSON form of `tuner layers --time --json`."""
    return {
        "format": FORMAT,
        "seconds_as_written": times.whole,
        "share": times.share,
        "predicted_ratio": times.predicted,
        "predicted_ratio_in_same_formats": times.predicted_in_same_formats,
        "untimed": times.untimed,
        "layers": [
            {
                "name": row.layer,
                "seconds_as_written": _known(row.written),
                "share": _known(row.share),
                "precision": row.precision,
                "kernel": row.kernel,
                "seconds": _known(row.seconds),
                "gain": _known(row.gain),
            }
            for row in times.rows
        ],
    }


def _row(row: LayerTime) -> Row:
    known = math.isfinite(row.written) and math.isfinite(row.seconds)
    cells = (
        row.layer,
        f"{row.share:.1%}" if math.isfinite(row.share) else numbers.MISSING,
        numbers.milliseconds(1000 * row.written) if math.isfinite(row.written) else numbers.MISSING,
        row.precision,
        row.kernel,
        numbers.milliseconds(1000 * row.seconds) if math.isfinite(row.seconds) else numbers.MISSING,
        numbers.ratio(row.seconds / row.written) if known else numbers.MISSING,
        f"{row.gain:.1%}" if known and math.isfinite(row.gain) else numbers.MISSING,
    )
    return Row(cells, DIM if row.precision == "original" else "")


def _known(value: float) -> float | None:
    """None for what is not finite, which JSON has no number for."""
    return value if math.isfinite(value) else None

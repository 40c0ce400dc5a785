"""The outcome of `tuner verify`, as text and JSON."""

import math
from typing import Any, TextIO

from tuner.measurement import Confirmation, Failure, FurtherMetric, ShapeLatency
from tuner.report import numbers
from tuner.report.json_text import finite
from tuner.report.metrics import drop_cell
from tuner.report.points import drop_text, latency_text
from tuner.report.policies import confirmation_json
from tuner.report.table import Column, Row, write_table
from tuner.verification import RUN_TO_RUN, Verification

FORMAT = 1

_COLUMNS = (Column(""), Column("now (95 %)"), Column("recorded"), Column("holds"))


def write_verification(verification: Verification, file: TextIO, *, width: int | None = None) -> None:
    """What was measured now, what was recorded, whether it holds, and what differs here."""
    result = verification.result
    if isinstance(result, Failure):
        file.write(f"The policy does not run here: {result.cause}: {result.message}\n")
    else:
        write_table(_COLUMNS, _rows(verification, result), file, width=width)
    if verification.differences:
        file.write("\nDifferent here from where it was exported:\n")
        for field, (before, now) in verification.differences.items():
            file.write(f"  {field}: {before or numbers.MISSING} there, {now or numbers.MISSING} here\n")
    file.write("\nThe policy holds here.\n" if verification.holds else "\nThe policy does not hold here.\n")


def verification_json(verification: Verification) -> dict[str, Any]:
    """The versioned JSON form of `tuner verify --json`."""
    result = verification.result
    form: dict[str, Any] = {
        "format": FORMAT,
        "holds": verification.holds,
        "latency_holds": verification.latency_holds,
        "quality_holds": verification.quality_holds,
        "max_drop": str(verification.max_drop),
        "recorded_latency_low": _optional(verification.recorded_low),
        "recorded_latency_high": _optional(verification.recorded_high),
        "recorded_drop": _optional(verification.recorded_drop),
        "differences": {field: list(pair) for field, pair in verification.differences.items()},
    }
    if isinstance(result, Confirmation):
        return form | {"measured": confirmation_json(result), "failure": None}
    return form | {"measured": None, "failure": {"cause": result.cause, "message": result.message}}


def _rows(verification: Verification, result: Confirmation) -> list[Row]:
    low, high, drop = verification.recorded_low, verification.recorded_high, verification.recorded_drop
    recorded = numbers.MISSING if low is None or high is None else f"{numbers.ratio(low)}..{numbers.ratio(high)}"
    slack = "" if low is None else f" (+{RUN_TO_RUN:.0%} from run to run)"
    allowed = f"allowed {verification.allowed_drop:.4g}"
    return [
        Row(("latency", latency_text(result.latency), f"{recorded}{slack}", _yes(verification.latency_holds))),
        *(_shape_row(verification, name, shape) for name, shape in result.shapes.items()),
        Row(
            (
                "drop",
                drop_text(result.quality),
                f"{allowed}, was {numbers.MISSING if drop is None else numbers.signed(drop)}",
                _yes(result.quality.drop <= verification.allowed_drop),
            )
        ),
        *(_metric_row(name, metric) for name, metric in result.metrics.items()),
    ]


def _shape_row(verification: Verification, name: str, shape: ShapeLatency) -> Row:
    before = verification.recorded_shapes.get(name)
    recorded = numbers.MISSING if before is None else latency_text(before.latency)
    return Row((f"  {name} x {shape.weight:g}", latency_text(shape.latency), recorded, ""))


def _metric_row(name: str, metric: FurtherMetric) -> Row:
    allowed = "only shown" if math.isnan(metric.allowed) else f"allowed {metric.allowed:.4g}"
    return Row((f"{name} drop", drop_cell(metric).partition(",")[0], allowed, _yes(metric.holds)))


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _optional(value: float | None) -> float | None:
    return None if value is None else finite(value)

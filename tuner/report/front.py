"""The front of a study as text, CSV and JSON."""

import csv
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from tuner.drop import Drop
from tuner.front import Point
from tuner.measurement import Confirmation, Latency
from tuner.report import numbers
from tuner.report.json_text import finite
from tuner.report.layers import refusal_notes
from tuner.report.metrics import explain_constraints, metric_cells, metric_columns, metric_names, metrics_report
from tuner.report.points import (
    confirmed_text,
    drop_text,
    keeps_f32,
    kernels_text,
    label_text,
    latency_text,
    ran_as_requested,
    trial_text,
)
from tuner.report.shapes import explain_shapes, shape_cells, shape_columns, shape_names, shapes_report
from tuner.report.table import DIM, Column, Row, write_table

if TYPE_CHECKING:
    from tuner.store import StudyRecord

FORMAT = 1

COLUMNS = (
    Column("trial", right=True),
    Column("label"),
    Column("latency (95 %)"),
    Column("ms", right=True, spare=6),
    Column("quality", right=True, spare=4),
    Column("drop (95 %)"),
    Column("memory", right=True, spare=2),
    Column("weights", right=True, spare=5),
    Column("ran as requested", spare=1),
    Column("confirmed", spare=3),
)
_AFTER_LATENCY, _AFTER_DROP = (
    next(number for number, column in enumerate(COLUMNS, 1) if column.title == title)
    for title in ("latency (95 %)", "drop (95 %)")
)
_CSV = (
    *("trial", "label", "latency_ratio", "latency_low", "latency_high", "latency_ms", "quality", "quality_drop"),
    *("drop_low", "drop_high", "memory_bytes", "weight_bytes", "confirmed"),
    *("latency_p95_ms", "latency_p99_ms", "throughput", "contended"),
)


def write_front(
    points: Sequence[Point],
    references: Sequence[Point],
    file: TextIO,
    *,
    width: int | None = None,
    limits: Sequence[str] = (),
    ties: Mapping[int, Point] | None = None,
) -> None:
    """The front, fastest first, below it the reference points that it beats, and what a reader should know."""
    shown = [*points, *references]
    rows = [Row(point_cells(point, shown)) for point in points]
    rows += [Row(point_cells(point, shown), DIM) for point in references]
    write_table(front_columns(shown), rows, file, width=width)
    file.write("\n")
    if references:
        beaten = ", ".join(point.label for point in references)
        file.write(f"For comparison, not on the front: {beaten}.\n")
    for sentence in [*explain_front(points, ties or {}), *limits]:
        file.write(f"{sentence}\n")


def front_columns(points: Sequence[Point]) -> tuple[Column, ...]:
    """COLUMNS, and one more for each kind of call and each further metric of the points."""
    before, between, after = COLUMNS[:_AFTER_LATENCY], COLUMNS[_AFTER_LATENCY:_AFTER_DROP], COLUMNS[_AFTER_DROP:]
    return (*before, *shape_columns(points), *between, *metric_columns(points), *after)


def explain_front(points: Sequence[Point], ties: Mapping[int, Point]) -> list[str]:
    """What a reader of the table should know about it."""
    said = []
    if not points:
        said.append("Nothing is measured yet.")
    if len(points) == 1:
        said.append(
            f"One point only: {points[0].label} is at least as good as everything else in every objective, "
            "so there is nothing to trade."
        )
    said += explain_shapes(points)
    constraints = explain_constraints(points)
    said += [] if constraints is None else [constraints]
    if any(ran_as_requested(point.policy, point.measurement).startswith("no") for point in points):
        said.append("Some layers did not run as requested, or could not be read back: `tuner show` names them.")
    for point in points:
        if keeps_f32(point.policy) and kernels_text(point.policy):
            said.append(
                f"Trial {point.trial} keeps every layer in f32: other kernels alone ({kernels_text(point.policy)})."
            )
    said += tie_sentences(ties)
    contended = [str(trial) for trial in sorted(p.trial for p in points if p.measurement.latency.contended)]
    if contended:
        said.append(
            f"Contended while {'it was' if len(contended) == 1 else 'they were'} timed: "
            f"{'trial' if len(contended) == 1 else 'trials'} {', '.join(contended)}; `tuner show` says by what."
        )
    return said


def tie_sentences(ties: Mapping[int, Point]) -> list[str]:
    """Which points are no better than a cheaper one, by what the intervals can tell."""
    if not ties:
        return []
    pairs = ", ".join(f"{trial} with {other.trial}" for trial, other in sorted(ties.items()))
    return [f"Tied in quality with a cheaper point, within the intervals: trial {pairs}."]


def limits_of(record: "StudyRecord") -> list[str]:
    """What the front does not hold: what was cut off, and what the device cannot run."""
    limit = limit_of(record)
    return [*([limit] if limit else []), *(f"{note}." for note in refusal_notes(record.refused))]


def limit_of(record: "StudyRecord") -> str | None:
    """How far the front is complete; None when nothing was cut off."""
    if not record.counts.pruned:
        return None
    drop = Drop.parse(record.max_drop)
    twice = Drop(2 * drop.value, drop.relative)
    limited = any(limit is not None for limit in record.constraints.values())
    constraints = " (as for every constraint)" if limited else ""
    return (
        f"Complete, of what was tried, up to a drop of {twice}, twice the allowed one{constraints}, and up to the slowest "
        f"candidates worth timing: {record.counts.pruned} beyond were not measured further."
    )


def point_cells(point: Point, shown: Sequence[Point]) -> tuple[str, ...]:
    """One text per column of `front_columns(shown)`."""
    measured = point.measurement
    return (
        trial_text(point.trial),
        label_text(point.label),
        latency_text(measured.latency),
        *shape_cells(point, shape_names(shown)),
        numbers.milliseconds(measured.latency.milliseconds),
        numbers.quality(measured.quality.value),
        drop_text(measured.quality),
        *metric_cells(point, metric_names(shown)),
        numbers.size(measured.memory.total_bytes),
        numbers.size(measured.memory.weight_bytes),
        ran_as_requested(point.policy, measured),
        confirmed_text(point),
    )


def write_front_csv(points: Sequence[Point], file: TextIO) -> None:
    """One line per point: the fields of the JSON form without the policy.

    For each kind of call NAME_latency_ratio and NAME_latency_ms, for a further metric NAME and NAME_drop.
    """
    fields = [field for name in shape_names(points) for field in (f"{name}_latency_ratio", f"{name}_latency_ms")]
    fields += [field for name in metric_names(points) for field in (name, f"{name}_drop")]
    writer = csv.DictWriter(file, [*_CSV, *fields], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for point in points:
        form = point_json(point)
        further = form["metrics"].items()
        values = {name: metric["value"] for name, metric in further}
        for name, shape in form["shapes"].items():
            values |= {f"{name}_{field}": shape[field] for field in ("latency_ratio", "latency_ms")}
        writer.writerow(form | values | {f"{name}_drop": metric["drop"] for name, metric in further})


def front_json(
    study: str, points: Sequence[Point], references: Sequence[Point], ties: Mapping[int, Point] | None = None
) -> dict[str, Any]:
    """The versioned JSON form of `tuner front --json`."""
    tied = {trial: other.trial for trial, other in (ties or {}).items()}
    return {
        "format": FORMAT,
        "study": study,
        "points": [point_json(point) | {"tied_with": tied.get(point.trial)} for point in points],
        "references": [point_json(point) for point in references],
    }


def timing_json(latency: Latency) -> dict[str, Any]:
    """What is known of a latency besides its ratio."""
    return {
        "latency_p95_ms": finite(latency.p95_ms),
        "latency_p99_ms": finite(latency.p99_ms),
        "latency_calls": latency.calls,
        "throughput": finite(latency.throughput),
        "baseline": latency.baseline,
        "contended": latency.contended or None,
    }


def point_json(point: Point) -> dict[str, Any]:
    """One point; numbers that are not finite become null, since JSON has none."""
    latency, quality, memory = point.measurement.latency, point.measurement.quality, point.measurement.memory
    policy = point.policy.precisions if point.policy is not None else {}
    return {
        "trial": point.trial,
        "label": point.label,
        "latency_ratio": finite(latency.ratio),
        "latency_low": finite(latency.low),
        "latency_high": finite(latency.high),
        "latency_ms": finite(latency.milliseconds),
        **timing_json(latency),
        "shapes": shapes_report(point.measurement.shapes),
        "quality": finite(quality.value),
        "quality_drop": finite(quality.drop),
        "drop_low": finite(quality.drop_low),
        "drop_high": finite(quality.drop_high),
        "metrics": metrics_report(point.measurement.metrics),
        "memory_bytes": memory.total_bytes,
        "weight_bytes": memory.weight_bytes,
        "confirmed": isinstance(point.confirmation, Confirmation),
        "policy": {name: str(precision) for name, precision in policy.items()},
        "effective": dict(point.measurement.effective),
    }

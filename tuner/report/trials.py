"""Everything a study tried, as text and CSV."""

import csv
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from tuner.measurement import Failure, Measurement, broken_constraints
from tuner.report import numbers
from tuner.report.metrics import drop_cell
from tuner.report.points import drop_text, label_text, latency_text, policy_text, trial_text
from tuner.report.table import DIM, GREEN, Column, Row, write_table

if TYPE_CHECKING:  # its package loads SQLAlchemy
    from tuner.store import CandidateRecord

_COLUMNS = (
    Column("trial", right=True),
    Column("state"),
    Column("label"),
    Column("latency (95 %)"),
    Column("drop (95 %)", spare=1),
    Column("memory", right=True, spare=2),
    Column("note", spare=3),
)
_CSV = (
    *("trial", "label", "state", "on_front", "latency_ratio", "latency_low", "latency_high", "latency_ms"),
    *("quality", "quality_drop", "drop_low", "drop_high", "fidelity", "memory_bytes", "weight_bytes"),
    *("cause", "message", "layer", "prepare_s", "trace_s", "compile_s", "quality_s", "latency_s", "compile_cache"),
    *("latency_p95_ms", "latency_p99_ms", "throughput", "contended"),
    "policy",
)


def write_trials(records: Sequence["CandidateRecord"], file: TextIO, *, width: int | None = None) -> None:
    """One line per candidate, in the order tried."""
    write_table(_COLUMNS, [_row(record) for record in records], file, width=width)


def write_trials_csv(records: Sequence["CandidateRecord"], file: TextIO) -> None:
    """One line per candidate with every number; empty where there is none."""
    writer = csv.DictWriter(file, _CSV, restval="", lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow(_facts(record))


def state_of(record: "CandidateRecord") -> str:
    """`measured`, `pruned`, `failed` or `running`."""
    if record.outcome is None:
        return "running"
    if isinstance(record.outcome, Measurement):
        return "measured"
    return "pruned" if record.outcome.pruned else "failed"


def _row(record: "CandidateRecord") -> Row:
    latency = drop = memory = numbers.MISSING
    note = "on the front" if record.on_front else ""
    if isinstance(record.outcome, Measurement):
        latency, drop = latency_text(record.outcome.latency), drop_text(record.outcome.quality)
        memory = numbers.size(record.outcome.memory.total_bytes)
        notes = [note] if note else []
        broken = broken_constraints(record.outcome)
        notes += [f"breaks {name}: {drop_cell(metric)}" for name, metric in broken.items()]
        if record.outcome.latency.contended:
            notes.append(f"contended: {record.outcome.latency.contended}")
        note = ", ".join(notes)
    elif isinstance(record.outcome, Failure):
        note = f"{record.outcome.cause}: {' '.join(record.outcome.message.split())}"
    style = GREEN if record.on_front else DIM if isinstance(record.outcome, Failure) else ""
    return Row(
        (trial_text(record.trial), state_of(record), label_text(record.label), latency, drop, memory, note), style
    )


def _facts(record: "CandidateRecord") -> dict[str, object]:
    facts: dict[str, object] = {
        "trial": record.trial,
        "label": record.label,
        "state": state_of(record),
        "on_front": int(record.on_front),
        "policy": policy_text(record.policy),
    }
    if isinstance(record.outcome, Measurement):
        latency, quality, memory = record.outcome.latency, record.outcome.quality, record.outcome.memory
        facts |= {"latency_ratio": latency.ratio, "latency_low": latency.low, "latency_high": latency.high}
        facts |= {"latency_p95_ms": latency.p95_ms, "latency_p99_ms": latency.p99_ms, "throughput": latency.throughput}
        facts |= {
            "contended": latency.contended,
            "latency_ms": latency.milliseconds,
            "quality": quality.value,
            "quality_drop": quality.drop,
        }
        facts |= {"drop_low": quality.drop_low, "drop_high": quality.drop_high, "fidelity": quality.fidelity}
        facts |= {"memory_bytes": memory.total_bytes, "weight_bytes": memory.weight_bytes}
    elif isinstance(record.outcome, Failure):
        facts |= {"cause": record.outcome.cause, "message": record.outcome.message, "layer": record.outcome.layer or ""}
    if record.outcome is not None:
        costs = record.outcome.costs
        facts |= {name: getattr(costs, name) for name in _CSV if hasattr(costs, name)}
    return facts

"""The studies of a database, as text and JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from tuner.report import numbers
from tuner.report.table import Column, Row, write_table

if TYPE_CHECKING:  # its package loads SQLAlchemy on use
    from tuner.store import StudyRecord

FORMAT = 1

_COLUMNS = (
    Column("study"),
    Column("task", spare=2),
    Column("trials", right=True),
    Column("front", right=True),
    Column("failed", right=True, spare=3),
    Column("max drop", right=True, spare=4),
    Column("sampler", spare=5),
    Column("device", spare=6),
    Column("begun", spare=1),
)


def write_studies(records: Sequence["StudyRecord"], file: TextIO, *, width: int | None = None) -> None:
    """One line per study, oldest first."""
    if not records:
        file.write("No studies here yet.\n")
        return
    write_table(_COLUMNS, [_row(record) for record in records], file, width=width)


def studies_json(records: Sequence["StudyRecord"]) -> dict[str, Any]:
    """The versioned JSON form of `tuner studies --json`."""
    return {"format": FORMAT, "studies": [_study(record) for record in records]}


def _row(record: "StudyRecord") -> Row:
    counts = record.counts
    cells = (
        record.name,
        record.task_reference or numbers.MISSING,
        str(counts.trials),
        str(counts.on_front),
        str(counts.failed),
        record.max_drop,
        record.sampler,
        device_text(record),
        record.created.strftime("%Y-%m-%d %H:%M"),
    )
    return Row(cells)


def device_text(record: "StudyRecord") -> str:
    """The device a study measures on: `cpu`, or a name."""
    kind = record.device.get("kind", "")
    return kind.partition(" (")[0] or record.device.get("platform", numbers.MISSING)


def constraints_text(record: "StudyRecord") -> str:
    """The further metrics and the drop that each may have: `cross_entropy 2%rel, agreement`."""
    return ", ".join(name if drop is None else f"{name} {drop}" for name, drop in record.constraints.items())


def _study(record: "StudyRecord") -> dict[str, Any]:
    counts = record.counts
    return {
        "name": record.name,
        "task": record.task_reference,
        "objectives": list(record.objectives),
        "max_drop": record.max_drop,
        "sampler": record.sampler,
        "seed": record.seed,
        "metric": record.metric,
        "constraints": dict(record.constraints),
        "batch_size": record.batch_size,
        "created": record.created.isoformat(),
        "tool_version": record.tool_version,
        "device": dict(record.device),
        "trials": counts.trials,
        "measured": counts.measured,
        "pruned": counts.pruned,
        "failed": counts.failed,
        "running": counts.running,
        "references": counts.references,  # hand-made casts: measured, pruned or failed like trials, but none
        "on_front": counts.on_front,
    }

"""Rows into records and back. A NaN is kept as null, on every database alike."""

import dataclasses
import math
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tuner.effect import Prediction
from tuner.errors import PolicyError, StoreError
from tuner.front import Point
from tuner.kernel_choice import choice_from_json, choice_to_json
from tuner.measurement import (
    Confirmation,
    Costs,
    Failure,
    FurtherMetric,
    Latency,
    Measurement,
    Memory,
    Quality,
    ShapeLatency,
)
from tuner.policy import Policy, ProgramSignature
from tuner.policy_json import policy_from_json, policy_to_json
from tuner.provenance import metrics_from_json, metrics_to_json, shapes_from_json, shapes_to_json
from tuner.store.models import CONFIRMATION, SEARCH, CandidateRow, LayerRow, OutcomeRow, StudyRow
from tuner.store.owner import Owner
from tuner.store.records import CandidateRecord, StudyCounts, StudyRecord

if TYPE_CHECKING:
    from tuner.program.layer import Layer

# Field of the row <- field of the record.
_LATENCY = {
    "latency_ratio": "ratio",
    "latency_low": "low",
    "latency_high": "high",
    "latency_ms": "milliseconds",
    "baseline_spread": "baseline_spread",
    "latency_pairs": "pairs",
    "latency_p95_ms": "p95_ms",
    "latency_p99_ms": "p99_ms",
    "throughput": "throughput",
    "latency_calls": "calls",
    "latency_baseline": "baseline",
    "contended": "contended",
}
_QUALITY = {
    "quality": "value",
    "quality_drop": "drop",
    "drop_low": "drop_low",
    "drop_high": "drop_high",
    "examples": "examples",
    "method": "method",
    "fidelity": "fidelity",
}
_MEMORY = {"memory_bytes": "total_bytes", "weight_bytes": "weight_bytes"}
_LAYER = ("name", "kind", "dtype", "params", "flops", "executions", "source", "searchable", "reason")
_STUDY = (
    "name",
    "task_reference",
    "max_drop",
    "sampler",
    "seed",
    "space",
    "batch_size",
    "metric",
    "tool_version",
)


def now() -> str:
    """This moment as the tables write it."""
    return datetime.now(UTC).isoformat()


def study_to_row(study: StudyRecord) -> StudyRow:
    """A new row for the study; its id is the database's to give."""
    layers = [[name, kind, list(shape)] for name, kind, shape in study.program.layers]
    return StudyRow(
        **{field: getattr(study, field) for field in _STUDY},
        objectives=list(study.objectives),
        fingerprints=dict(study.fingerprints),
        device=dict(study.device),
        program={"layers": layers, "inputs": study.program.inputs, "split_scans": study.program.split_scans},
        created=study.created.astimezone(UTC).isoformat(),
        refused={kind: dict(reasons) for kind, reasons in study.refused.items()} or None,
        constraints=dict(study.constraints) or None,
        kernels=None if study.kernels is None else choice_to_json(study.kernels),
    )


def row_to_study(row: StudyRow, baseline: OutcomeRow | None, counts: StudyCounts) -> StudyRecord:
    """The study with its baseline's measurement and its counts."""
    outcome = None if baseline is None else row_to_outcome(baseline)
    return StudyRecord(
        id=row.id,
        **{field: getattr(row, field) for field in _STUDY},
        objectives=tuple(row.objectives),
        fingerprints=MappingProxyType(dict(row.fingerprints)),
        device=MappingProxyType(dict(row.device)),
        program=row_to_signature(row),
        created=datetime.fromisoformat(row.created),
        refused=MappingProxyType({kind: MappingProxyType(dict(found)) for kind, found in (row.refused or {}).items()}),
        constraints=MappingProxyType(dict(row.constraints or {})),
        kernels=None if row.kernels is None else choice_from_json(row.kernels),
        baseline=outcome if isinstance(outcome, Measurement) else None,
        counts=counts,
    )


def row_to_signature(row: StudyRow) -> ProgramSignature:
    """The layer table and inputs of the study's program."""
    layers = tuple((name, kind, tuple(shape)) for name, kind, shape in row.program["layers"])
    split_scans = bool(
        row.program.get("split_scans", False)
    )  # absent where the study began before there was such a thing
    return ProgramSignature(layers=layers, inputs=row.program["inputs"], split_scans=split_scans)


def layer_to_row(study_id: int, position: int, layer: "Layer") -> LayerRow:
    """A new row for the layer."""
    fields = {field: getattr(layer, field) for field in _LAYER}
    return LayerRow(study_id=study_id, position=position, shape=list(layer.shape), **fields)


def row_to_layer(row: LayerRow) -> "Layer":
    """The layer."""
    from tuner.program.layer import Layer  # here, because its room may load JAX

    return Layer(shape=tuple(row.shape), **{field: getattr(row, field) for field in _LAYER})


def policy_to_column(policy: Policy | None) -> dict[str, Any] | None:
    """The policy's assignments and scales as in a policy file; the study knows its program."""
    return None if policy is None else policy_to_json(dataclasses.replace(policy, program=None, provenance=None))


def row_to_candidate(row: CandidateRow, program: ProgramSignature, file: object) -> CandidateRecord:
    """The candidate with its outcomes.

    Raises:
        StoreError: its policy cannot be read.
    """
    outcomes = {outcome.kind: row_to_outcome(outcome) for outcome in row.outcomes}
    outcome, confirmation = outcomes.get(SEARCH), outcomes.get(CONFIRMATION)
    return CandidateRecord(
        id=row.id,
        study_id=row.study_id,
        trial=row.trial,
        label=row.label,
        key=row.key,
        policy=_policy(row, program, file),
        outcome=None if isinstance(outcome, Confirmation) else outcome,
        confirmation=None if isinstance(confirmation, Measurement) else confirmation,
        on_front=row.membership is not None,
        owner=row_to_owner(row),
        started=datetime.fromisoformat(row.started),
        finished=None if row.finished is None else datetime.fromisoformat(row.finished),
        predicted=None if row.predicted is None else Prediction(**row.predicted),
    )


def row_to_owner(row: CandidateRow) -> Owner:
    """The process that claimed the candidate."""
    return Owner(host=row.owner_host, pid=row.owner_pid, started=row.owner_started)


def row_to_point(row: OutcomeRow, trial: int, label: str, has_policy: bool) -> Point:
    """What dominance needs of a measured candidate: its policy is only there or not."""
    measurement = row_to_outcome(row)
    if not isinstance(measurement, Measurement):
        raise TypeError(f"candidate {row.candidate_id} was not measured")
    return Point(trial=trial, label=label, policy=Policy(()) if has_policy else None, measurement=measurement)


def outcome_to_row(candidate_id: int, outcome: Measurement | Confirmation | Failure, kind: str) -> OutcomeRow:
    """A new row for what came of the candidate."""
    row = OutcomeRow(candidate_id=candidate_id, kind=kind, taken=now(), costs={}, effective={})
    if isinstance(outcome, Failure):
        row.failure_cause, row.failure_message = outcome.cause, outcome.message
        row.failure_layer, row.costs = outcome.layer, _costs(outcome.costs)
        return row
    _fill(row, _LATENCY, outcome.latency)
    _fill(row, _QUALITY, outcome.quality)
    row.metrics = metrics_to_json(outcome.metrics) or None
    row.shapes = shapes_to_json(outcome.shapes) or None
    if isinstance(outcome, Measurement):
        _fill(row, _MEMORY, outcome.memory)
        row.costs, row.effective = _costs(outcome.costs), dict(outcome.effective)
    return row


def row_to_outcome(row: OutcomeRow) -> Measurement | Confirmation | Failure:
    """What came of the candidate."""
    if row.failure_cause is not None:
        message = row.failure_message or ""
        costs = Costs(**row.costs)
        return Failure(cause=row.failure_cause, message=message, layer=row.failure_layer, costs=costs)
    latency, quality = _read(Latency, _LATENCY, row), _read(Quality, _QUALITY, row)
    if row.kind == CONFIRMATION:
        return Confirmation(latency=latency, quality=quality, metrics=_metrics(row), shapes=_shapes(row))
    return Measurement(
        latency=latency,
        quality=quality,
        memory=_read(Memory, _MEMORY, row),
        costs=Costs(**row.costs),
        effective=MappingProxyType(dict(row.effective)),
        metrics=_metrics(row),
        shapes=_shapes(row),
    )


def _policy(row: CandidateRow, program: ProgramSignature, file: object) -> Policy | None:
    if row.policy is None:
        return None
    try:
        policy = policy_from_json(row.policy, f"candidate {row.id} in {file}")
    except PolicyError as problem:
        raise StoreError(str(problem)) from problem
    return dataclasses.replace(policy, program=program)


def _fill(row: OutcomeRow, fields: dict[str, str], record: Any) -> None:
    for column, field in fields.items():
        value = _plain(getattr(record, field))
        setattr(row, column, None if isinstance(value, float) and math.isnan(value) else value)


def _metrics(row: OutcomeRow) -> MappingProxyType[str, FurtherMetric]:
    return metrics_from_json(row.metrics or {}, f"measurement {row.id}")


def _shapes(row: OutcomeRow) -> MappingProxyType[str, ShapeLatency]:
    return shapes_from_json(row.shapes or {}, f"measurement {row.id}")


def _costs(costs: Costs) -> dict[str, Any]:
    return {name: _plain(value) for name, value in dataclasses.asdict(costs).items()}


def _plain(value: Any) -> Any:
    """A numpy scalar as the Python number it is; the driver would refuse it, or store bytes."""
    return value.item() if hasattr(value, "item") else value


def _read(cls: Any, fields: dict[str, str], row: OutcomeRow) -> Any:
    """A record; null is the field's default, which older versions did not measure, else NaN."""
    defaults = {f.name: f.default for f in dataclasses.fields(cls) if f.default is not dataclasses.MISSING}
    values = {field: getattr(row, column) for column, field in fields.items()}
    return cls(**{field: defaults.get(field, math.nan) if v is None else v for field, v in values.items()})

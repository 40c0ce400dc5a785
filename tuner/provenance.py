"""Provenance of a policy: where it was measured and what, written into the policy file and read back from it."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tuner.errors import PolicyError
from tuner.json_fields import flat_from_json, flat_to_json, get_field, require, require_finite
from tuner.measurement import Confirmation, FurtherMetric, Latency, Measurement, Memory, Quality, ShapeLatency
from tuner.policy import Policy

if TYPE_CHECKING:
    from tuner.store.records import CandidateRecord, StudyRecord


def with_provenance(study: "StudyRecord", candidate: "CandidateRecord") -> Policy:
    """The candidate's policy, knowing its program and where it was measured: what is exported.

    Raises:
        PolicyError: the candidate has no policy (a hand-made cast) or no measurement.
    """
    if candidate.policy is None:
        raise PolicyError(
            f"trial {candidate.trial} ({candidate.label}) is a reference point without a policy; choose another point"
        )
    if not isinstance(candidate.outcome, Measurement):
        raise PolicyError(f"trial {candidate.trial} ({candidate.label}) was not measured; choose another point")
    confirmation = candidate.confirmation
    provenance = {
        "tool_version": study.tool_version,
        "study": study.name,
        "study_id": study.id,
        "candidate_id": candidate.id,
        "trial": candidate.trial,
        "label": candidate.label,
        "device": dict(study.device),
        "metric": study.metric,
        "constraints": dict(study.constraints),
        "batch_size": study.batch_size,
        "measured": measurement_to_json(candidate.outcome),
        "confirmed": confirmation_to_json(confirmation) if isinstance(confirmation, Confirmation) else None,
    }
    return replace(candidate.policy, program=study.program, provenance=provenance)


def measurement_to_json(measurement: Measurement) -> dict[str, Any]:
    """Latency, quality, memory and effective precisions as JSON values."""
    return {
        "latency": flat_to_json(measurement.latency),
        "quality": flat_to_json(measurement.quality),
        "memory": flat_to_json(measurement.memory),
        "effective": dict(measurement.effective),
        "metrics": metrics_to_json(measurement.metrics),
        **_shapes(measurement),
    }


def confirmation_to_json(confirmation: Confirmation) -> dict[str, Any]:
    """Latency and holdout quality as JSON values."""
    return {
        "latency": flat_to_json(confirmation.latency),
        "quality": flat_to_json(confirmation.quality),
        "metrics": metrics_to_json(confirmation.metrics),
        **_shapes(confirmation),
    }


def _shapes(measured: Measurement | Confirmation) -> dict[str, Any]:
    return {"shapes": shapes_to_json(measured.shapes)} if measured.shapes else {}


def shapes_to_json(shapes: Mapping[str, ShapeLatency]) -> dict[str, Any]:
    """Kinds of call by name as JSON values: latency and weight."""
    return {name: {"weight": shape.weight, "latency": flat_to_json(shape.latency)} for name, shape in shapes.items()}


def shapes_from_json(value: Any, where: str) -> MappingProxyType[str, ShapeLatency]:
    """What `shapes_to_json` wrote.

    Raises:
        PolicyError: a field is missing or of another type.
    """
    require(value, dict, where, "the shapes")
    return MappingProxyType({name: _read_shape(item, where, f"the shape {name!r}") for name, item in value.items()})


def _read_shape(value: Any, where: str, thing: str) -> ShapeLatency:
    require(value, dict, where, thing)
    weight = require_finite(get_field(value, "weight", float, where, thing), where, f"field 'weight' of {thing}")
    return ShapeLatency(latency=_read_part(Latency, value, "latency", where, thing), weight=weight)


def metrics_to_json(metrics: Mapping[str, FurtherMetric]) -> dict[str, Any]:
    """Further metrics by name as JSON values; null for NaN."""
    return {name: flat_to_json(metric) for name, metric in metrics.items()}


def metrics_from_json(value: Any, where: str) -> MappingProxyType[str, FurtherMetric]:
    """What `metrics_to_json` wrote.

    Raises:
        PolicyError: a field is missing or of another type.
    """
    require(value, dict, where, "the further metrics")
    return MappingProxyType(
        {name: flat_from_json(FurtherMetric, item, where, f"the metric {name!r}") for name, item in value.items()}
    )


def recorded_measurement(policy: Policy, where: str = "the policy") -> Measurement | None:
    """What was measured when the policy was made, None where it does not say."""
    return _read_measurement(policy.provenance or {}, where)


def recorded_confirmation(policy: Policy, where: str = "the policy") -> Confirmation | None:
    """What confirmed the policy on the holdout split, None where it does not say."""
    return _read_confirmation(policy.provenance or {}, where)


_TYPES = {
    "tool_version": str,
    "study": str,
    "study_id": int,
    "candidate_id": int,
    "trial": int,
    "label": str,
    "device": dict,
    "metric": str,
    "constraints": dict,
    "batch_size": int,
}
FIELDS = (*_TYPES, "measured", "confirmed")


def check_provenance(provenance: Any, where: str) -> Mapping[str, Any] | None:
    """The provenance, when every field of it that this version knows has the right type.

    Raises:
        PolicyError: one has not.
    """
    if provenance is None:
        return None
    require(provenance, dict, where, "field 'provenance'")
    for field, kind in _TYPES.items():
        if field in provenance:
            get_field(provenance, field, kind, where, "the provenance")
    for key, value in provenance.get("device", {}).items():
        require(value, str, where, f"field {key!r} of the device")
    for name, drop in provenance.get("constraints", {}).items():
        if drop is not None:
            require(drop, str, where, f"the drop of the constraint on {name!r}")
    _read_measurement(provenance, where)
    _read_confirmation(provenance, where)
    checked: Mapping[str, Any] = provenance
    return checked


def _read_measurement(provenance: Mapping[str, Any], where: str) -> Measurement | None:
    value = provenance.get("measured")
    if value is None:
        return None
    thing = "the measurement"
    require(value, dict, where, thing)
    effective = require(value.get("effective", {}), dict, where, "the effective precisions")
    for layer, text in effective.items():
        require(text, str, where, f"the effective precision of layer {layer!r}")
    return Measurement(
        latency=_read_part(Latency, value, "latency", where, thing),
        quality=_read_part(Quality, value, "quality", where, thing),
        memory=_read_part(Memory, value, "memory", where, thing),
        effective=effective,
        metrics=metrics_from_json(value.get("metrics", {}), where),
        shapes=shapes_from_json(value.get("shapes", {}), where),
    )


def _read_confirmation(provenance: Mapping[str, Any], where: str) -> Confirmation | None:
    value = provenance.get("confirmed")
    if value is None:
        return None
    thing = "the confirmation"
    require(value, dict, where, thing)
    return Confirmation(
        latency=_read_part(Latency, value, "latency", where, thing),
        quality=_read_part(Quality, value, "quality", where, thing),
        metrics=metrics_from_json(value.get("metrics", {}), where),
        shapes=shapes_from_json(value.get("shapes", {}), where),
    )


def _read_part(cls: Any, holder: dict[str, Any], field: str, where: str, thing: str) -> Any:
    return flat_from_json(cls, get_field(holder, field, dict, where, thing), where, f"{field} of {thing}")

"""One policy layer by layer, one point in full, and the difference of two policies."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from tuner.front import Point
from tuner.leave_one_out import LayerEffect
from tuner.measurement import ALTERNATE, Confirmation, Failure, Latency
from tuner.policy import Fusion, Policy
from tuner.report import numbers
from tuner.report.front import point_json, timing_json
from tuner.report.json_text import finite
from tuner.report.metrics import drop_cell, metric_facts, metrics_report
from tuner.report.points import AS_REQUESTED, drop_text, kernels_text, latency_text, trial_text
from tuner.report.shapes import shape_facts, shapes_report
from tuner.report.table import DIM, YELLOW, Column, Row, write_table

if TYPE_CHECKING:
    from tuner.policy_file import LayerDifference

_LAYERS = (Column("layer"), Column("precision"), Column("kernel", spare=1), Column("ran as requested"))
_EFFECTS = (Column("layer"), Column("latency (95 %)"), Column("drop (95 %)"), Column("memory"), Column("trial"))
_DIFFERENCES = (Column("layer"), Column("before"), Column("after"))


def write_policy(policy: Policy, effective: Mapping[str, str], file: TextIO, *, width: int | None = None) -> None:
    """One line per layer: what was asked for and what the compiled program did; then what is rewritten across layers."""
    rows = []
    for name, assignment in policy.assignments:
        original = assignment.precision.is_original
        ran = numbers.MISSING if original else ran_text(effective.get(name, "unknown"))
        style = DIM if original else "" if ran == "yes" else YELLOW
        rows.append(Row((name, str(assignment.precision), assignment.kernel, ran), style))
    write_table(_LAYERS, rows, file, width=width)
    if policy.fusions:
        file.write(f"Fused: {', '.join(map(str, policy.fusions))}.\n")


def ran_text(effective: str) -> str:
    """`yes`, `no: f32` or `unknown`."""
    if effective == AS_REQUESTED:
        return "yes"
    kind, _, what = effective.partition(":")
    return f"no: {what.strip() or 'something else'}" if kind == "different" else "unknown"


def write_point(point: Point, file: TextIO, *, width: int | None = None, effects: Sequence[LayerEffect] = ()) -> None:
    """Every number of one point, then its layers, then what each costs and gains as far as that was measured."""
    measured = point.measurement
    facts = [
        ("trial", trial_text(point.trial)),
        ("label", point.label),
        *([("kernels", kernels_text(point.policy))] if kernels_text(point.policy) else []),
        ("on the front", "yes" if point.on_front else "no"),
        ("latency", f"{latency_text(measured.latency)}, {numbers.milliseconds(measured.latency.milliseconds)} ms"),
        *shape_facts(measured.shapes),
        *timing_facts(measured.latency),
        ("quality", numbers.quality(measured.quality.value)),
        ("drop", f"{drop_text(measured.quality)}, {measured.quality.examples} examples, {measured.quality.method}"),
        *metric_facts(measured.metrics),
        ("fidelity", f"relative error {measured.quality.fidelity:.2g}"),
        ("memory", numbers.size(measured.memory.total_bytes)),
        ("weights", numbers.size(measured.memory.weight_bytes)),
        ("confirmed", confirmation_text(point.confirmation)),
    ]
    if point.policy is not None and point.policy.calibrated_on is not None:
        facts.append(("calibrated", f"on {point.policy.calibrated_on}"))
    for name, text in facts:
        file.write(f"{name:<14}{text}\n")
    if point.policy is not None:
        file.write("\n")
        write_policy(point.policy, measured.effective, file, width=width)
    if effects:
        file.write("\nOne layer back to original, where that was measured too:\n")
        write_table(_EFFECTS, [_effect_row(effect) for effect in effects], file, width=width)


def timing_facts(latency: Latency) -> list[tuple[str, str]]:
    """What is known of a latency besides its ratio, as far as it is: (name, text)."""
    known = [
        f"{name} {numbers.milliseconds(value)} ms"
        for name, value in (("p95", latency.p95_ms), ("p99", latency.p99_ms))
        if math.isfinite(value)
    ]
    facts = [("slow calls", f"{', '.join(known)}, of {latency.calls} calls")] if known else []
    if math.isfinite(latency.throughput):
        facts.append(("throughput", f"{numbers.amount(round(latency.throughput))} examples/s"))
    if latency.baseline == ALTERNATE:
        facts.append(
            ("timed", "in blocks of calls, weights moved in between: intervals are wider than of single calls")
        )
    if latency.contended:
        facts.append(("contended", latency.contended))
    return facts


def _effect_row(effect: LayerEffect) -> Row:
    memory = f"{'-' if effect.memory_bytes < 0 else '+'}{numbers.size(abs(effect.memory_bytes))}"
    latency = numbers.signed_interval(
        effect.ratio, effect.ratio - effect.ratio_margin, effect.ratio + effect.ratio_margin
    )
    drop = numbers.signed_interval(effect.drop, effect.drop - effect.drop_margin, effect.drop + effect.drop_margin)
    return Row((effect.layer, latency, drop, memory, str(effect.trial)))


def effect_json(effect: LayerEffect) -> dict[str, Any]:
    """What putting one layer back to original changes."""
    return {
        "layer": effect.layer,
        "latency_ratio": finite(effect.ratio),
        "latency_margin": finite(effect.ratio_margin),
        "quality_drop": finite(effect.drop),
        "drop_margin": finite(effect.drop_margin),
        "memory_bytes": effect.memory_bytes,
        "trial": effect.trial,
    }


def confirmation_text(confirmation: Confirmation | Failure | None) -> str:
    """The second measurement in one line."""
    if confirmation is None:
        return "no"
    if isinstance(confirmation, Failure):
        return f"failed: {confirmation.cause}: {confirmation.message}"
    quality = confirmation.quality
    contended = f"; contended: {confirmation.latency.contended}" if confirmation.latency.contended else ""
    metrics = "".join(f", {name} {drop_cell(metric)}" for name, metric in confirmation.metrics.items())
    shapes = "".join(f", {name} {latency_text(shape.latency)}" for name, shape in confirmation.shapes.items())
    return (
        f"latency {latency_text(confirmation.latency)}{shapes}, holdout {numbers.quality(quality.value)}, "
        f"drop {drop_text(quality)}{metrics}, {quality.examples} examples{contended}"
    )


def full_point_json(point: Point, effects: Sequence[LayerEffect] = ()) -> dict[str, Any]:
    """The JSON form of `tuner show --json`: a front's point with kernels, the confirmation, and what layers cost."""
    kernels = {name: a.kernel for name, a in point.policy.assignments} if point.policy is not None else {}
    fusions = [] if point.policy is None else list(map(str, point.policy.fusions))
    form = point_json(point) | {"on_front": point.on_front, "kernels": kernels, "fusions": fusions}
    confirmation = point.confirmation
    if isinstance(confirmation, Confirmation):
        form["confirmation"] = confirmation_json(confirmation)
    elif isinstance(confirmation, Failure):
        form["confirmation"] = {"cause": confirmation.cause, "message": confirmation.message}
    else:
        form["confirmation"] = None
    return {"format": 1, **form, "without_layer": [effect_json(effect) for effect in effects]}


def confirmation_json(confirmation: Confirmation) -> dict[str, Any]:
    """Latency and holdout quality with their intervals."""
    latency, quality = confirmation.latency, confirmation.quality
    return {
        "latency_ratio": finite(latency.ratio),
        "latency_low": finite(latency.low),
        "latency_high": finite(latency.high),
        **timing_json(latency),
        "shapes": shapes_report(confirmation.shapes),
        "quality": finite(quality.value),
        "quality_drop": finite(quality.drop),
        "drop_low": finite(quality.drop_low),
        "drop_high": finite(quality.drop_high),
        "examples": quality.examples,
        "metrics": metrics_report(confirmation.metrics),
    }


def write_difference(
    differences: Sequence["LayerDifference"],
    file: TextIO,
    *,
    fusions: tuple[Sequence[Fusion], Sequence[Fusion]] = ((), ()),
    width: int | None = None,
) -> None:
    """One line per layer that differs, then the fusions that only one of the two policies has."""
    if differences:
        rows = [Row((d.name, _assigned(d.before), _assigned(d.after))) for d in differences]
        write_table(_DIFFERENCES, rows, file, width=width)
    else:
        file.write("The two policies assign the same precision and kernel to every layer.\n")
    for which, mine, theirs in (("before", *fusions), ("after", *fusions[::-1])):
        only = [str(fusion) for fusion in mine if fusion not in theirs]
        if only:
            file.write(f"Fused only {which}: {', '.join(only)}.\n")


def _assigned(assignment: object) -> str:
    return numbers.MISSING if assignment is None else str(assignment)

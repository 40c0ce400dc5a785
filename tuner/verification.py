"""Verification: does a policy file still do here what was recorded when it was exported?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.drop import Drop
from tuner.errors import InputError
from tuner.measurement import RESIDENT, Confirmation, Failure, Measurement, ShapeLatency, broken_constraints
from tuner.policy import Policy
from tuner.provenance import recorded_confirmation, recorded_measurement
from tuner.shapes import weights_text

if TYPE_CHECKING:  # traces with JAX when used
    from tuner.task import Task

DEFAULT_DROP = Drop(0.01)
# Two runs of one and the same program differ by more than their intervals say: layout and clocks differ between runs.
RUN_TO_RUN = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """A policy measured again, and what it is held against."""

    result: Confirmation | Failure
    # Recorded latency ratios, search and confirmation together; None where the file does not say.
    recorded_low: float | None
    recorded_high: float | None
    recorded_shapes: Mapping[str, ShapeLatency]  # where several kinds of call were timed
    recorded_drop: float | None  # on the holdout split where confirmed, else on the search split
    max_drop: Drop
    allowed_drop: float
    # What differs from the machine it was exported on: field -> (then, now).
    differences: Mapping[str, tuple[str, str]]

    @property
    def latency_holds(self) -> bool:
        """False when it is certainly slower than recorded; being faster is no reason to refuse it."""
        if isinstance(self.result, Failure):
            return False
        return self.recorded_high is None or self.result.latency.low <= self.recorded_high * (1 + RUN_TO_RUN)

    @property
    def quality_holds(self) -> bool:
        """False when it loses more quality on the holdout examples than allowed, or more of a constrained metric."""
        if isinstance(self.result, Failure):
            return False
        return self.result.quality.drop <= self.allowed_drop and not broken_constraints(self.result)

    @property
    def holds(self) -> bool:
        """True when both hold."""
        return self.latency_holds and self.quality_holds


def verify_policy(
    policy: Policy,
    task: "Task",
    *,
    where: str = "the policy",
    max_drop: Drop | str | float | None = None,
    isolation: str = "child",
    say: Callable[[str], object] = lambda text: None,
) -> Verification:
    """Measure a policy again, interleaved with the baseline and on the holdout split.

    Args:
        policy: as loaded from its file.
        task: what it was made for; another batch size is fine.
        where: what messages call the policy.
        max_drop: quality that may be lost; by default what the policy was exported with.
        isolation: "child": in a process of its own, which it may crash; "none": in this one.
        say: called with each remark for the user.

    Raises:
        PolicyError: it is for another program, or asks for what this version cannot run.
        InputError: the task or the drop cannot be used.
    """
    from tuner.capturing import capture_task
    from tuner.measure import device_fingerprint, make_evaluator
    from tuner.policy_fit import check_fits
    from tuner.program.policies import check_runs
    from tuner.task import check_task

    drop = Drop.parse(max_drop) if max_drop is not None else _exported_drop(policy)
    if policy.program is not None:
        task = task.with_split_scans(policy.program.split_scans)
    check_task(task)
    program = capture_task(task)
    check_fits(policy, program.signature, where)
    check_runs(policy, program, where)
    _check_metric(policy, task.metric.name, where)
    measured, confirmed = recorded_measurement(policy, where), recorded_confirmation(policy, where)
    kept = RESIDENT if measured is None else measured.latency.baseline
    with make_evaluator(task, program, isolation=isolation, say=say, max_drop=drop, baseline=kept) as evaluator:
        (result,) = evaluator.confirm([policy])
        allowed = drop.allowed(evaluator.baseline.quality.value)
    latencies = [record.latency for record in (measured, confirmed) if record is not None]
    best = confirmed or measured
    return Verification(
        result=result,
        recorded_low=min((latency.low for latency in latencies), default=None),
        recorded_high=max((latency.high for latency in latencies), default=None),
        recorded_shapes={} if best is None else best.shapes,
        recorded_drop=None if best is None else best.quality.drop,
        max_drop=drop,
        allowed_drop=allowed,
        differences=_differences(policy, device_fingerprint(), task.batch_size)
        | _other_shapes(measured, result if isinstance(result, Confirmation) else None),
    )


def _other_shapes(before: Measurement | None, now: Confirmation | None) -> dict[str, tuple[str, str]]:
    """What the latency is the sum of, where that was another sum."""
    texts = [weights_text(one.shapes) for one in (before, now) if one]
    return {"input shapes": (texts[0], texts[1])} if len(texts) == 2 and texts[0] != texts[1] else {}


def _exported_drop(policy: Policy) -> Drop:
    recorded = (policy.provenance or {}).get("max_drop")
    return Drop.parse(recorded) if isinstance(recorded, str | float) else DEFAULT_DROP


def _check_metric(policy: Policy, metric: str, where: str) -> None:
    recorded = (policy.provenance or {}).get("metric")
    if recorded is not None and recorded != metric:
        raise InputError(
            f"{where} was measured with the metric {recorded!r} and this task has {metric!r}, so the numbers do not "
            "compare; name the task it was searched with"
        )


def _differences(policy: Policy, device: Mapping[str, str], batch_size: int) -> dict[str, tuple[str, str]]:
    """What is not as it was, field by field."""
    provenance = policy.provenance or {}
    before = {key: str(value) for key, value in provenance.get("device", {}).items()}
    now = dict(device) if before else {}
    if "batch_size" in provenance:
        before["batch size"], now["batch size"] = str(provenance["batch_size"]), str(batch_size)
    fields = (*before, *(field for field in now if field not in before))
    pairs = {field: (before.get(field, "-"), now.get(field, "-")) for field in fields}
    return {field: pair for field, pair in pairs.items() if pair[0] != pair[1]}

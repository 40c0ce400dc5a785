"""What tables and pages say about one measured point."""

from search_spaces import ORIGINAL
from tuner.front import Point
from tuner.measurement import Failure, Latency, Measurement, Quality
from tuner.policy import PLAIN, Policy
from tuner.report import numbers

AS_REQUESTED = "as requested"
# A mixed policy's label lists its precisions; tables show as much as identifies it, `tuner show` all of it.
LABEL_WIDTH = 24
_KEPT = (str(ORIGINAL), "f32/f32/f32")


def latency_text(latency: Latency) -> str:
    """The ratio with its interval; the baseline's own ratio is 1 by definition and has none."""
    if latency.ratio == latency.low == latency.high:
        return numbers.ratio(latency.ratio)
    return numbers.ratio_interval(latency.ratio, latency.low, latency.high)


def drop_text(quality: Quality) -> str:
    """The drop with its interval; none for the baseline's own."""
    if quality.drop == quality.drop_low == quality.drop_high:
        return numbers.signed(quality.drop)
    return numbers.signed_interval(quality.drop, quality.drop_low, quality.drop_high)


def trial_text(trial: int) -> str:
    """The trial's number; reference points are no trials and have none."""
    return str(trial) if trial >= 0 else numbers.MISSING


def label_text(label: str) -> str:
    """The label, cut where it would crowd out the numbers."""
    return label if len(label) <= LABEL_WIDTH else f"{label[: LABEL_WIDTH - 3].rstrip(', ')}..."


def ran_as_requested(policy: Policy | None, measurement: Measurement) -> str:
    """`yes`, or how many layers ran in something else or could not be read back: never assumed."""
    if policy is None or policy.is_original:
        return numbers.MISSING
    total = sum(not precision.is_original for precision in policy.precisions.values())
    different = sum(text.startswith("different") for text in measurement.effective.values())
    same = sum(text == AS_REQUESTED for text in measurement.effective.values())
    unknown = total - different - same
    parts = [f"{different} different"] if different else []
    parts += [f"{unknown} unknown"] if unknown else []
    return f"no: {', '.join(parts)} of {total}" if parts else "yes"


def confirmed_text(point: Point) -> str:
    """`yes` with the drop on the holdout examples, `failed`, or `no`."""
    if point.confirmation is None:
        return "no"
    if isinstance(point.confirmation, Failure):
        return f"failed: {point.confirmation.cause}"
    return f"yes, {numbers.signed(point.confirmation.quality.drop)}"


def policy_text(policy: Policy | None) -> str:
    """How many layers run in each precision: `3 x i8/i8/i32, 1 x original`."""
    if policy is None:
        return numbers.MISSING
    counts: dict[str, int] = {}
    for precision in policy.precisions.values():
        counts[str(precision)] = counts.get(str(precision), 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (item[0] == str(ORIGINAL), -item[1], item[0]))
    return ", ".join(f"{count} x {text}" for text, count in ordered)


def kernels_text(policy: Policy | None) -> str:
    """How many layers run in each kernel besides the plain one: `16 x shifted, 3 x padded`; empty where none does."""
    counts: dict[str, int] = {}
    for _, assignment in policy.assignments if policy is not None else ():
        if assignment.kernel != PLAIN:
            counts[assignment.kernel] = counts.get(assignment.kernel, 0) + 1
    return ", ".join(
        f"{count} x {name}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def keeps_f32(policy: Policy | None) -> bool:
    """Whether other kernels are all that a policy changes: every layer is as written or in f32 throughout."""
    return policy is not None and all(str(precision) in _KEPT for precision in policy.precisions.values())

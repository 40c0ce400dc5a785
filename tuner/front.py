"""The front: which measured points no other beats, and which of them to take.

A point is compared by its estimates, not by its intervals. "Certainly better" is not transitive, so a front of points
that nothing certainly beats is crowded and depends on the order of asking; the intervals travel with the point, are
shown, soften the knee, and the confirmation round measures close neighbors against each other again.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType

from tuner.drop import Drop
from tuner.errors import GoalMissed, InputError
from tuner.leave_one_out import layer_losses
from tuner.measurement import ROUNDING, Confirmation, Failure, Measurement, broken_constraints
from tuner.policy import Policy

BASELINE = "baseline"
LATENCY, QUALITY, MEMORY = "latency", "quality", "memory"

# Objective -> the number to make small. Quality counts as its drop against the baseline on the same examples, which is
# right for metrics that grow and for losses alike.
_VALUES: Mapping[str, Callable[[Measurement], float]] = MappingProxyType(
    {
        LATENCY: lambda measurement: measurement.latency.ratio,
        QUALITY: lambda measurement: measurement.quality.drop,
        MEMORY: lambda measurement: float(measurement.memory.total_bytes),
    }
)
OBJECTIVES = tuple(_VALUES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One measured candidate, with the intervals of its numbers."""

    trial: int
    label: str
    # None for a reference point: a cast made by hand, which is compared but cannot be exported.
    policy: Policy | None
    measurement: Measurement
    confirmation: Confirmation | Failure | None = None
    on_front: bool = False

    def __repr__(self) -> str:
        from tuner.report.points import drop_text, latency_text

        latency, drop = latency_text(self.measurement.latency), drop_text(self.measurement.quality)
        return f"Point(trial {self.trial}, {self.label}: latency {latency}, drop {drop})"

    @property
    def is_baseline(self) -> bool:
        """True for the program as written."""
        return self.label == BASELINE

    @property
    def is_reference(self) -> bool:
        """True for a hand-made cast, which has no policy."""
        return self.policy is None

    @property
    def keeps_constraints(self) -> bool:
        """False when a further metric drops by more than its constraint allows; then no front holds it."""
        return not broken_constraints(self.measurement)

    @property
    def confirmed(self) -> bool:
        """True when it was measured again after the search and on the holdout split."""
        return isinstance(self.confirmation, Confirmation)


def values(point: Point, objectives: Sequence[str] = OBJECTIVES) -> tuple[float, ...]:
    """The point's numbers in these objectives, each to be made small.

    Raises:
        InputError: an objective is unknown.
    """
    return tuple(_VALUES[name](point.measurement) for name in check_objectives(objectives))


def check_objectives(objectives: Sequence[str]) -> tuple[str, ...]:
    """The objectives, when each is known and there is at least one.

    Raises:
        InputError: one is unknown or given twice, or there is none.
    """
    for name in objectives:
        if name not in _VALUES:
            raise InputError(f"unknown objective {name!r}; use {', '.join(OBJECTIVES)}")
    if not objectives or len(set(objectives)) < len(objectives):
        raise InputError(
            f"objectives {', '.join(objectives)!r}: give one or more of {', '.join(OBJECTIVES)}, each once"
        )
    return tuple(objectives)


def dominates(a: Point, b: Point, objectives: Sequence[str] = OBJECTIVES) -> bool:
    """True when `a` is nowhere worse than `b` and somewhere better, or `b` alone breaks a constraint.

    Never for NaN or infinite numbers, nor when `a` breaks a constraint.
    """
    ours, theirs = values(a, objectives), values(b, objectives)
    better = not b.keeps_constraints or _beats(ours, theirs)
    return a.keeps_constraints and _finite(ours) and _finite(theirs) and better


def pareto(points: Iterable[Point], objectives: Sequence[str] = OBJECTIVES) -> list[Point]:
    """The points that none dominates, best in the first objective first.

    Of points with equal numbers the policy with the lowest trial number stands for all. Points with a NaN or infinite
    number are left out, and so are those that break a constraint. A reference point is on the front when nothing dominates it, but pushes off only other
    reference points: it must not hide the best policy that can be exported.
    """
    kept: list[Point] = []
    policies: list[tuple[float, ...]] = []
    references: list[tuple[float, ...]] = []
    for point in (point for point in _ordered(points, objectives) if point.keeps_constraints):
        ours = values(point, objectives)
        rivals = policies + references if point.is_reference else policies
        # Equal to a kept one counts as beaten; a dominator always comes earlier in this order.
        if not any(theirs == ours or _beats(theirs, ours) for theirs in rivals):
            kept.append(point)
            (references if point.is_reference else policies).append(ours)
    return kept


def knee(points: Iterable[Point], objectives: Sequence[str] = OBJECTIVES) -> Point:
    """The point of the front nearest to having the best of everything.

    Each objective is scaled by its range on the front, or by the width of its interval where that is larger, so that
    differences inside the noise weigh little. Reference points do not count.

    Raises:
        GoalMissed: no point has a policy and finite numbers.
    """
    front = [point for point in pareto(points, objectives) if not point.is_reference]
    if not front:
        raise GoalMissed("no point was measured, so there is no knee; run `tuner search` for longer")
    table = [values(point, objectives) for point in front]
    columns = list(zip(*table, strict=True))
    best = [min(column) for column in columns]
    scales = [
        max(max(column) - min(column), median(_noise(point, name) for point in front)) or 1.0
        for name, column in zip(objectives, columns, strict=True)
    ]

    def distance(row: tuple[float, ...]) -> float:
        return math.hypot(*((own - ideal) / scale for own, ideal, scale in zip(row, best, scales, strict=True)))

    return min(zip(front, table, strict=True), key=lambda pair: distance(pair[1]))[0]


def choose(
    points: Iterable[Point],
    *,
    max_drop: Drop | str | float,
    baseline_quality: float,
    minimize: str = LATENCY,
    confirmed_only: bool = True,
) -> tuple[Point, list[Point]]:
    """The best point within the allowed drop and every constraint, and the better-looking points that the confirmation rejected.

    The numbers of the search split decide; the confirmation only confirms or rejects, and then the next point is
    tried. The baseline needs no confirmation, and is the answer only where nothing measured beats it.

    Args:
        points: any points of one study.
        max_drop: how much worse than the baseline the quality may be.
        baseline_quality: quality of the baseline on the search split; a relative drop is a share of it.
        minimize: "latency" or "memory".
        confirmed_only: whether points without a confirmation are passed over.

    Raises:
        GoalMissed: nothing meets the goal; says how near the best came.
        InputError: `minimize` or `max_drop` cannot be used.
    """
    if minimize not in (LATENCY, MEMORY):
        raise InputError(f"minimize is {minimize!r}; use {LATENCY} or {MEMORY}")
    drop = Drop.parse(max_drop)
    allowed = drop.allowed(baseline_quality) + ROUNDING
    order = (minimize, *(name for name in OBJECTIVES if name != minimize))
    ranked = [point for point in _ordered(points, order) if not point.is_reference]
    rejected: list[Point] = []
    passed: list[Point] = []
    for point in ranked:
        if point.is_baseline:
            if rejected or passed:
                break  # something looked better: then the program as written is no answer but the lack of one
            return point, []
        if point.measurement.quality.drop > allowed or not point.keeps_constraints:
            passed.append(point)
        elif not _rejected(point, allowed, minimize) and (point.confirmed or not confirmed_only):
            return point, rejected
        else:
            (passed if point.confirmation is None else rejected).append(point)
    raise GoalMissed(_how_near(drop, allowed, minimize, passed, rejected, ranked))


def _ordered(points: Iterable[Point], objectives: Sequence[str]) -> list[Point]:
    """Points with finite numbers, smallest first; ties by trial number, so that every run agrees, references last."""
    numbered = [(values(point, objectives), point) for point in points]
    finite = [(numbers, point.is_reference, point.trial, point) for numbers, point in numbered if _finite(numbers)]
    return [entry[-1] for entry in sorted(finite, key=lambda entry: entry[:-1])]


def _beats(ours: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    return ours != theirs and all(own <= other for own, other in zip(ours, theirs, strict=True))


def _finite(numbers: Iterable[float]) -> bool:
    return all(map(math.isfinite, numbers))


def _noise(point: Point, objective: str) -> float:
    """Width of the interval of one number of the point; 0 where none is known."""
    latency, quality = point.measurement.latency, point.measurement.quality
    widths = {LATENCY: latency.high - latency.low, QUALITY: quality.drop_high - quality.drop_low}
    width = widths.get(objective, 0.0)
    return width if math.isfinite(width) else 0.0


def _rejected(point: Point, allowed: float, minimize: str) -> bool:
    """True when the second measurement failed, dropped more than allowed, or is certainly no faster than the baseline."""
    if not isinstance(point.confirmation, Confirmation):
        return isinstance(point.confirmation, Failure)
    confirmation = point.confirmation
    slower = minimize == LATENCY and point.measurement.latency.ratio < 1 < confirmation.latency.low
    return slower or not confirmation.quality.drop <= allowed or bool(broken_constraints(confirmation))


def _how_near(
    drop: Drop, allowed: float, minimize: str, passed: list[Point], rejected: list[Point], ranked: list[Point]
) -> str:
    """Why nothing was chosen: the nearest miss, and what to do."""
    within = [p for p in passed if p.measurement.quality.drop <= allowed and p.keeps_constraints]
    constrained = sorted({name for point in ranked for name, m in point.measurement.metrics.items() if m.allowed >= 0})
    goal = f"no point within max drop {drop}{_and_constraints(constrained)}"
    if within:
        return (
            f"{goal} is confirmed: the best unconfirmed one is {_described(within[0])}; "
            "run the same `tuner search` again to confirm it, or take it with --unconfirmed"
        )
    if rejected:
        return (
            f"{goal} was confirmed on the holdout split: {len(rejected)} rejected, the best of them "
            f"{_described(rejected[0])}{_holdout(rejected[0])}; allow a larger --max-drop or search for longer"
        )
    if passed:
        nearest = min(passed, key=lambda point: (not point.keeps_constraints, point.measurement.quality.drop))
        better = "smaller" if minimize == MEMORY else "faster"
        return (
            f"{goal} is {better} than the baseline: the nearest is {_described(nearest)}{_held_back(nearest, ranked)}; "
            "allow a larger --max-drop or search for longer"
        )
    return f"{goal}: nothing was measured; run `tuner search` for longer"


def _described(point: Point) -> str:
    latency, quality = point.measurement.latency, point.measurement.quality
    return (
        f"trial {point.trial} ({point.label}) at {latency.ratio:.3g} of the baseline's latency with a drop of "
        f"{quality.drop:.4g} [{quality.drop_low:.4g}, {quality.drop_high:.4g}]{_broken(point.measurement)}"
    )


def _and_constraints(names: Sequence[str]) -> str:
    return f" and the {'constraint' if len(names) == 1 else 'constraints'} on {', '.join(names)}" if names else ""


def _broken(measured: Measurement | Confirmation) -> str:
    """What the constraints that do not hold have to say."""
    return "".join(
        f", and of {metric.drop:.4g} in {name} where {metric.allowed:.4g} is allowed"
        for name, metric in broken_constraints(measured).items()
    )


def _held_back(nearest: Point, points: Iterable[Point]) -> str:
    """The layers that cost the nearest miss its quality, as far as measured policies show it."""
    losses = layer_losses(nearest, points)[:3]
    if not losses:
        return ""
    named = ", ".join(f"{layer} ({precision} loses {loss:.2g})" for layer, precision, loss in losses)
    return f", held back most by {named}"


def _holdout(point: Point) -> str:
    if isinstance(point.confirmation, Failure):
        return f", which failed there: {point.confirmation.cause}"
    if point.confirmation is None:
        return ""
    latency, quality = point.confirmation.latency, point.confirmation.quality
    return f", and there a drop of {quality.drop:.4g}{_broken(point.confirmation)} at {latency.ratio:.3g}"

"""What a running search knows about its study without asking the database: best ratio, front size."""

from collections.abc import Sequence

from tuner.drop import Drop
from tuner.front import Point, pareto
from tuner.measurement import Failure, Measurement, broken_constraints
from tuner.policy import Policy
from tuner.report import numbers

Outcome = Measurement | Failure


class Scoreboard:
    """Counts what was measured.

    Args:
        drop: the allowed one.
        baseline_quality: on the search split.
        objectives: of the study.
    """

    def __init__(self, drop: Drop, baseline_quality: float, objectives: Sequence[str]) -> None:
        self.drop = drop
        self.allowed = drop.allowed(baseline_quality)
        self._objectives = tuple(objectives)
        self._front: list[Point] = []
        self.done = 0
        self.best_ratio: float | None = None

    @property
    def front_size(self) -> int:
        """Points on the front."""
        return len(self._front)

    def keep(self, number: int, label: str, policy: Policy | None, outcome: Outcome) -> None:
        """Take one outcome into account; hand-made reference points, which have no policy, are no trials."""
        if policy is not None:
            self.done += 1
        if isinstance(outcome, Failure):
            return
        # What was dominated once stays so; only the front needs to be compared again.
        point = Point(trial=number, label=label, policy=policy, measurement=outcome)
        self._front = pareto([*self._front, point], self._objectives)
        if policy is not None and outcome.quality.drop <= self.allowed and not broken_constraints(outcome):
            self.best_ratio = min(outcome.latency.ratio, self.best_ratio or outcome.latency.ratio)


def describe(outcome: Outcome) -> str:
    """An outcome in a few words."""
    if isinstance(outcome, Failure):
        return outcome.cause
    contended = ", contended" if outcome.latency.contended else ""
    return f"{numbers.ratio(outcome.latency.ratio)}, drop {numbers.signed(outcome.quality.drop)}{contended}"

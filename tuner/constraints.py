"""Constraints: the metrics of a task besides the one that is optimized, and how far each may drop."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.drop import Drop
from tuner.errors import InputError
from tuner.fingerprint import hash_text
from tuner.metrics import Metric, Score, find_metric

# What a user may write: metric -> allowed drop, None to measure and show it only.
Constraints = Mapping[str | Metric | Score, Drop | str | float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraint:
    """One further metric and the largest drop against the baseline that a candidate may have in it; None for any."""

    metric: Metric
    max_drop: Drop | None = None

    def __str__(self) -> str:
        return self.metric.name if self.max_drop is None else f"{self.metric.name} {self.max_drop}"

    @property
    def fingerprint(self) -> str:
        """Hex digest that changes with the metric and with the limit."""
        return hash_text(self.metric.fingerprint, str(self.max_drop))


def read_constraints(given: Any, objective: Metric) -> tuple[Constraint, ...]:
    """The constraints that a user wrote, in their order.

    Args:
        given: metric (name, `Metric` or callable) -> allowed drop, as in `max_drop`; None to show the metric only.
        objective: the metric that is optimized, which `max_drop` is for.

    Raises:
        InputError: one cannot be used; names it.
    """
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise InputError(
            f"constraints={given!r} is a {type(given).__name__}; give metrics with the drop that each may have, such as "
            "{'cross_entropy': '2%rel', 'agreement': 0.01}"
        )
    found = [Constraint(metric=find_metric(metric), max_drop=_drop(metric, drop)) for metric, drop in given.items()]
    names = [constraint.metric.name for constraint in found]
    for name in names:
        if name == objective.name:
            raise InputError(
                f"constraints name {name!r}, which is the metric that is optimized; its allowed drop is max_drop of "
                "the search, so leave it out here"
            )
        if names.count(name) > 1:
            raise InputError(f"constraints name {name!r} twice; give each metric a name of its own")
    return tuple(found)


def _drop(metric: Any, drop: Any) -> Drop | None:
    if drop is None:
        return None
    try:
        return Drop.parse(drop)
    except InputError as error:
        name = metric if isinstance(metric, str) else getattr(metric, "name", getattr(metric, "__name__", metric))
        raise InputError(f"the constraint on {name!r} cannot be used: {error}") from error

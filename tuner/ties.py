"""Ties: members of a front whose better quality is inside the noise, and the cheaper member that does as well.

The stored front compares estimates (see `tuner.front`), so it keeps a slower policy for a quality that is better by less
than anyone can tell. This second view marks such members; it removes none, because being tied is not transitive.
"""

from collections.abc import Iterable, Sequence

from tuner.front import OBJECTIVES, QUALITY, Point, check_objectives, values


def find_ties(front: Iterable[Point], objectives: Sequence[str] = OBJECTIVES) -> dict[int, Point]:
    """Trial of each front member that is tied with a cheaper one -> the cheapest such member.

    `b` is cheaper than `a` when it is nowhere larger in the objectives besides quality, and somewhere smaller. They are
    tied when the quality of one lies inside the 95 % interval of the other's. Without quality among the objectives, or
    with quality alone, there are no ties. Reference points are not compared.

    Args:
        front: the members of a front.
        objectives: what it is about.

    Raises:
        InputError: an objective is unknown.
    """
    costs = tuple(name for name in check_objectives(objectives) if name != QUALITY)
    if not costs or len(costs) == len(objectives):
        return {}
    members = [point for point in front if not point.is_reference]
    found = {}
    for point in members:
        own = values(point, costs)
        cheaper = [other for other in members if _is_cheaper(values(other, costs), own) and is_tied(point, other)]
        if cheaper:
            found[point.trial] = min(cheaper, key=lambda other: (*values(other, costs), other.trial))
    return found


def is_tied(a: Point, b: Point) -> bool:
    """True when the quality of one point lies inside the interval of the other's."""
    ours, theirs = a.measurement.quality, b.measurement.quality
    return (
        theirs.drop_low <= ours.drop <= theirs.drop_high or ours.drop_low <= theirs.drop <= ours.drop_high
    )  # never for NaN


def _is_cheaper(ours: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    return ours != theirs and all(own <= other for own, other in zip(ours, theirs, strict=True))

"""Hypervolume: what a front dominates up to a reference point, and what a further point would add. All is made small."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def undominated(points: Floats) -> Floats:
    """The points that none of them dominates, each once."""
    unique = np.unique(points, axis=0)
    no_worse = np.all(unique[:, None, :] <= unique[None, :, :], axis=2) & ~np.eye(len(unique), dtype=bool)
    kept: Floats = unique[~no_worse.any(axis=0)]
    return kept


def hypervolume(points: Floats, reference: Floats) -> float:
    """The volume between the points and the reference; 0 where none is better than it everywhere.

    Args:
        points: one row per point.
        reference: one number per objective.
    """
    inside = points[(points < reference).all(axis=1)] if len(points) else points
    if not len(inside):
        return 0.0
    front = undominated(inside)
    if front.shape[1] == 1:
        return float(reference[0] - front.min())
    order = np.argsort(front[:, -1])
    front = front[order]
    ends = np.append(front[1:, -1], reference[-1])
    heights = ends - front[:, -1]
    return float(
        sum(
            height * hypervolume(front[: number + 1, :-1], reference[:-1])
            for number, height in enumerate(heights)
            if height > 0
        )
    )


def improvements(candidates: Floats, front: Floats, reference: Floats) -> Floats:
    """What each candidate alone would add to the hypervolume of a front; for one, two or three objectives.

    Args:
        candidates: one row per candidate.
        front: one row per point that was measured.
        reference: one number per objective.
    """
    inside = front[(front < reference).all(axis=1)] if len(front) else front
    kept = undominated(inside) if len(inside) else np.zeros((0, len(reference)))
    if len(reference) == 1:
        best = kept.min() if len(kept) else reference[0]
        return np.asarray(np.maximum(best - candidates[:, 0], 0.0))
    if len(reference) == 2:
        return _added_area(candidates, kept, reference)
    order = np.argsort(kept[:, 2])
    kept = kept[order]
    starts = np.concatenate(([-np.inf], kept[:, 2]))
    ends = np.append(kept[:, 2], reference[2])
    added = np.zeros(len(candidates))
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        height = np.maximum(end - np.maximum(candidates[:, 2], start), 0.0)
        if height.any():
            below = undominated(kept[:number, :2]) if number else np.zeros((0, 2))
            added += height * _added_area(candidates[:, :2], below, reference[:2])
    return added


def _added_area(candidates: Floats, front: Floats, reference: Floats) -> Floats:
    """What each candidate adds in two objectives; the front holds no point that another dominates."""
    order = np.argsort(front[:, 0])
    xs = np.concatenate(([-np.inf], front[order, 0], [reference[0]]))
    ys = np.concatenate(([reference[1]], front[order, 1]))
    # Between two neighbors on the front, what is under the left one's y is not dominated yet.
    left, right = xs[:-1], xs[1:]
    widths = np.maximum(right[None, :] - np.maximum(candidates[:, :1], left[None, :]), 0.0)
    heights = np.maximum(ys[None, :] - candidates[:, 1:2], 0.0)
    return np.asarray((widths * heights).sum(axis=1))

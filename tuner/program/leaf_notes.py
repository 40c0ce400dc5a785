"""What no policy touches: parameters and inputs that are no floating-point numbers, named so that nobody looks for them."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from tuner.program.expression import Leaf, sources
from tuner.program.steps import Site

_MOST = 8


def notes_on_leaves(leaves: Sequence[tuple[str, Any]], sites: Sequence[Site]) -> list[str]:
    """One note that names integer, boolean and key leaves, or none.

    Args:
        leaves: (name, leaf of the parameters, or shape and dtype of an input), in order.
        sites: the operations with a weight; what one is made of is not left as it is.
    """
    used = frozenset[int]().union(*(sources(site.weight) for site in sites if site.weight is not None))
    kept = [
        f"{name} ({_dtype(leaf)})"
        for name, leaf in leaves
        if not jnp.issubdtype(_dtype(leaf), jnp.floating) and not (isinstance(leaf, Leaf) and leaf.index in used)
    ]
    if not kept:
        return []
    more = f", ... {len(kept) - _MOST} more" if len(kept) > _MOST else ""
    return [f"kept as they are, being no floating-point numbers: {', '.join(kept[:_MOST])}{more}"]


def _dtype(leaf: Any) -> Any:
    return leaf.aval.dtype if isinstance(leaf, Leaf) else leaf.dtype

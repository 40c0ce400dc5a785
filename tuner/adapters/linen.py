"""Flax Linen: module and variables -> function and parameters.

Collections other than "params", and random keys, travel under `~batch_stats`, `~rngs` and the like. They are read only, so a
module that distinguishes training from evaluation must be told: `call=lambda model, x: model(x, train=False)`.

Back into Linen: a prepared model is an `apply_fn` with its `params`, for a `TrainState` or wherever the two were passed before.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tuner.adapters.library import load
from tuner.adapters.nested import Nested, carry, separate
from tuner.errors import InputError


def to_function(
    module: Any,
    variables: Mapping[str, Any],
    *,
    rngs: Mapping[str, Any] | None = None,
    call: Callable[..., Any] | None = None,
) -> tuple[Callable[..., Any], Nested]:
    """`apply(params, *inputs)` of a Linen module, and its variables with the parameters outermost.

    Args:
        module: the module.
        variables: what `module.init` returned, or what training made of it.
        rngs: random keys by name, where the module draws numbers in evaluation too.
        call: `call(module, *inputs)`, as a Linen method.
    """
    load("flax.linen", extra="flax")
    core = load("flax.core", extra="flax")
    collections = dict(core.unfreeze(core.meta.unbox(variables)))
    if "params" not in collections:
        raise InputError(
            f"variables hold the collections {', '.join(collections) or 'nothing'}, and no 'params'; "
            "give what module.init returned"
        )

    def apply(params: Nested, *inputs: Any) -> Any:
        params, carried = separate(params)
        rngs = carried.pop("rngs", None)
        return module.apply({"params": params, **carried}, *inputs, rngs=rngs, method=call)

    return apply, carry(collections.pop("params"), **collections, rngs=dict(rngs) if rngs else None)

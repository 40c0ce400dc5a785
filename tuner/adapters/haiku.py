"""Haiku: what `hk.transform` or `hk.transform_with_state` gave, and its parameters -> function and parameters.

State travels under `~state`, a random key under `~rng`. A function that distinguishes training from evaluation is told with
`call=lambda model, x: model(x, is_training=False)`.

Back into Haiku: `hk.Transformed(init, lambda params, rng, *inputs: prepared(params, *inputs))`, with `prepared.params` as its
parameters.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tuner.adapters.library import load
from tuner.adapters.nested import Nested, carry, separate
from tuner.errors import InputError


def to_function(
    transformed: Any,
    params: Mapping[str, Any],
    state: Mapping[str, Any] | None = None,
    *,
    rng: Any = None,
    call: Callable[..., Any] | None = None,
) -> tuple[Callable[..., Any], Nested]:
    """`apply(params, *inputs)` of a transformed function, and its parameters with the state beside them.

    Args:
        transformed: what `hk.transform` or `hk.transform_with_state` returned, also under `hk.without_apply_rng`.
        params: its parameters.
        state: its state, when it has one.
        rng: a random key, where the function draws numbers in evaluation too.
        call: `call(model, *inputs)`, where `model` is the function with its parameters, state and key bound.
    """
    hk = load("haiku", extra="haiku")
    stateful = isinstance(transformed, hk.TransformedWithState)
    if stateful and state is None:
        raise InputError(
            "a function of hk.transform_with_state needs its state; give from_haiku(function, params, state)"
        )
    takes_rng = "rng" in list(inspect.signature(transformed.apply).parameters)[: 2 + stateful]

    def apply(params: Nested, *inputs: Any) -> Any:
        params, carried = separate(params)
        bound = (
            params,
            *([carried.get("state", {})] if stateful else []),
            *([carried.get("rng")] if takes_rng else []),
        )

        def model(*arguments: Any, **settings: Any) -> Any:
            outputs = transformed.apply(*bound, *arguments, **settings)
            return outputs[0] if stateful else outputs

        return model(*inputs) if call is None else call(model, *inputs)

    return apply, carry(dict(params), state=state, rng=rng)

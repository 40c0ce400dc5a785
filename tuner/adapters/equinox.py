"""Equinox: a model -> function and parameters, in inference mode (`eqx.nn.inference_mode`).

Equinox models take one example, so a batch goes through `jax.vmap(model)` unless `call` says otherwise. All arrays of the model
are in the parameters; of a stateful model the state too, under `~state`.

Back into Equinox: `jax.tree_util.Partial(prepared, prepared.params)` is a callable pytree, as a module is; it takes a batch.
"""

from collections.abc import Callable
from typing import Any

from tuner.adapters.library import load
from tuner.adapters.nested import Nested, by_name, carry, separate


def to_function(
    model: Any, state: Any = None, *, call: Callable[..., Any] | None = None
) -> tuple[Callable[..., Any], Nested]:
    """`apply(params, *inputs)` of an Equinox module, and its arrays by name.

    Args:
        model: the module.
        state: the `eqx.nn.State` of a stateful model, whose calls are `model(*example, state) -> (output, state)`.
        call: `call(model, *inputs)` for a batch; for a stateful model `call(model, state, *inputs)`.
    """
    eqx = load("equinox", extra="equinox")
    arrays, static = eqx.partition(eqx.nn.inference_mode(model), eqx.is_array)
    params, to_arrays = by_name(arrays)
    carried, to_state = by_name(state)

    def apply(params: Nested, *inputs: Any) -> Any:
        params, collections = separate(params)
        module = eqx.combine(to_arrays(params), static)
        if state is None:
            return (call or _batched)(module, *inputs)
        return (call or _batched_with_state)(module, to_state(collections["state"]), *inputs)

    return apply, carry(params, state=carried or None)


def _batched(model: Any, *inputs: Any) -> Any:
    import jax

    return jax.vmap(model)(*inputs)


def _batched_with_state(model: Any, state: Any, *inputs: Any) -> Any:
    import jax

    axes = (*(0 for _ in inputs), None)
    return jax.vmap(model, axis_name="batch", in_axes=axes, out_axes=(0, None))(*inputs, state)[0]

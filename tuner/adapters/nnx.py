"""Flax NNX: `nnx.Module` -> function and parameters, called in evaluation mode (`model.eval()`).

Variables that are no `nnx.Param` (running averages, keys, counters, those of a kind of your own) travel under `~state`.

Back into NNX: keep the packed arrays in a variable of the module that uses them,

    class Tuned(nnx.Module):
        def __init__(self, prepared):
            self.run = prepared
            self.packed = nnx.Variable(prepared.params)

        def __call__(self, *inputs):
            return self.run(self.packed.get_value(), *inputs)
"""

from collections.abc import Callable
from typing import Any

from tuner.adapters.library import load
from tuner.adapters.nested import Nested, by_name, carry, separate


def to_function(model: Any, *, call: Callable[..., Any] | None = None) -> tuple[Callable[..., Any], Nested]:
    """`apply(params, *inputs)` of an NNX module, and its variables by name; the module itself is not changed."""
    nnx = load("flax.nnx", extra="flax")
    graph, learned, others = nnx.split(model, nnx.Param, ...)
    params, to_learned = by_name(learned, drop_last="value")
    state, to_others = by_name(others, drop_last="value")

    def apply(params: Nested, *inputs: Any) -> Any:
        params, carried = separate(params)
        module = nnx.merge(graph, to_learned(params), to_others(carried.get("state", {})))
        module.eval()
        return module(*inputs) if call is None else call(module, *inputs)

    return apply, carry(params, state=state or None)

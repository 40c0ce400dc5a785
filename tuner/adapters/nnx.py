"""Flax NNX: `nnx.Module` -> function and parameters, called in evaluation mode (`model.eval()`).

Running averages, keys and counters are variables of the same tree, so they lie among the parameters, under their own paths.

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
from tuner.adapters.nested import Nested, by_name


def to_function(model: Any, *, call: Callable[..., Any] | None = None) -> tuple[Callable[..., Any], Nested]:
    """`apply(params, *inputs)` of an NNX module, and its variables by name; the module itself is not changed."""
    nnx = load("flax.nnx", extra="flax")
    graph, state = nnx.split(model)
    params, to_state = by_name(state, drop_last="value")

    def apply(params: Nested, *inputs: Any) -> Any:
        module = nnx.merge(graph, to_state(params))
        module.eval()
        return module(*inputs) if call is None else call(module, *inputs)

    return apply, params

"""Keras 3 on the JAX back end: a built model -> function and parameters, called with `training=False`.

Variables are called by their Keras paths. Those that are not trained lie among them: Keras does not tell running averages from
the weights of a frozen layer, which are tuned like any other. A model with several inputs takes them as one list or dict, here
as there.

Back into Keras: `keras.layers.JaxLayer(lambda params, inputs, training: prepared(params, inputs), params=prepared.params)` is a
layer like any other.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tuner.adapters.library import load
from tuner.adapters.nested import Nested, Path, nest, pick
from tuner.errors import InputError


def to_function(model: Any, *, call: Callable[..., Any] | None = None) -> tuple[Callable[..., Any], Nested]:
    """`apply(params, *inputs)` of a built Keras model or layer, and its variables by path."""
    keras = load("keras", extra="keras")
    if keras.backend.backend() != "jax":
        raise InputError(
            f"Keras runs on {keras.backend.backend()!r}; set KERAS_BACKEND=jax in the environment before keras is imported"
        )
    if not model.built:
        raise InputError(
            f"the Keras model {model.name!r} is not built and has no variables yet; call it once, or build it"
        )
    trained, others = model.trainable_variables, model.non_trainable_variables
    paths = _distinct([variable.path for variable in (*trained, *others)])

    def apply(params: Nested, *inputs: Any) -> Any:
        values = pick(params, paths)

        def bound(*arguments: Any, **settings: Any) -> Any:
            settings = {"training": False, **settings}
            return model.stateless_call(values[: len(trained)], values[len(trained) :], *arguments, **settings)[0]

        return bound(*inputs) if call is None else call(bound, *inputs)

    return apply, nest(paths, [variable.value for variable in (*trained, *others)])


def _distinct(texts: Sequence[str]) -> list[Path]:
    """The paths; where models inside the model use the same one, the first part is numbered: `conv.1/kernel`."""
    seen = Counter[str]()
    paths = []
    for text in texts:
        first, *rest = text.split("/")
        paths.append((f"{first}.{seen[text]}" if seen[text] else first, *rest))
        seen[text] += 1
    return paths

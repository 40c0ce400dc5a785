"""A rewritten function has no gradients: rounding has none, and call boundaries with custom rules were opened."""

from collections.abc import Callable
from typing import Any

import jax

NO_GRADIENTS = (
    "a prepared model cannot be differentiated: its policy was measured for inference, and rounding has no gradient; "
    "differentiate the original function"
)


def refuse_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; differentiating it raises TypeError with a clear sentence."""
    guarded = jax.custom_jvp(function)

    @guarded.defjvp
    def _refuse(primals: Any, tangents: Any) -> Any:
        raise TypeError(NO_GRADIENTS)

    return guarded

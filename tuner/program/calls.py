"""Which equations hold a jaxpr, and what capture does with each: look inside, or keep it whole.

Called functions (`jit`, `remat`, custom rules) are looked into: their equations join the caller's. That is right for
inference, which is all a policy is for; gradients of a rewritten function are refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner import _jax_compat as compat


@dataclass(frozen=True, slots=True)
class Body:
    """The jaxpr of a called function, with its constants; its inputs are the equation's operands, or those named."""

    jaxpr: Any
    consts: list[Any]
    # Positions of the operands that it receives; None for all of them.
    received: tuple[int, ...] | None = None

    def arguments(self, operands: Sequence[Any]) -> list[Any]:
        """What the function receives of the equation's operands."""
        return list(operands) if self.received is None else [operands[i] for i in self.received]


Opener = Callable[[Any], Body | None]
_OPENERS: dict[str, Opener] = {}


def opens(*primitives: str) -> Callable[[Opener], Opener]:
    """Register how an equation of these primitives is looked into."""

    def register(opener: Opener) -> Opener:
        for name in primitives:
            if name in _OPENERS:
                raise ValueError(f"primitive {name!r} already has an opener")
            _OPENERS[name] = opener
        return opener

    return register


def body_of(eqn: Any) -> Body | None:
    """The called function's body, or None when the equation is no call that can be looked into."""
    opener = _OPENERS.get(eqn.primitive.name)
    return opener(eqn) if opener else None


@opens("jit", "pjit")
def _jit(eqn: Any) -> Body | None:
    return Body(*compat.open_jaxpr(eqn.params["jaxpr"])) if compat.is_plain_jit(eqn) else None


@opens("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
def _call(eqn: Any) -> Body | None:
    for name in ("call_jaxpr", "fun_jaxpr"):
        if name in eqn.params:
            return Body(*compat.open_jaxpr(eqn.params[name]))
    return None


@opens("remat2", "checkpoint", "remat")
def _remat(eqn: Any) -> Body | None:
    return None if eqn.params.get("differentiated") else Body(*compat.open_jaxpr(eqn.params["jaxpr"]))


@opens("custom_linear_solve")
def _linear_solve(eqn: Any) -> Body | None:
    """Forward, a linear solve runs its `solve` function alone, on that function's constants and the right sides."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    after = first + lengths.solve + lengths.transpose_solve
    received = (*range(first, first + lengths.solve), *range(after, len(eqn.invars)))
    return Body(*compat.open_jaxpr(jaxprs.solve), received)


# What holds a jaxpr of scalars, such as the `add` of a reduction: there is nothing to find inside.
HARMLESS = frozenset(
    {
        "reduce",
        "reduce_window",
        "select_and_scatter",
        "scatter",
        "scatter-add",
        "scatter_add",
        "scatter-mul",
        "scatter_mul",
    }
    | {"scatter-min", "scatter_min", "scatter-max", "scatter_max", "scatter_sub", "scatter-sub", "reduce_precision"}
)

CALLBACKS = frozenset({"debug_callback", "debug_print", "pure_callback", "io_callback"})

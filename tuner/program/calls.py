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


def run_inside(body: Body, operands: Sequence[Any], run: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """The results of a called function, each of its equations run by `run(equation, values)` in its own context."""
    env: dict[Any, Any] = dict(zip(body.jaxpr.invars, body.arguments(operands), strict=True))
    env.update(zip(body.jaxpr.constvars, body.consts, strict=True))
    for inner in body.jaxpr.eqns:
        values = [atom.val if isinstance(atom, compat.Literal) else env[atom] for atom in inner.invars]
        with compat.equation_context(inner, compat.scope_of(inner)):
            env.update(zip(inner.outvars, run(inner, values), strict=True))
    return [atom.val if isinstance(atom, compat.Literal) else env[atom] for atom in body.jaxpr.outvars]


def follow_inside(body: Body, marks: Sequence[bool], follow: Callable[[Any, list[bool]], list[bool]]) -> list[bool]:
    """Which results of a called function are marked when these operands are.

    Args:
        body: the function.
        marks: one per operand of its equation; constants and literals have none.
        follow: (equation inside, marks of its operands) -> marks of its results.
    """
    env = dict(zip(body.jaxpr.invars, body.arguments(marks), strict=True))
    marked = lambda atom: not isinstance(atom, compat.Literal) and env.get(atom, False)
    for inner in body.jaxpr.eqns:
        env.update(zip(inner.outvars, follow(inner, list(map(marked, inner.invars))), strict=True))
    return list(map(marked, body.jaxpr.outvars))


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

"""Which equations hold a jaxpr, and what capture does with each: look inside, or keep it whole.

Called functions (`jit`, `remat`, custom rules) are looked into: their equations join the caller's. That is right for
inference, which is all a policy is for; gradients of a rewritten function are refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner import _jax_compat as compat


@dataclass(frozen=True, slots=True)
class Body:
    """The jaxpr of a called function, with its constants; its inputs are the equation's operands."""

    jaxpr: Any
    consts: list[Any]


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


# What holds a jaxpr and runs it under control flow: its layers are listed, and stay as written.
KEPT_WHOLE = {
    "scan": "inside a scan, which cannot be assigned yet",
    "while": "inside a while loop, which cannot be assigned yet",
    "cond": "inside a cond, which cannot be assigned yet",
    "shard_map": "inside a shard_map, which cannot be assigned yet",
    "custom_linear_solve": "inside a linear solve, which cannot be assigned yet",
}

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


def inner_executions(eqn: Any) -> int:
    """How often the held jaxpr runs per execution of the equation; 1 where the trace cannot know."""
    return int(eqn.params["length"]) if eqn.primitive.name == "scan" else 1


def inner_operands(eqn: Any, jaxpr: Any, references: list[Any]) -> list[Any]:
    """For each input of the held jaxpr the outer operand it receives, or None where that cannot be told."""
    name = eqn.primitive.name
    if name == "scan":
        carried = range(eqn.params["num_consts"], eqn.params["num_consts"] + eqn.params["num_carry"])
        return [None if i in carried else reference for i, reference in enumerate(references)]
    if name == "cond":
        return references[1:]
    if name == "while":
        return _while_operands(eqn, jaxpr, references)
    return references if len(references) == len(jaxpr.invars) else [None] * len(jaxpr.invars)


def _while_operands(eqn: Any, jaxpr: Any, references: list[Any]) -> list[Any]:
    cond_count, body_count = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    body, _ = compat.open_jaxpr(eqn.params["body_jaxpr"])
    consts = references[cond_count : cond_count + body_count] if jaxpr is body else references[:cond_count]
    return [*consts, *[None] * (len(jaxpr.invars) - len(consts))]

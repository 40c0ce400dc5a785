"""Narrow regions: what a layer hands on in 16 bits stays so through operations that bear it.

A precision with an output format (`bf16/bf16/f32->bf16`) opens a region at its layer's result. Operations from a closed list
run in that format while they read values of the region; everything else, and every result of the program, carry or branch,
gets the value back in its original dtype. What feeds a sensitive operation in the same name scope, or reads what one has
computed, stays as written: so softmax, norms and losses keep their arithmetic.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from tuner import _jax_compat as compat
from tuner.policy import Assignment
from tuner.program.calls import body_of
from tuner.program.steps import Reference, Step

ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "max", "min", "neg", "select_n", "clamp", "erf", "erfc", "tanh", "logistic", "add_any"}
)
MOVING = frozenset(
    {
        "reshape",
        "transpose",
        "broadcast_in_dim",
        "slice",
        "dynamic_slice",
        "concatenate",
        "squeeze",
        "expand_dims",
        "rev",
    }
    | {"pad", "copy", "copy_p", "pvary", "gather"}
)
# The closed list: what may run in 16 bits between two layers.
NARROW = ELEMENTWISE | MOVING
# What loses its meaning in 16 bits, or computes what must not.
SENSITIVE = frozenset(
    {"exp", "exp2", "expm1", "log", "log1p", "pow", "integer_pow", "square", "sqrt", "rsqrt", "cbrt", "div", "rem"}
    | {"cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "reduce_precision"}
    | {"reduce", "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_window", "reduce_window_sum"}
    | {"argmax", "argmin", "sort", "erf_inv", "lgamma", "digamma"}
)


@dataclass(frozen=True, slots=True)
class Regions:
    """Where values are held in 16 bits.

    Attributes:
        slots: slot held narrow -> the dtype it had.
        steps: identity of a step that runs narrow -> the dtype it runs in.
    """

    slots: Mapping[int, Any] = field(default_factory=dict)
    steps: Mapping[int, Any] = field(default_factory=dict)


def find_regions(steps: Sequence[Step], assignments: Mapping[int, Assignment]) -> Regions:
    """The regions that the output formats of a policy open, in these steps and in what they hold."""
    if not any(a.precision.output is not None for a in assignments.values()):
        return Regions()
    slots: dict[int, Any] = {}
    running: dict[int, Any] = {}
    _walk(steps, assignments, slots, running)
    return Regions(slots, running)


def _walk(
    steps: Sequence[Step], assignments: Mapping[int, Assignment], slots: dict[int, Any], running: dict[int, Any]
) -> None:
    protected = _protected(steps)
    held: dict[int, Any] = {}  # slot -> the dtype it is held in
    for step in steps:
        dtype: Any = None
        if step.site is not None:
            assignment = assignments.get(id(step.site))
            output = None if assignment is None else assignment.precision.output
            dtype = None if output is None else jnp.dtype(output.dtype)
        elif id(step) not in protected and is_narrowable(step.eqn):
            dtype = next((held[o] for o in step.operands if isinstance(o, int) and o in held), None)
            if dtype is not None:
                running[id(step)] = dtype
        if dtype is not None:
            for slot, variable in zip(step.results, step.eqn.outvars, strict=True):
                if slot is not None and _is_wider(variable.aval.dtype, dtype):
                    slots[slot], held[slot] = variable.aval.dtype, dtype
        for body in step.bodies:
            _walk(body.steps, assignments, slots, running)


def _is_wider(original: Any, narrow: Any) -> bool:
    return bool(jnp.issubdtype(original, jnp.floating)) and jnp.dtype(original).itemsize > narrow.itemsize


def is_narrowable(eqn: Any) -> bool:
    """True when an equation is on the closed list, or calls a function that holds nothing else."""
    if eqn.primitive.name in NARROW:
        return True
    body = body_of(eqn)
    return body is not None and not eqn.effects and all(map(is_narrowable, body.jaxpr.eqns))


def run_narrow(eqn: Any, operands: Sequence[Any], dtype: Any) -> list[Any]:
    """The results of a narrowable equation, its floating operands and results in a narrow dtype."""
    body = body_of(eqn) if eqn.primitive.name not in NARROW else None
    narrow = [_cast(operand, dtype) for operand in operands]
    if body is None:
        return compat.bind(eqn, narrow)
    env: dict[Any, Any] = dict(zip(body.jaxpr.invars, body.arguments(narrow), strict=True))
    env.update(zip(body.jaxpr.constvars, body.consts, strict=True))
    for inner in body.jaxpr.eqns:
        values = [atom.val if isinstance(atom, compat.Literal) else env[atom] for atom in inner.invars]
        with compat.equation_context(inner, compat.scope_of(inner)):
            env.update(zip(inner.outvars, run_narrow(inner, values, dtype), strict=True))
    return [atom.val if isinstance(atom, compat.Literal) else env[atom] for atom in body.jaxpr.outvars]


def _cast(value: Any, dtype: Any) -> Any:
    if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        return value
    return jnp.asarray(value).astype(dtype)


def _protected(steps: Sequence[Step]) -> frozenset[int]:
    """Steps that feed a sensitive one in their own name scope, directly or through others there, or read its result."""
    readers: dict[int, list[Step]] = {}
    sensitive_results: set[int] = set()
    for step in steps:
        for slot in _slots(step.operands):
            readers.setdefault(slot, []).append(step)
        if step.eqn.primitive.name in SENSITIVE:
            sensitive_results.update(slot for slot in step.results if slot is not None)
    protected: set[int] = set()
    for step in reversed(steps):  # readers come after what they read
        scope = str(step.scope)
        for reader in (reader for slot in _slots(step.results) for reader in readers.get(slot, ())):
            feeds = reader.eqn.primitive.name in SENSITIVE or (id(reader) in protected and reader.site is None)
            if feeds and str(reader.scope) == scope:
                protected.add(id(step))
        if sensitive_results.intersection(_slots(step.operands)):
            protected.add(id(step))
    return frozenset(protected)


def _slots(references: Sequence[Reference | None]) -> Iterator[int]:
    return (reference for reference in references if isinstance(reference, int))

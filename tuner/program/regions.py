"""Narrow regions: what a layer hands on in 16 bits stays so through operations that bear it.

A precision with an output format (`bf16/bf16/f32->bf16`) opens a region at its layer's result. Operations from a closed list
run in that format while they read values of the region; everything else, and every result of the program, carry or branch,
gets the value back in its original dtype. Sensitive operations (`sensitive.py`) stay as written, whatever they read: so do
softmax, norms and losses.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from tuner import _jax_compat as compat
from tuner.policy import Assignment
from tuner.program.calls import body_of, follow_inside, run_inside
from tuner.program.sensitive import find_sensitive
from tuner.program.steps import Step

# relu and its like are `max`; `add_any` is the `add` of a gradient.
ARITHMETIC = frozenset(
    {"add", "sub", "mul", "max", "min", "neg", "select_n", "clamp", "erf", "erfc", "tanh", "logistic", "add_any"}
)
MOVEMENT = frozenset(
    {"reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "rev", "pad", "tile", "copy", "copy_p"}
    | {"slice", "dynamic_slice", "dynamic_update_slice", "gather", "split", "unstack", "concatenate", "stack"}
    | {"name", "stop_gradient", "pvary", "reshard", "sharding_constraint"}  # the value itself, with a remark for JAX
)
# The closed list: what may run in 16 bits between two layers. Nothing else ever does.
NARROW = ARITHMETIC | MOVEMENT


@dataclass(frozen=True, slots=True)
class Regions:
    """Where values are held in 16 bits.

    Attributes:
        slots: slot held narrow -> what it was: its shape, dtype and weak type.
        steps: identity of a step that runs narrow -> the dtype it runs in.
    """

    slots: Mapping[int, Any] = field(default_factory=dict)
    steps: Mapping[int, Any] = field(default_factory=dict)


def find_regions(steps: Sequence[Step], assignments: Mapping[int, Assignment]) -> Regions:
    """The regions that the output formats of a policy open, in these steps and in what they hold."""
    if not any(a.precision.output is not None for a in assignments.values()):
        return Regions()
    finder = _Finder(assignments, find_sensitive(steps))
    finder.walk(steps)
    return Regions(finder.slots, finder.running)


class _Finder:
    """Follows narrow values from the layers that hand them on, in the order in which the steps run."""

    def __init__(self, assignments: Mapping[int, Assignment], sensitive: frozenset[int]) -> None:
        self.assignments = assignments
        self.sensitive = sensitive
        self.slots: dict[int, Any] = {}
        self.running: dict[int, Any] = {}
        self._held: dict[int, Any] = {}  # slot -> the dtype that it is held in

    def walk(self, steps: Sequence[Step]) -> None:
        """Follows them through these steps and through what control flow among them holds."""
        for step in steps:
            for slot in step.results:  # the same slot may have been narrow in another segment of a scan
                self._held.pop(-1 if slot is None else slot, None)
            if step.site is not None:
                assignment = self.assignments.get(id(step.site))
                output = None if assignment is None else assignment.precision.output
                if output is not None:
                    self._hold(step, jnp.dtype(output.dtype), (True,))
            elif step.bodies:
                if any(id(site) in self.assignments for site in step.sites()):  # else it runs as a whole
                    for body in step.bodies:
                        self.walk(body.steps)
            elif id(step) not in self.sensitive:
                self._follow(step)

    def _follow(self, step: Step) -> None:
        """Runs a step narrow when the narrow values it reads have one dtype, and some operation in it may."""
        dtypes = [self._held.get(operand) if isinstance(operand, int) else None for operand in step.operands]
        narrow = {dtype for dtype in dtypes if dtype is not None}
        if len(narrow) != 1 or step.eqn.effects:
            return
        (dtype,) = narrow
        results = _narrow_results(step.eqn, [held is not None for held in dtypes], dtype)
        if any(results):
            self.running[id(step)] = dtype
            self._hold(step, dtype, results)

    def _hold(self, step: Step, dtype: Any, narrow: Iterable[bool]) -> None:
        for slot, variable, is_narrow in zip(step.results, step.eqn.outvars, narrow, strict=True):
            if slot is not None and is_narrow and is_wider(variable.aval, dtype):
                self.slots[slot], self._held[slot] = variable.aval, dtype


def is_wider(aval: Any, narrow: Any) -> bool:
    """True for a floating value that takes more bits than a narrow dtype; not everything that JAX traces has a dtype."""
    if not hasattr(aval, "dtype") or not jnp.issubdtype(aval.dtype, jnp.floating):
        return False
    return bool(jnp.dtype(aval.dtype).itemsize > jnp.dtype(narrow).itemsize)


def _narrow_results(eqn: Any, held: Sequence[bool], dtype: Any) -> list[bool]:
    """Which results of an equation are narrow when these operands are; a called function is looked into."""
    if eqn.primitive.name in NARROW:
        return [any(held) and is_wider(variable.aval, dtype) for variable in eqn.outvars]
    body = body_of(eqn)
    if body is None:
        return [False] * len(eqn.outvars)
    return follow_inside(body, held, lambda inner, inside: _narrow_results(inner, inside, dtype))


def run_narrow(eqn: Any, operands: Sequence[Any], dtype: Any) -> list[Any]:
    """The results of an equation of which some operands are held in a narrow dtype.

    An operation of the closed list runs in that dtype, any other on operands that are widened again; a called function is
    run equation by equation.
    """
    if eqn.primitive.name in NARROW:
        return compat.bind(eqn, [_cast(operand, dtype) for operand in operands])
    body = body_of(eqn)
    if body is None:
        return compat.bind(eqn, [widen(value, atom.aval) for value, atom in zip(operands, eqn.invars, strict=True)])

    def run(inner: Any, values: list[Any]) -> list[Any]:
        held = any(_is_held(value, atom.aval, dtype) for value, atom in zip(values, inner.invars, strict=True))
        return run_narrow(inner, values, dtype) if held else compat.bind(inner, values)

    return run_inside(body, operands, run)


def widen(value: Any, aval: Any) -> Any:
    """The value in the dtype, and with the weak type, that the program has there."""
    if not hasattr(aval, "dtype") or value.dtype == aval.dtype:
        return value
    wide = value.astype(aval.dtype)
    return compat.weak(wide) if aval.weak_type else wide


def _is_held(value: Any, aval: Any, dtype: Any) -> bool:
    return is_wider(aval, dtype) and jnp.result_type(value) == dtype


def _cast(value: Any, dtype: Any) -> Any:
    if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        return value
    return jnp.asarray(value).astype(dtype)

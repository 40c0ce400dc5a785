"""Checked: a prepared model that refuses to hand on NaN or infinite values, and names the layer where they began.

Every floating input, every layer's result and every output is reduced to one number that says whether all of it is finite.
The first fault is carried through loops and branches as a value, so the model stays a pure function and nothing is called
back while all is well. Who calls the model gets the fault and an exception made of it. Inside a program that somebody else
compiles only a callback can raise: where there is a fault, the outputs go through one, the program fails as a whole, and
no caller gets the values. With several devices that would leave the others waiting for the one that failed, so there it is
refused.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tuner import _jax_compat as compat
from tuner.errors import NonFiniteError, PolicyError
from tuner.policy import Policy
from tuner.program import kernels
from tuner.program.layer import INPUT
from tuner.program.plan import Plan
from tuner.program.steps import Site, Step

# A fault is the position of a layer in its policy, or one more than the last for the outputs.
NO_FAULT = -1


class FiniteCheck:
    """A `Watch` that keeps the first array that is not finite."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._numbers = {layer.name: number for number, layer in enumerate(plan.program.layers)}
        self.fault: Any = jnp.full((), NO_FAULT, jnp.int32)

    def received(self, position: int, given: Any, kept: Any) -> None:
        """An input."""
        number = self._plan.program.input_layers[position]
        if number is not None:
            self._check(kept, number)

    def operation(self, site: Site, operands: Sequence[Any], packed: Mapping[str, Any] | None, result: Any) -> None:
        """A layer's operation; what a static scale makes integers of would hide there what is not finite."""
        if packed is not None and "input_scale" in packed:
            self._check(operands[kernels.activations_of(site)], self._number(site))
        self._check(result, self._number(site))

    def inside(self, step: Step) -> "FiniteCheck | None":
        """It looks into loops and branches; what runs on the devices of a mesh has no fault in common."""
        return None if step.eqn.primitive.name == "shard_map" else self

    def passed(self, step: Step, results: Sequence[Any]) -> None:
        """What such a step gives, on account of its last layer."""
        *_, last = map(self._number, step.sites())
        for result in results:
            self._check(result, last)

    def finished(self, outputs: Sequence[Any]) -> None:
        """The outputs."""
        for output in outputs:
            self._check(output, len(self._numbers))

    def carried(self) -> list[Any]:
        """The fault so far."""
        return [self.fault]

    def resume(self, carried: Sequence[Any]) -> None:
        """Goes on from a fault."""
        (self.fault,) = carried

    def _number(self, site: Site) -> int:
        return self._numbers[self._plan.names[id(site)]]

    def _check(self, value: Any, number: int) -> None:
        if not jnp.issubdtype(jnp.result_type(value), jnp.inexact) or jnp.size(value) == 0:
            return
        # The maximum hands NaN on, and takes one pass over the values.
        bad = ~jnp.isfinite(jnp.max(jnp.abs(value)))
        self.fault = jnp.where(bad & (self.fault == NO_FAULT), jnp.int32(number), self.fault)


def raise_for(fault: Any, policy: Policy, plan: Plan) -> None:
    """Returns where there is no fault.

    Args:
        fault: one, or one per example of a vmapped model.
        policy: what ran.
        plan: any plan of it.

    Raises:
        NonFiniteError: there is a fault.
    """
    numbers = np.asarray(fault).reshape(-1)
    found = numbers[numbers != NO_FAULT]
    if len(found) == 0:
        return
    number = int(found[0])
    if number == len(policy.names):
        raise NonFiniteError(
            "every layer's results are finite and outputs are NaN or infinite, through what is computed after the last "
            "layer; leave the check out where the function means it"
        )
    name, assignment = policy.assignments[number]
    if plan.program.layers[number].kind == INPUT:
        raise NonFiniteError(
            f"input {name!r} ({assignment.precision}) holds NaN or infinite values; mend what calls the model"
        )
    raise NonFiniteError(
        f"layer {name!r} ({assignment.precision}){_among(name, plan)} is the first whose results are NaN or infinite; run it in a wider "
        "format: tuner.find_stability(apply, params, policy, inputs) shows the numbers"
    )


def _among(name: str, plan: Plan) -> str:
    """Whom else it may have been, for what is not looked into."""
    for step in plan.steps:
        names = {plan.names[id(site)] for site in step.sites()}
        if step.eqn.primitive.name == "shard_map" and name in names and len(names) > 1:
            return ", or another layer inside the same shard_map,"
    return ""


def refuse_inside(fault: Any, outputs: list[Any], complain: Callable[[Any], None]) -> list[Any]:
    """The outputs, in a program that is being traced and fails where there is a fault.

    Raises:
        PolicyError: there are several devices.
    """
    if jax.device_count() > 1:
        raise PolicyError(
            "a model that checks itself cannot stop a compiled program where there are several devices; call the model "
            "itself, which compiles it and raises, or compile `model.checked`, which returns (fault, outputs)"
        )
    numeric = [not jnp.issubdtype(output.dtype, jax.dtypes.extended) for output in outputs]
    given = [output for output, is_numeric in zip(outputs, numeric, strict=True) if is_numeric]
    shapes = [jax.ShapeDtypeStruct(output.shape, output.dtype) for output in given]

    def hand_back(fault: Any, given: list[Any]) -> list[Any]:
        complain(fault)  # inside a vmapped program this is called for every example, faulty or not
        return given

    def call(fault: Any, given: list[Any]) -> list[Any]:
        results: list[Any] = jax.pure_callback(hand_back, shapes, fault, given, vmap_method="sequential")
        return results

    checked = iter(jax.lax.cond(fault == NO_FAULT, lambda fault, given: given, call, fault, given))
    kept = [next(checked) if is_numeric else output for output, is_numeric in zip(outputs, numeric, strict=True)]
    weak = [jax.typeof(output).weak_type for output in outputs]  # which no callback keeps
    return [compat.weak(output) if is_weak else output for output, is_weak in zip(kept, weak, strict=True)]

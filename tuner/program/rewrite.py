"""Rewrite: a Program and a Plan -> the program's outputs from packed parameters and inputs.

One loop over the program's steps. A layer's operation runs through its kernel; every other equation is bound again
unchanged. What depends on parameters alone is computed when a step asks for it, so that what only a packed weight needed
is never computed at all.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp

from search_spaces.quantize import quantize_with, round_to
from tuner import _jax_compat as compat
from tuner.policy import Assignment
from tuner.program import control_flow, kernels
from tuner.program.expression import Slice, evaluate
from tuner.program.kernels.operands import Held, Packed, widened
from tuner.program.layer_scope import layer_scope
from tuner.program.passing import run_held
from tuner.program.placement import place
from tuner.program.plan import Plan
from tuner.program.regions import run_narrow, widen
from tuner.program.steps import Body, Reference, Site, Step
from tuner.program.watch import Watch


def run(
    plan: Plan,
    leaves: Sequence[Any],
    packed: Mapping[str, Any],
    rows: Mapping[str, Any],
    inputs: Sequence[Any],
    watch: Watch | None = None,
    machine: type["Machine"] | None = None,
) -> list[Any]:
    """The flat outputs of the rewritten program.

    Args:
        plan: what runs how.
        leaves: parameter values by position; None for those not in `plan.needed`.
        packed: packed weights by slot name.
        rows: what the segments of cut scans read of stacked parameters, by name.
        inputs: the flat inputs, floating ones in their own dtype or in that of their input layer.
        watch: who looks on.
        machine: how steps are run; by default as the plan says.
    """
    program = plan.program
    received = list(map(receive, inputs, program.input_avals, plan.input_assignments))
    if watch is not None:
        for position, (given, kept) in enumerate(zip(inputs, received, strict=True)):
            watch.received(position, given, kept)
    values = dict(zip(program.input_slots, received, strict=True))
    running = (machine or Machine)(plan, leaves, packed, rows, values, {}, watch)
    for step, freed in zip(plan.steps, plan.freed, strict=True):
        running.step(step)
        for slot in freed:
            running.values.pop(slot, None)
    outputs = [running.read(output) for output in program.outputs]
    if watch is not None:
        watch.finished(outputs)
    return outputs


def receive(value: Any, aval: Any, assignment: Assignment) -> Any:
    """An input as the program reads it: rounded to its layer's format, in its own dtype."""
    if assignment.precision.is_original:
        return value
    format = assignment.precision.activations
    value = jnp.asarray(value)
    if value.dtype != jnp.dtype(format.dtype):
        value = round_to(value, format)
    return value.astype(aval.dtype)


def laid_out(packed: Packed, axes: tuple[int, ...] | None, site: Site, assignment: Assignment) -> dict[str, Any]:
    """A packed weight as an operation's kernel takes it, where the program wants it.

    Args:
        packed: the weight.
        axes: the permutation that the kernel wants, None for none.
        site: the operation.
        assignment: what it runs in.
    """
    if site.placement is None:
        return kernels.turn(packed, axes)
    order = kernels.kernel_of(site, assignment).order(site)
    with compat.equation_context(site.placement.eqn, compat.empty_scope()):  # before it, another mesh may be in force
        return place(site.placement, kernels.turn(packed, axes), order)


class Machine:
    """The values of one run, at one depth of control flow."""

    def __init__(
        self,
        plan: Plan,
        leaves: Sequence[Any],
        packed: Mapping[str, Any],
        rows: Mapping[str, Any],
        values: dict[int, Any],
        memo: dict[int, list[Any]],
        watch: Watch | None = None,
    ) -> None:
        self.plan = plan
        self.leaves = leaves
        self.packed = packed
        self.rows = rows
        self.values = values
        self.memo = memo
        self.watch = watch

    def read(self, reference: Reference) -> Any:
        """The value of a slot or an expression, in the dtype that the program has there."""
        if not isinstance(reference, int):
            return evaluate(reference, self.leaves, self.memo)
        value, wide = self.values[reference], self.plan.regions.slots.get(reference)
        if isinstance(value, Held):
            return value.wide
        return value if wide is None else widen(value, wide)

    def _held(self, reference: Reference) -> Any:
        """The value as it is held: inside a narrow region in 16 bits, before a layer perhaps in its integers."""
        return self.values[reference] if isinstance(reference, int) else evaluate(reference, self.leaves, self.memo)

    def _keep(self, slot: int, result: Any) -> None:
        """Keeps a result, in the integers of the operation that reads it where the plan says so."""
        reader = self.plan.passes.slots.get(slot)
        if reader is not None:
            assignment, scale = (
                self.plan.assignments[id(reader)],
                self.packed[self.plan.slots[id(reader)]]["input_scale"],
            )
            aval = reader.eqn.invars[kernels.activations_of(reader)].aval
            values = quantize_with(result, assignment.precision.activations, scale)
            result = Held(values, scale, str(aval.dtype))
        self.values[slot] = result

    def needs(self, piece: Slice) -> bool:
        """True when something besides a packed weight reads this slice."""
        return id(piece) in self.plan.read_slices

    def rows_in(self, body: Body) -> dict[int, Any]:
        """What a segment of a scan reads of stacked parameters, by argument position."""
        named = ((position, self.plan.rows.get((id(body), position))) for position in body.slices)
        return {position: self.rows[found.name] for position, found in named if found is not None}

    def packed_in(self, body: Body) -> dict[str, Any]:
        """Packed weights that are stacked along the iterations of a body."""
        return {name: self.packed[name] for name in self.plan.stacked_in(body)}

    def split_axes(self, body: Body, name: str) -> tuple[Any, ...]:
        """The mesh axes that a packed weight of a `shard_map` body is split over."""
        return self.plan.split_axes(body, name)

    def carried(self) -> list[Any]:
        """What who looks on takes along."""
        return [] if self.watch is None else self.watch.carried()

    def resume(self, carried: Sequence[Any]) -> None:
        """Gives it back to who looks on."""
        if self.watch is not None:
            self.watch.resume(carried)

    def step(self, step: Step) -> None:
        """Runs one step and keeps its results."""
        opened = bool(step.bodies) and self.plan.opens(step)
        results = self._control_flow(step) if opened else self.operation(step)
        for slot, result in zip(step.results, results, strict=True):
            if slot is not None:
                self._keep(slot, result)

    def operation(self, step: Step) -> list[Any]:
        """The results of one equation, a layer's through its kernel."""
        site = step.site
        if id(step) in self.plan.passes.steps:
            with compat.equation_context(step.eqn, step.scope):
                return run_held(step.eqn, list(map(self._held, step.operands)))
        if site is None:
            narrow = self.plan.regions.steps.get(id(step))
            if narrow is None:
                return compat.bind_within(step.eqn, step.scope, list(map(self.read, step.operands)))
            with compat.equation_context(step.eqn, step.scope):
                return run_narrow(step.eqn, [widened(self._held(operand)) for operand in step.operands], narrow)
        assignment, slot = self.plan.assignments.get(id(site)), self.plan.slots.get(id(site))
        read = self.read if assignment is None else self._held  # a kernel holds its operands in formats of its own
        operands = [
            None if slot is not None and position == site.weight_operand else read(operand)
            for position, operand in enumerate(step.operands)
        ]
        with compat.equation_context(step.eqn, layer_scope(step.scope, self.plan.names[id(site)])):
            weight = None
            if slot is not None and assignment is not None:
                weight = laid_out(self.packed[slot], self.plan.turns[id(site)], site, assignment)
            if assignment is None:
                results = compat.bind(step.eqn, operands)
            else:
                results = [kernels.run(site, assignment, weight, operands)]
            if self.watch is not None:
                self.watch.operation(site, list(map(widened, operands)), weight, results[0])
            return results

    def _control_flow(self, step: Step) -> list[Any]:
        for expression in self.plan.known_before(step):
            self.read(expression)  # here, so that it is not computed again in every iteration
        inside = None if self.watch is None else self.watch.inside(step)
        with compat.equation_context(step.eqn, step.scope):
            results = control_flow.run_step(step, self, partial(self._body, inside))
        if self.watch is not None and inside is None:
            self.watch.passed(step, results)
        return results

    def _body(
        self,
        watch: Watch | None,
        body: Body,
        own: Sequence[Any],
        slices: dict[int, Any],
        packed: dict[str, Any],
        carried: Sequence[Any] = (),
    ) -> tuple[list[Any], list[Any]]:
        """One run of a body: what it computes is its own, what is around it can be read."""
        inner = type(self)(
            self.plan, self.leaves, {**self.packed, **packed}, self.rows, dict(self.values), dict(self.memo), watch
        )
        inner.memo.update({id(body.slices[position]): [value] for position, value in slices.items()})
        inner.values.update(zip(body.own_slots, own, strict=True))
        inner.resume(carried)
        for step in body.steps:
            inner.step(step)
        return [inner.read(output) for output in body.outputs], inner.carried()

"""Rewrite: a Program and a Policy -> a function of packed parameters and inputs.

One loop over the program's steps. A layer's operation runs through its kernel; every other equation is bound again
unchanged. What depends on parameters alone is computed when a step asks for it, so that what only a packed weight needed
is never computed at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from search_spaces.quantize import round_to
from tuner import _jax_compat as compat
from tuner.policy import Assignment, Policy
from tuner.program import kernels
from tuner.program.expression import Leaf, evaluate, sources
from tuner.program.layer_scope import layer_scope
from tuner.program.program import Program, Reference, Site, Step, last_uses


@dataclass(frozen=True, eq=False, slots=True)
class Rewrite:
    """Which sites of a program run through a kernel, and in which slot of the packed parameters each weight is.

    Attributes:
        assignments: identity of a site -> its assignment, for sites that do not stay as written.
        slots: identity of a site with a weight -> name of its packed weight.
        names: identity of a site -> its layer's name, for all sites.
        input_assignments: one per input leaf.
        needed: the parameter leaves that are still read besides the packed weights.
        freed: for each step the slots that nothing reads after it.
    """

    program: Program
    assignments: Mapping[int, Assignment]
    slots: Mapping[int, str]
    names: Mapping[int, str]
    input_assignments: tuple[Assignment, ...]
    needed: frozenset[int]
    freed: tuple[tuple[int, ...], ...]


def plan(program: Program, policy: Policy) -> Rewrite:
    """The rewrite that a policy asks for; the policy must be for this program."""
    assignments: dict[int, Assignment] = {}
    slots: dict[int, str] = {}
    for layer, sites in zip(program.layers, program.sites, strict=True):
        assignment = policy[layer.name]
        if assignment.precision.is_original:
            continue
        packed: list[Site] = []
        for site in sites:
            assignments[id(site)] = assignment
            if site.weight_operand is None:
                continue
            twin = next((i for i, other in enumerate(packed) if _packs_alike(site, other)), len(packed))
            if twin == len(packed):
                packed.append(site)
            slots[id(site)] = layer.name if twin == 0 else f"{layer.name}#{twin}"
    chosen = [Assignment() if i is None else policy[program.layers[i].name] for i in program.input_layers]
    return Rewrite(
        program=program,
        assignments=assignments,
        slots=slots,
        names=program.layer_of_site(),
        input_assignments=tuple(chosen),
        needed=_needed_leaves(program, slots),
        freed=tuple(last_uses(program.steps, program.outputs)),
    )


def _packs_alike(site: Site, other: Site) -> bool:
    """True when two sites of a layer read the very same packed weight."""
    same_weight = site.weight is other.weight or (
        isinstance(site.weight, Leaf) and isinstance(other.weight, Leaf) and site.weight.index == other.weight.index
    )
    return same_weight and kernels.shared_axes(site) == kernels.shared_axes(other)


def _needed_leaves(program: Program, slots: Mapping[int, str]) -> frozenset[int]:
    """The parameter leaves that are still read besides the packed weights."""
    needed: set[int] = set()
    for step in program.steps:
        packed = step.site.weight_operand if step.site is not None and id(step.site) in slots else None
        for position, operand in enumerate(step.operands):
            if position != packed and not isinstance(operand, int):
                needed |= sources(operand)
    for output in program.outputs:
        if not isinstance(output, int):
            needed |= sources(output)
    return frozenset(needed)


def run(rewrite: Rewrite, leaves: Sequence[Any], packed: Mapping[str, Any], inputs: Sequence[Any]) -> list[Any]:
    """The flat outputs of the rewritten program.

    Args:
        rewrite: what runs how.
        leaves: parameter values by position; None for those not in `rewrite.needed`.
        packed: packed weights by slot name.
        inputs: the flat inputs, floating ones in their own dtype or in that of their input layer.
    """
    program = rewrite.program
    values: dict[int, Any] = {}
    memo: dict[int, list[Any]] = {}

    def read(reference: Reference) -> Any:
        return values[reference] if isinstance(reference, int) else evaluate(reference, leaves, memo)

    for place, value, aval, assignment in zip(
        program.input_slots, inputs, program.input_avals, rewrite.input_assignments, strict=True
    ):
        values[place] = receive(value, aval, assignment)
    for step, freed in zip(program.steps, rewrite.freed, strict=True):
        for slot, result in zip(step.results, _run_step(rewrite, step, read, packed), strict=True):
            if slot is not None:
                values[slot] = result  # noqa: PERF403
        for dead in freed:
            values.pop(dead, None)
    return [read(output) for output in program.outputs]


def _run_step(rewrite: Rewrite, step: Step, read: Any, packed: Mapping[str, Any]) -> list[Any]:
    site = step.site
    if site is None:
        operands = [read(operand) for operand in step.operands]
        with compat.equation_context(step.eqn, step.scope):
            return compat.bind(step.eqn, operands)
    assignment = rewrite.assignments.get(id(site))
    slot = rewrite.slots.get(id(site))
    operands = [
        None if slot is not None and position == site.weight_operand else read(operand)
        for position, operand in enumerate(step.operands)
    ]
    with compat.equation_context(step.eqn, layer_scope(step.scope, rewrite.names[id(site)])):
        if assignment is None:
            return compat.bind(step.eqn, operands)
        return [kernels.run(site, assignment.precision, packed[slot] if slot is not None else None, operands)]


def receive(value: Any, aval: Any, assignment: Assignment) -> Any:
    """An input as the program reads it: rounded to its layer's format, in its own dtype."""
    if assignment.precision.is_original:
        return value
    format = assignment.precision.activations
    value = jnp.asarray(value)
    if value.dtype != jnp.dtype(format.dtype):
        value = round_to(value, format)
    return value.astype(aval.dtype)

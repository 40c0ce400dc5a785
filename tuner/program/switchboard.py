"""Switchboard: one compiled program in which a run-time index decides what precision each layer runs in.

Every layer's operation is a `lax.switch` over the precisions that the layer may take, and the weights of all of them lie
side by side. So what any policy does to the outputs costs a run, and no compilation. It is for effects only: its time says
nothing about the time of a policy. What a precision with `->OUTPUT` hands on is rounded to that format, and what follows
runs as written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from search_spaces import ORIGINAL, Precision
from search_spaces.quantize import round_to
from tuner import _jax_compat as compat
from tuner.policy import Assignment, Policy
from tuner.program import kernels
from tuner.program.layer import Layer
from tuner.program.layer_scope import layer_scope
from tuner.program.plan import Plan, plan
from tuner.program.policies import original_policy
from tuner.program.prepare import LAYERS, PARAMETERS, pack
from tuner.program.program import Program
from tuner.program.rewrite import Machine, laid_out, receive, run
from tuner.program.steps import Body, Site, Step
from tuner.scales import Calibration

_SWITCHES = "switches"


class CannotSwitch(Exception):
    """Why there is no switchboard of a program, in words for the user."""


@dataclass(frozen=True, eq=False, slots=True)
class Alternative:
    """One way to run an operation: its assignment, and the packed weight with how its kernel wants it turned."""

    assignment: Assignment
    slot: str | None
    turn: tuple[int, ...] | None


@dataclass(frozen=True, eq=False, slots=True)
class SwitchPlan(Plan):
    """A plan in which operations have alternatives.

    Attributes:
        alternatives: identity of a site -> its ways to run besides the one that is written.
        positions: layer name -> its place among the switches.
        levels: the plans that the alternatives are of.
    """

    alternatives: Mapping[int, tuple[Alternative, ...]] = field(default_factory=dict)
    positions: Mapping[str, int] = field(default_factory=dict)
    levels: tuple[Plan, ...] = ()

    def stacked_in(self, body: Body) -> list[str]:
        """Names of the packed weights, of all levels, that are stacked along the iterations of a body."""
        return [_slot(number, name) for number, level in enumerate(self.levels) for name in level.stacked_in(body)]

    def split_axes(self, body: Body, name: str) -> tuple[Any, ...]:
        """The mesh axes that a packed weight of a `shard_map` body is split over."""
        number, _, own = name.partition(":")
        return self.levels[int(number)].split_axes(body, own)


class Switchboard:
    """Every precision of every layer in one program.

    Args:
        program: whose layers.
        params: its parameters.
        choices: layer name -> the precisions it may take, `original` or not.
        kernel: (layer name, precision) -> the kernel that runs it.
        calibration: the numbers that precisions need; one that has none is left out.

    Attributes:
        params: the parameters and all packed weights.

    Raises:
        CannotSwitch: there is none for such a program.
    """

    def __init__(
        self,
        program: Program,
        params: Any,
        choices: Mapping[str, Sequence[Precision]],
        kernel: Mapping[tuple[str, Precision], str],
        calibration: Calibration | None = None,
    ) -> None:
        calibration = calibration or Calibration()
        if program.signature.split_scans:
            raise CannotSwitch("its layers are listed by iteration of a scan")
        self._different = {
            layer.name: tuple(
                precision
                for precision in _different(layer, choices.get(layer.name, ()))
                if not kernels.needs_numbers(layer.kind, precision) or calibration.has(layer.name, str(precision))
            )
            for layer in program.layers
        }
        self._program = program
        self._plan = _plan(program, self._different, kernel, calibration)
        packed = pack(self._plan, params)
        for number, level in enumerate(self._plan.levels):
            packed[LAYERS] |= {_slot(number, name): part for name, part in pack(level, params)[LAYERS].items()}
        self.params = packed

    def switches(self, precisions: Mapping[str, Precision]) -> NDArray[np.int32]:
        """The indices that make the program run these precisions; what is not named runs as written.

        A precision that holds every number of the layer as it is runs as written, too.
        """
        set_to = np.zeros(len(self._different), np.int32)
        for position, (name, found) in enumerate(self._different.items()):
            precision = precisions.get(name, ORIGINAL)
            set_to[position] = found.index(precision) + 1 if precision in found else 0
        return set_to

    def __call__(self, params: Any, switches: Any, *inputs: Any) -> Any:
        """What `apply` returns with these switches; a pure function, to be jitted once.

        Args:
            params: `self.params`, or the same placed elsewhere.
            switches: as `switches` gives them.
            *inputs: as `apply` takes them.
        """
        leaves = [params[PARAMETERS].get(path) for path in self._program.leaf_paths]
        packed = {**params[LAYERS], _SWITCHES: switches}
        outputs = run(self._plan, leaves, packed, {}, self._receive(switches, inputs), machine=_Switching)
        return jax.tree_util.tree_unflatten(self._program.output_tree, outputs)

    def _receive(self, switches: Any, inputs: tuple[Any, ...]) -> list[Any]:
        """The flat inputs, each rounded as its switch says."""
        flat, program = jax.tree_util.tree_leaves(inputs), self._program
        for number, position in enumerate(program.input_layers):
            found = () if position is None else self._different[program.layers[position].name]
            if position is not None and found:
                aval = program.input_avals[number]
                ways = [partial(receive, aval=aval, assignment=Assignment(precision=p)) for p in (ORIGINAL, *found)]
                flat[number] = jax.lax.switch(switches[position], ways, jnp.asarray(flat[number]))
        return flat


def single_changes(program: Program, choices: Mapping[str, Sequence[Precision]]) -> list[tuple[str, Precision]]:
    """Every layer in every precision that may change the outputs, in program order."""
    return [(layer.name, p) for layer in program.layers for p in _different(layer, choices.get(layer.name, ()))]


class _Switching(Machine):
    """Runs an operation that has alternatives in the one that its layer's switch says."""

    plan: SwitchPlan

    def operation(self, step: Step) -> list[Any]:
        site = step.site
        ways = () if site is None else self.plan.alternatives.get(id(site), ())
        if site is None or not ways:
            return Machine.operation(self, step)
        name = self.plan.names[id(site)]
        weights = [None if way.slot is None else self.packed[way.slot] for way in ways]
        branches = [lambda operands, weights: compat.bind(step.eqn, operands)]
        branches += [partial(_run, site, way, number) for number, way in enumerate(ways)]
        switch = self.packed[_SWITCHES][self.plan.positions[name]]
        with compat.equation_context(step.eqn, layer_scope(step.scope, name)):
            results: list[Any] = jax.lax.switch(switch, branches, list(map(self.read, step.operands)), weights)
            return results


def _run(site: Site, way: Alternative, number: int, operands: list[Any], weights: list[Any]) -> list[Any]:
    """The result of an operation in one of its alternatives, in the dtype that is written."""
    precision = way.assignment.precision
    assignment = replace(way.assignment, precision=replace(precision, output=None))
    weight = None if way.slot is None else laid_out(weights[number], way.turn, site, assignment)
    if weight is not None:
        operands = [None if position == site.weight_operand else value for position, value in enumerate(operands)]
    result = kernels.run(site, assignment, weight, operands)
    return [result if precision.output is None else round_to(result, precision.output)]


def _plan(
    program: Program,
    different: Mapping[str, Sequence[Precision]],
    kernel: Mapping[tuple[str, Precision], str],
    calibration: Calibration,
) -> SwitchPlan:
    """The plan of the program as written, with every level's way to run each operation as an alternative."""
    written = plan(program, original_policy(program), watched=True)
    levels = []
    for number in range(max(map(len, different.values()), default=0)):
        taken = {name: found[number] for name, found in different.items() if number < len(found)}
        levels.append(plan(program, calibration.complete(_policy(program, taken, kernel))))
    alternatives = {
        id(site): tuple(
            Alternative(
                level.assignments[id(site)], _slot_of(number, level.slots.get(id(site))), level.turns.get(id(site))
            )
            for number, level in enumerate(levels)
            if id(site) in level.assignments
        )
        for sites in program.sites
        for site in sites
    }
    positions = {layer.name: position for position, layer in enumerate(program.layers)}
    fields = {name: getattr(written, name) for name in Plan.__dataclass_fields__}
    return SwitchPlan(**fields, alternatives=alternatives, positions=positions, levels=tuple(levels))


def _policy(program: Program, taken: Mapping[str, Precision], kernel: Mapping[tuple[str, Precision], str]) -> Policy:
    """A policy of one level; it is not checked, since nobody sees it."""
    written = original_policy(program)
    chosen = {
        name: Assignment(precision=precision, kernel=kernel.get((name, precision), Assignment().kernel))
        for name, precision in taken.items()
    }
    return replace(written, assignments=tuple((name, chosen.get(name, a)) for name, a in written.assignments))


def _different(layer: Layer, choices: Sequence[Precision]) -> tuple[Precision, ...]:
    """The precisions that may change what a layer computes: not its own format, whatever the kernel."""

    def is_same(precision: Precision) -> bool:
        formats = {precision.weights.dtype, precision.activations.dtype, precision.accumulate.dtype}
        return precision.output is None and formats == {layer.dtype}

    return tuple(p for p in dict.fromkeys(choices) if not p.is_original and not is_same(p))


def _slot(level: int, name: str) -> str:
    return f"{level}:{name}"


def _slot_of(level: int, name: str | None) -> str | None:
    return None if name is None else _slot(level, name)

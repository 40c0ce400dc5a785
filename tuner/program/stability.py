"""Stability: one run of a policy in which every layer is looked at, for people who ask what goes wrong where.

What a layer's kernel reads is put into its format a second time and counted, beside the real computation; what the layer
gives is counted as it is. The counts of every execution leave the compiled program through a callback, so loops and
branches are seen as they run. This program is for looking only: it is slower than the policy's own, and fused otherwise.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import Format
from search_spaces.formats import find_format
from tuner.policy import Policy
from tuner.policy_fit import check_fits
from tuner.program import kernels
from tuner.program.capture import capture
from tuner.program.expression import evaluate
from tuner.program.kernels.stored import spread, widen_weight
from tuner.program.plan import Plan, plan
from tuner.program.policies import check_runs
from tuner.program.prepare import for_all_iterations, pack, run_packed
from tuner.program.program import Program
from tuner.program.steps import Site, Step
from tuner.stability import (
    ACTIVATIONS,
    LEFT,
    OUTPUTS,
    PARTS,
    RESULTS,
    RIGHT,
    VALUES,
    WEIGHTS,
    Break,
    Counts,
    Stability,
    Watched,
)

PyTree = Any
_COUNTS = ("count", "non_finite", "non_finite_given", "saturated", "underflowed")


def find_stability(
    apply: Callable[..., Any],
    params: PyTree,
    policy: Policy,
    inputs: tuple[Any, ...],
    *,
    program: Program | None = None,
) -> Stability:
    """What every layer sees when a policy runs on these inputs, and what goes wrong first.

    Args:
        apply: the function, `apply(params, *inputs)`.
        params: its parameters.
        policy: a policy of this program.
        inputs: the inputs of one call.
        program: the captured program, when it is at hand; saves a trace.

    Raises:
        PolicyError: the policy is for another program, or asks for what this version cannot run.
        CaptureError: JAX cannot trace the function.
    """
    if program is None:
        split_scans = policy.program is not None and policy.program.split_scans
        program = capture(apply, params, inputs, split_scans=split_scans)
    check_fits(policy, program.signature)
    check_runs(policy, program)
    found = plan(program, policy, watched=True)
    recorder = _Recorder(found, ordered=_on_one_device(params))
    recorder.weights(params)
    run = jax.jit(lambda packed, flat: run_packed(found, packed, flat, recorder))
    jax.block_until_ready(run(pack(found, params), jax.tree_util.tree_leaves(inputs)))
    jax.effects_barrier()
    precisions = {name: str(precision) for name, precision in policy.precisions.items()}
    return Stability(watched=recorder.watched(), precisions=precisions)


@dataclass
class _Row:
    """What is known of one array of one layer so far."""

    format: str
    counts: Counts = field(default_factory=lambda: Counts(count=0))
    smallest: float = math.inf
    largest: float = -math.inf
    executions: int = 0
    broke: Break | None = None


class _Recorder:
    """A `Watch` that counts; its rows are (layer, part), in the order of their first execution."""

    def __init__(self, plan: Plan, *, ordered: bool) -> None:
        self._plan = plan
        self._ordered = ordered
        self._rows: dict[tuple[str, str], _Row] = {}
        self._seen = 0

    def weights(self, params: PyTree) -> None:
        """Counts the weights of the layers that do not stay as written, before anything runs."""
        leaves = jax.tree_util.tree_leaves(params)
        memo: dict[int, list[Any]] = {}
        for packing in self._plan.packings:
            measured = for_all_iterations(
                packing.owner, partial(self._measure_weight, packing.owner, leaves), leaves, memo
            )
            format = self._plan.assignments[id(packing.owner)].precision.weights
            self._keep(
                (self._plan.names[id(packing.owner)], WEIGHTS), str(format), measured["counts"], measured["extremes"]
            )

    def received(self, position: int, given: Any, kept: Any) -> None:
        """An input."""
        index = self._plan.program.input_layers[position]
        if index is None:
            return
        assignment = self._plan.input_assignments[position]
        name = self._plan.program.layers[index].name
        if assignment.precision.is_original:
            self._look(name, VALUES, kept)
        else:
            self._look(name, VALUES, given, {"weight": kept}, assignment.precision.activations)

    def operation(self, site: Site, operands: Sequence[Any], packed: Mapping[str, Any] | None, result: Any) -> None:
        """A layer's operation."""
        name, assignment = self._plan.names[id(site)], self._plan.assignments.get(id(site))
        if assignment is None:
            for position, value in enumerate(operands):
                self._look(name, _part(site, position), value)
        else:
            for position, format, held in kernels.held_activations(site, assignment, packed, operands):
                self._look(name, _part(site, position), operands[position], held, format)
        self._look(name, RESULTS, result)

    def inside(self, step: Step) -> "_Recorder":
        """It looks into everything."""
        return self

    def passed(self, step: Step, results: Sequence[Any]) -> None:
        """Nothing passes unseen."""

    def finished(self, outputs: Sequence[Any]) -> None:
        """The outputs."""
        for output in outputs:
            self._look(OUTPUTS, RESULTS, output)

    def carried(self) -> list[Any]:
        """Nothing: what it counts leaves the program at once."""
        return []

    def resume(self, carried: Sequence[Any]) -> None:
        """Nothing to go on with."""

    def watched(self) -> tuple[Watched, ...]:
        """Everything seen; where callbacks come in any order, what went wrong first is told by the program's order."""
        rows = sorted(self._rows.items(), key=lambda item: self._place(*item[0]))
        if not self._ordered:
            for number, (_, row) in enumerate(rows):
                row.broke = None if row.broke is None else replace(row.broke, at=number)
        return tuple(
            Watched(
                layer=layer,
                part=part,
                format=row.format,
                smallest=row.smallest if math.isfinite(row.smallest) else math.nan,
                largest=row.largest if math.isfinite(row.largest) else math.nan,
                counts=row.counts,
                executions=row.executions,
                broke=row.broke,
            )
            for (layer, part), row in rows
        )

    def _place(self, layer: str, part: str) -> tuple[int, int]:
        """Layers in the order in which they ran, each with its weights first; at the end those that did not run."""
        ran = list(dict.fromkeys(name for name, what in self._rows if what != WEIGHTS))
        if not self._ordered:
            written = [layer.name for layer in self._plan.program.layers]
            ran.sort(key=lambda name: written.index(name) if name in written else len(written))
        return ran.index(layer) if layer in ran else len(ran), PARTS.index(part)

    def _measure_weight(self, site: Site, leaves: list[Any], memo: dict[int, list[Any]]) -> dict[str, Any]:
        assert site.weight is not None  # only sites with a weight are packed
        assignment, given = self._plan.assignments[id(site)], evaluate(site.weight, leaves, memo)
        held = kernels.held_weight(site, assignment, given)
        counts, extremes = _measure(given, held, assignment.precision.weights)
        return {"counts": counts, "extremes": extremes}

    def _look(
        self, layer: str, part: str, given: Any, held: dict[str, Any] | None = None, format: Format | None = None
    ) -> None:
        """Counts one array each time the program comes here."""
        dtype = jnp.result_type(given)
        whole = part == RESULTS and jnp.issubdtype(dtype, jnp.integer)  # shows that the layer ran
        if not (whole or jnp.issubdtype(dtype, jnp.floating)):
            return
        counts, extremes = _measure(jnp.asarray(given), held, format)
        name = str(format or find_format(dtype.name) or dtype.name)
        jax.debug.callback(partial(self._keep, (layer, part), name), counts, extremes, ordered=self._ordered)

    def _keep(self, key: tuple[str, str], format: str, counts: Any, extremes: Any) -> None:
        """Adds one execution, or several stacked along leading axes."""
        row = self._rows.setdefault(key, _Row(format))
        all_extremes = np.asarray(extremes, np.float64).reshape(-1, 3)
        for numbers, (smallest, largest, given) in zip(
            np.asarray(counts).reshape(-1, len(_COUNTS)), all_extremes.tolist(), strict=True
        ):
            one = Counts(**dict(zip(_COUNTS, numbers.tolist(), strict=True)), largest_given=given)
            row.executions += 1
            if one.non_finite and row.broke is None:
                row.broke = Break(execution=row.executions, at=self._seen, counts=one)
            row.counts = _add(row.counts, one)
            row.smallest, row.largest = min(row.smallest, smallest), max(row.largest, largest)
            self._seen += 1


def _add(a: Counts, b: Counts) -> Counts:
    sums = {name: getattr(a, name) + getattr(b, name) for name in _COUNTS}
    return Counts(**sums, largest_given=max(a.largest_given, b.largest_given))


def _measure(given: Any, held: dict[str, Any] | None, format: Format | None) -> tuple[Any, Any]:
    """(counts, extremes) of an array as given, and as it is held in a format."""
    dtype = jnp.float64 if given.dtype == jnp.float64 else jnp.float32
    wide = given.astype(dtype)
    if held is None or format is None:
        seen, clipped = wide, jnp.zeros(wide.shape, bool)
    else:
        # Behind a barrier, so that the compiler does not skip the rounding together with the widening.
        held = jax.lax.optimization_barrier(held)
        seen = widen_weight(held, dtype)["weight"].astype(dtype)
        beyond = _is_beyond(wide, held, format) if "scale" in held else ~jnp.isfinite(seen)
        clipped = jnp.isfinite(wide) & beyond
    finite, finite_given = jnp.isfinite(seen), jnp.isfinite(wide)
    masks = (~finite, ~finite_given, clipped, (wide != 0) & (seen == 0))
    counts = [jnp.asarray(seen.size, jnp.int32), *(jnp.sum(mask, dtype=jnp.int32) for mask in masks)]
    extremes = [
        jnp.min(seen, initial=jnp.inf, where=finite),
        jnp.max(seen, initial=-jnp.inf, where=finite),
        jnp.max(jnp.abs(wide), initial=0.0, where=finite_given),
    ]
    return jnp.stack(counts), jnp.stack(extremes)


def _is_beyond(wide: Any, held: dict[str, Any], format: Format) -> Any:
    """Where a number lies beyond the range that its scale gives it, by more than rounding."""
    steps, low = wide / spread(held["scale"], wide.shape).astype(wide.dtype), -format.max
    if "zero" in held:
        steps, low = steps + spread(held["zero"], wide.shape).astype(wide.dtype), low - 1
    slack = 0.51 if format.kind == "int" else format.max / 32
    return (steps > format.max + slack) | (steps < low - slack)


def _part(site: Site, position: int) -> str:
    if position == site.weight_operand:
        return WEIGHTS
    if site.weight_operand is None:
        return RIGHT if position else LEFT
    return ACTIVATIONS


def _on_one_device(params: PyTree) -> bool:
    """True where callbacks can keep the order of the program."""
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(params) if isinstance(leaf, jax.Array)]
    return all(len(leaf.devices()) == 1 for leaf in leaves)

"""Calibration: the program as written, run on examples while its layers' activations are looked at -> scales.

Every layer runs as the user wrote it, so that what is found for one layer does not depend on what another one runs in. The
values leave the compiled program through callbacks, so loops and branches are seen as they run.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import Precision
from tuner import _jax_compat as compat
from tuner.policy import Assignment
from tuner.program import kernels
from tuner.program.expression import slices_in
from tuner.program.kernels.stored import widen_weight
from tuner.program.layer import EMBEDDING
from tuner.program.observers import Observed, choose_scale
from tuner.program.plan import plan
from tuner.program.policies import original_policy
from tuner.program.prepare import pack, run_packed
from tuner.program.program import Program
from tuner.program.steps import Site, Step
from tuner.scales import CalibratedOn, Calibration, LayerScales

PyTree = Any
# How many numbers of one array are looked at in a call for their distribution; of more, every so many-th.
_MOST_VALUES = 1 << 20


def calibrate(
    program: Program,
    params: PyTree,
    batches: Iterable[tuple[Any, ...]],
    choices: Mapping[str, Sequence[Precision]],
    on: CalibratedOn | None = None,
) -> Calibration:
    """The numbers that layers need to run in these precisions.

    Args:
        program: what the layers are of.
        params: its parameters.
        batches: the inputs of one call each, in the shapes that the program was captured with.
        choices: layer name -> precisions; those that need no numbers are left alone.
        on: what the batches are made of.
    """
    kinds = {layer.name: layer.kind for layer in program.layers}
    wanted = {
        name: tuple(p for p in precisions if kernels.needs_numbers(kinds[name], p))
        for name, precisions in choices.items()
    }
    wanted = {name: precisions for name, precisions in wanted.items() if precisions}
    if not wanted:
        return Calibration()
    found = plan(program, original_policy(program), watched=True)
    recorder = _Recorder(_operations(program, wanted), ordered=_on_one_device(params))
    packed = pack(found, params)
    run = jax.jit(lambda packed, flat: run_packed(found, packed, flat, recorder))
    for inputs in batches:
        recorder.begin()
        jax.block_until_ready(run(packed, jax.tree_util.tree_leaves(inputs)))
        jax.effects_barrier()
    return _numbers(program, wanted, recorder, on)


@dataclass(frozen=True, eq=False, slots=True)
class _Operation:
    """One operation that is looked at.

    Attributes:
        site: the operation.
        activations: which operand they are.
        distribution: whether more than their range is asked for.
        roundings: the precisions whose rounding of the weight is to be corrected, by what tells those apart.
    """

    site: Site
    activations: int
    distribution: bool
    roundings: Mapping[str, Precision]


def _operations(program: Program, wanted: Mapping[str, tuple[Precision, ...]]) -> dict[int, _Operation]:
    together: dict[int, tuple[Site, dict[Precision, None]]] = {}
    for layer, sites in zip(program.layers, program.sites, strict=True):
        for site in sites:
            if layer.name in wanted and site.weight is not None and site.kind != EMBEDDING:
                together.setdefault(id(site), (site, {}))[1].update(dict.fromkeys(wanted[layer.name]))
    found = {}
    for key, (site, precisions) in together.items():
        found[key] = _Operation(
            site=site,
            activations=kernels.activations_of(site),
            distribution=any(p.scaling == "static" and p.observer != "max" for p in precisions),
            roundings={_rounding(p): p for p in precisions if p.bias_correction and kernels.has_channels(site)},
        )
    return found


def _rounding(precision: Precision) -> str:
    """Equal for precisions that round a weight alike."""
    symmetric = precision.symmetric or not precision.is_weight_only
    return f"{precision.weights} {precision.granularity} {symmetric}"


class _Recorder:
    """A `Watch` that keeps what the operations read, execution by execution."""

    def __init__(self, operations: Mapping[int, _Operation], *, ordered: bool) -> None:
        self._operations = operations
        self._ordered = ordered
        self._next: dict[int, int] = {}
        self.batches = 0
        # One entry per iteration where each has a weight of its own, else one for all executions.
        self.seen = {
            key: [Observed() for _ in range(_iterations(one.site, ordered))] for key, one in operations.items()
        }

    def begin(self) -> None:
        """The next batch begins: executions are counted anew."""
        self.batches += 1
        self._next = dict.fromkeys(self._operations, 0)

    def operation(self, site: Site, operands: Sequence[Any], packed: Mapping[str, Any] | None, result: Any) -> None:
        """A layer's operation."""
        wanted = self._operations.get(id(site))
        if wanted is None:
            return
        values = jnp.asarray(operands[wanted.activations]).astype(jnp.float32)
        finite = jnp.isfinite(values)
        extremes = jnp.stack(
            [
                jnp.min(values, initial=jnp.inf, where=finite),
                jnp.max(values, initial=-jnp.inf, where=finite),
                jnp.sum(~finite).astype(jnp.float32),
            ]
        )
        errors = {key: _mean_error(site, precision, operands) for key, precision in wanted.roundings.items()}
        shown = _thinned(values) if wanted.distribution else None
        jax.debug.callback(partial(self._keep, id(site)), extremes, shown, errors, ordered=self._ordered)

    def received(self, position: int, given: Any, kept: Any) -> None:
        """An input, which needs no scale."""

    def inside(self, step: Step) -> "_Recorder":
        """It looks into everything."""
        return self

    def passed(self, step: Step, results: Sequence[Any]) -> None:
        """Nothing passes unseen."""

    def finished(self, outputs: Sequence[Any]) -> None:
        """The outputs need no scale."""

    def carried(self) -> list[Any]:
        """Nothing: what it sees leaves the program at once."""
        return []

    def resume(self, carried: Sequence[Any]) -> None:
        """Nothing to go on with."""

    def _keep(self, key: int, extremes: Any, values: Any, errors: Any) -> None:
        number, seen = self._next[key], self.seen[key]
        self._next[key] = number + 1
        seen[number % len(seen)].add(extremes, values, errors)


def _thinned(values: Any) -> Any:
    flat = jnp.ravel(values)
    return flat[:: -(-flat.size // _MOST_VALUES)] if flat.size > _MOST_VALUES else flat


def _mean_error(site: Site, precision: Precision, operands: Sequence[Any]) -> Any:
    """What rounding the weight takes from each output channel on the average, in the order of the weight's axes."""
    operand = site.weight_operand
    assert operand is not None  # only operations with a weight are looked at
    weight = jnp.asarray(operands[operand])
    held = kernels.held_weight(site, Assignment(precision=precision), weight)
    lost = weight.astype(jnp.float32) - widen_weight(held, jnp.float32)["weight"]
    given = [lost.astype(weight.dtype) if i == operand else value for i, value in enumerate(operands)]
    (result,) = compat.bind(site.eqn, given)
    return kernels.mean_by_channel(site, result.astype(jnp.float32))


def _numbers(
    program: Program,
    wanted: Mapping[str, tuple[Precision, ...]],
    recorder: _Recorder,
    on: CalibratedOn | None,
) -> Calibration:
    numbers: dict[str, dict[str, LayerScales]] = {}
    problems: dict[str, str] = {}
    for layer, sites, iteration in zip(program.layers, program.sites, program.iterations, strict=True):
        if layer.name not in wanted:
            continue
        looked_at = [site for site in sites if id(site) in recorder.seen]
        observed = _by_iteration(looked_at, recorder, iteration)
        corrected = any(precision.bias_correction for precision in wanted[layer.name])
        problem = _problem(observed) or (_no_correction(looked_at) if corrected else None)
        if problem:
            problems[layer.name] = problem
            continue
        numbers[layer.name] = {str(p): _layer_scales(observed, p) for p in wanted[layer.name]}
    return Calibration(on=on, numbers=numbers, problems=problems)


def _by_iteration(sites: Sequence[Site], recorder: _Recorder, iteration: int | None) -> list[Observed]:
    """What was seen of a layer: of each iteration where its weights are stacked, else all of it together."""
    listed = []
    for site in sites:
        seen = recorder.seen[id(site)]
        once_each = all(one.executions == recorder.batches for one in seen)  # no branch left one out
        listed.append(seen if once_each else [_together(seen)])
    if len({len(one) for one in listed}) != 1:
        listed = [[_together(one)] for one in listed]
    merged = [_together(of_sites) for of_sites in zip(*listed, strict=True)]
    return merged if iteration is None or len(merged) == 1 else [merged[iteration]]


def _iterations(site: Site, ordered: bool) -> int:
    """How many weights are stacked for an operation that runs once for each; 1 where it runs otherwise, or in any order."""
    assert site.weight is not None  # only operations with a weight are looked at
    lengths = {piece.loop: int(piece.stack.aval.shape[0]) for piece in slices_in(site.weight) if piece.shards is None}
    count = math.prod(lengths.values())
    return count if ordered and site.executions == count else 1


def _together(seen: Iterable[Observed]) -> Observed:
    return reduce(Observed.merged, seen, Observed())


def _problem(observed: Sequence[Observed]) -> str | None:
    """Why there are no numbers for a layer, None where there are."""
    if not observed or any(one.executions == 0 for one in observed):
        return "it did not run on the calibration examples"
    bad = sum(one.non_finite for one in observed)
    if bad:
        return f"{bad} of its activations are NaN or infinite on the calibration examples"
    return None


def _no_correction(sites: Sequence[Site]) -> str | None:
    """Why the bias of a layer cannot be corrected, None when it can."""
    if any(not kernels.has_channels(site) for site in sites):
        return "its products are ragged, and no bias of theirs can be corrected"
    if any(piece.shards is not None for site in sites if site.weight is not None for piece in slices_in(site.weight)):
        return "its weight is spread over a mesh inside shard_map, and no bias there can be corrected"
    return None


def _layer_scales(observed: Sequence[Observed], precision: Precision) -> LayerScales:
    scales: list[tuple[float, int]] = []
    symmetric = precision.symmetric or precision.activations.kind != "int"
    if precision.scaling == "static":
        scales = [choose_scale(one, precision.activations, precision.observer, symmetric) for one in observed]
    errors = [one.errors[_rounding(precision)] / one.executions for one in observed if precision.bias_correction]
    correction = np.concatenate(errors).astype(np.float32).tolist() if errors else []
    return LayerScales(
        scale=tuple(scale for scale, _ in scales),
        zero_point=() if symmetric else tuple(zero for _, zero in scales),
        correction=tuple(float(f"{value:.9g}") for value in correction),
    )


def _on_one_device(params: PyTree) -> bool:
    """True where callbacks can keep the order of the program."""
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(params) if isinstance(leaf, jax.Array)]
    return all(len(leaf.devices()) == 1 for leaf in leaves)

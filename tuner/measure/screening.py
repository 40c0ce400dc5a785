"""Screening: how far each precision of each layer alone moves the outputs on the calibration examples.

One switchboard is compiled; after that an effect costs a run. Fidelity is measured smoothly, as the relative error of the
outputs and as their divergence: a metric that counts hits does not see what one layer does.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import Precision
from tuner.calibrating import calibrate_task
from tuner.effect import Effect, Screening
from tuner.errors import error_line
from tuner.measure.executable import Place, commit
from tuner.measure.failures import says_out_of_memory
from tuner.measure.outputs import Run
from tuner.measure.quality import Scored, Scorer
from tuner.measurement import ROUNDING, Quality
from tuner.program import Program
from tuner.program.switchboard import CannotSwitch, Switchboard, single_changes
from tuner.task import Task

Choices = Mapping[str, Sequence[Precision]]
Effects = Mapping[str, Mapping[str, Effect]]
# (layer, precision) -> the kernel that runs it.
Kernels = Mapping[tuple[str, Precision], str]
# Layer name -> precision, for each of several policies; what is not named runs as written.
Policies = Sequence[Mapping[str, Precision]]
# More calibration examples than these are not run: an effect is known well enough then.
_BATCHES = 4


@dataclass(slots=True)
class _Sums:
    """What is added up over batches."""

    difference: float = 0.0
    reference: float = 0.0
    divergence: float = 0.0
    positions: float = 0.0
    examples: int = 0

    def effect(self) -> Effect:
        error = math.sqrt(self.difference / self.reference) if self.reference else math.inf * (self.difference > 0)
        known = math.isfinite(self.difference)
        kl = max(0.0, self.divergence / self.positions) if self.positions and known else None
        return Effect(error=error if known and error == error else math.inf, kl=kl, examples=self.examples)


class Screener:
    """A compiled switchboard with the baseline's outputs on the calibration examples.

    Args:
        task: what is tuned, its parameters where they are to be read from.
        program: the captured task.
        choices: layer name -> the precisions it may take.
        kernels: what runs each.
        device: where everything goes.

    Raises:
        CannotSwitch: there is none; says why.
    """

    def __init__(self, task: Task, program: Program, choices: Choices, kernels: Kernels, device: Place) -> None:
        try:
            calibration = calibrate_task(task, program, choices)
            self._board = Switchboard(program, task.params, choices, kernels, calibration)
            self._params = jax.block_until_ready(commit(self._board.params, device))
            inputs, _, _ = next(task.calibration.batches(task.batch_size))
            arguments = (self._params, self._board.switches({}), *commit(inputs, device))
            self._run = jax.jit(self._board.__call__).lower(*arguments).compile()
            self._compare = jax.jit(_compare)
            self._batches = []
            for number, (inputs, _, mask) in enumerate(task.calibration.batches(task.batch_size)):
                if number < _BATCHES:
                    placed = commit(inputs, device)
                    reference = self._run(self._params, self._board.switches({}), *placed)
                    self._batches.append((placed, mask, jax.block_until_ready(reference)))
        except CannotSwitch:
            raise
        except Exception as error:  # whatever a compiler throws: the search goes on without
            raise CannotSwitch(_reason(error)) from error

    def screen(
        self,
        wanted: Sequence[tuple[str, Precision]],
        budget_s: float,
        progress: Callable[[], object] = lambda: None,
    ) -> dict[tuple[str, Precision], Effect]:
        """The effects that fit the time, those of the first batch for all before those of another one.

        Args:
            wanted: layers and precisions.
            budget_s: seconds.
            progress: called before each run.
        """
        started, sums = time.perf_counter(), {change: _Sums() for change in wanted}
        for number in range(len(self._batches)):
            before = time.perf_counter()
            for name, precision in wanted:
                if number == 0 and time.perf_counter() - started > budget_s:
                    break
                progress()
                self._add(sums[name, precision], {name: precision}, number)
            took = time.perf_counter() - before
            if time.perf_counter() - started + took > budget_s:
                break
        return {change: found.effect() for change, found in sums.items() if found.examples}

    def run(self, precisions: Mapping[str, Precision]) -> Run:
        """The program with these precisions, from the inputs of one batch to its outputs."""
        switches = self._board.switches(precisions)
        return lambda inputs: self._run(self._params, switches, *inputs)

    def effect(self, precisions: Mapping[str, Precision]) -> Effect:
        """The effect of many layers changed at once."""
        sums = _Sums()
        for number in range(len(self._batches)):
            self._add(sums, precisions, number)
        return sums.effect()

    def _add(self, sums: _Sums, precisions: Mapping[str, Precision], number: int) -> None:
        inputs, mask, reference = self._batches[number]
        outputs = self.run(precisions)(inputs)
        difference, squared, divergence, positions = map(float, self._compare(outputs, reference, mask))
        sums.difference += difference
        sums.reference += squared
        sums.divergence += divergence
        sums.positions += positions
        sums.examples += int(mask.sum())


def screen(
    program: Program,
    choices: Choices,
    make: Callable[[], Screener],
    known: Effects,
    budget_s: float,
    progress: Callable[[], object] = lambda: None,
) -> Screening:
    """The known effects and those that the time allows to add.

    Args:
        program: the captured task.
        choices: layer name -> the precisions it may take.
        make: the screener; it is not made where everything is known.
        known: layer -> precision -> effect, found before.
        budget_s: seconds, the compilation of the switchboard included.
        progress: called before each run.
    """
    started = time.perf_counter()
    effects = {name: dict(found) for name, found in known.items()}
    missing = [(name, p) for name, p in single_changes(program, choices) if str(p) not in effects.get(name, {})]
    if not missing or budget_s <= 0:
        return Screening(effects=effects, missing=len(missing))
    try:
        screener = make()
    except CannotSwitch as problem:
        took = time.perf_counter() - started
        return Screening(effects=effects, refusal=str(problem), missing=len(missing), seconds=took)
    built = time.perf_counter() - started
    # What took so long to build is used for half as long at least: a run costs little beside it.
    found = screener.screen(missing, max(budget_s - built, built / 2), progress)
    for (name, precision), effect in found.items():
        effects.setdefault(name, {})[str(precision)] = effect
    return Screening(effects=effects, missing=len(missing) - len(found), seconds=time.perf_counter() - started)


def foresee(
    make: Callable[[], Screener],
    scorer: Scorer,
    ordered: Policies,
    allowed_drop: float,
    progress: Callable[[], object] = lambda: None,
) -> list[Quality | None]:
    """What policies score on the switchboard; None for those that need not, or cannot, be scored.

    Args:
        make: the screener.
        scorer: the examples.
        ordered: policies, each expected to lose more than the next one; those that are scored are the ones it takes to
            find the first that keeps the drop.
        allowed_drop: in the metric's own unit.
        progress: called before each is scored.
    """
    found: list[Quality | None] = [None] * len(ordered)
    try:
        screener = make()
    except CannotSwitch:
        return found

    def keeps(number: int) -> bool:
        progress()
        scored = scorer.measure(screener.run(ordered[number]))
        if not isinstance(scored, Scored):
            return False
        found[number] = scored.quality
        return scored.quality.drop <= allowed_drop + ROUNDING

    low, high = 0, len(ordered) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle + 1, high)
    if ordered and found[low] is None:
        keeps(low)
    return found


def _reason(error: Exception) -> str:
    if says_out_of_memory(str(error)):
        return "the weights of all precisions do not fit the memory side by side"
    return f"it does not compile or run ({error_line(error)})"


def _compare(outputs: Any, reference: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """(squared difference, squared reference, divergence, positions) over one batch, padding left out."""
    zero = jnp.zeros((), jnp.float32)
    difference, squared, divergence, positions = zero, zero, zero, zero
    leaves = jax.tree_util.tree_leaves(outputs), jax.tree_util.tree_leaves(reference)
    for mine, theirs in zip(*leaves, strict=True):
        if not jnp.issubdtype(theirs.dtype, jnp.floating):
            continue
        mine, theirs = mine.astype(jnp.float32), theirs.astype(jnp.float32)
        counted = jnp.broadcast_to(_counted(theirs, mask), theirs.shape) & jnp.isfinite(theirs)
        difference += jnp.sum(jnp.where(counted, jnp.square(mine - theirs), 0.0))
        squared += jnp.sum(jnp.where(counted, jnp.square(theirs), 0.0))
        if theirs.ndim >= 2 and theirs.shape[-1] >= 2:
            ours, own = jax.nn.log_softmax(mine), jax.nn.log_softmax(theirs)
            terms = jnp.where(counted, jnp.exp(own) * (own - ours), 0.0)
            divergence += jnp.sum(terms)
            positions += jnp.sum(jnp.any(counted, axis=-1), dtype=jnp.float32)
    return difference, squared, divergence, positions


def _counted(leaf: Any, mask: Any) -> Any:
    """The mask of examples, where the first axis counts them, with an axis of one for every other axis."""
    if leaf.ndim == 0 or leaf.shape[0] != np.shape(mask)[0]:
        return jnp.ones((1,) * leaf.ndim, bool)
    return jnp.reshape(jnp.asarray(mask), (-1,) + (1,) * (leaf.ndim - 1))

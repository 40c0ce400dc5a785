"""Evaluator: one candidate in, one Measurement or Failure out, in this process.

It holds the task, the compiled baseline, the baseline's scores and a batch on the device. The order is that of what is
cheap to know first: compile, one batch (finite?), a short timing (slow?), quality (a certain loser?), full timing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision, parse_format
from tuner.data import Split
from tuner.drop import Drop
from tuner.errors import InputError, TunerError
from tuner.measure import confirm as confirming
from tuner.measure.compile_cache import enable_compile_cache
from tuner.measure.device import device_lock
from tuner.measure.effective import effective_inputs, effective_precisions
from tuner.measure.executable import Executable, commit, compile_baseline, compile_cast, compile_policy, place_of
from tuner.measure.failures import failure_of
from tuner.measure.kernel_table import KernelTable, Times, time_kernels
from tuner.measure.latency import FULL_EFFORT, Effort, baseline_latency, best_in_turns, compare, quick, time_alone
from tuner.measure.memory import measure_memory
from tuner.measure.quality import GivenUp, NonFinite, Scored, Scorer
from tuner.measurement import (
    COMPILE_ERROR,
    DEADLINE,
    ERROR,
    LOSER,
    NON_FINITE,
    SLOW,
    Confirmation,
    Costs,
    Failure,
    Measurement,
)
from tuner.policy import Policy
from tuner.program import Program, segment_leaders
from tuner.program.layer import INPUT
from tuner.task import Task

OBJECTIVES = ("latency", "quality", "memory")
CASTS = ("bf16", "f16")
_SLOW = 3.0
_SLOW_BUT_MAYBE_SMALL = 10.0
_SECOND_LOOK_S = 0.05
_LOSER_DROPS = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A stretch of work that begins: what it is, how long it may take, and which of several candidates it is about."""

    name: str
    seconds: float | None = None
    index: int | None = None


OnPhase = Callable[[Phase], object]


class Evaluator:
    """Measures candidates of one task against its resident baseline.

    Args:
        task: what is tuned.
        program: the captured task.
        max_drop: the allowed drop of quality; twice it ends a candidate early.
        objectives: what the search minimizes; with memory among them slow candidates are given more room.
        deadline_s: seconds that compiling, and one call, may take. In this process neither can be interrupted, so a
            candidate fails when it comes back late; who watches from outside is told through `on_phase`.
        reference_ms: the study's baseline in milliseconds, when it is older than this evaluator; its own otherwise.
        effort: how long a candidate is timed.
        seed: of the bootstraps.
        on_phase: called as a stretch of work begins.
    """

    def __init__(
        self,
        task: Task,
        program: Program,
        *,
        max_drop: Drop,
        objectives: Sequence[str] = OBJECTIVES,
        deadline_s: float = 300.0,
        reference_ms: float | None = None,
        effort: Effort = FULL_EFFORT,
        seed: int = 0,
        on_phase: OnPhase = lambda phase: None,
    ) -> None:
        enable_compile_cache()
        self._on_phase = on_phase
        self._task = task
        self._program = program
        self._slow = _SLOW_BUT_MAYBE_SMALL if "memory" in objectives else _SLOW
        self._deadline_s = deadline_s
        self._effort = effort
        self._seed = seed
        self._device = place_of(task.params)
        self._holdout: Scorer | None = None
        with device_lock():
            self._measure_baseline(reference_ms)
        allowed = {name: metric.allowed for name, metric in self.baseline.metrics.items() if metric.allowed >= 0}
        allowed[task.metric.name] = max_drop.allowed(self.baseline.quality.value)
        self._limits = {name: _LOSER_DROPS * drop for name, drop in allowed.items()}

    def measure(self, policy: Policy) -> Measurement | Failure:
        """The measurement of a policy, or why it has none.

        Raises:
            PolicyError: the policy is not for this program.
        """
        return self._attempt(lambda: self._compile(policy), policy)

    def measure_cast(self, format: str) -> Measurement | Failure:
        """The hand-made way, for reference: every floating parameter and input cast to "bf16" or "f16"."""
        if format not in CASTS:
            raise InputError(f"cannot measure a cast to {format!r}: the reference points are {', '.join(CASTS)}")
        dtype = jnp.dtype(parse_format(format).dtype)
        return self._attempt(
            lambda: compile_cast(self._task.apply, self._params, dtype, self._inputs, self._device), None
        )

    def confirm(self, policies: Sequence[Policy]) -> list[Confirmation | Failure]:
        """Every policy once more, all in one interleaved round with the baseline, and scored on the holdout split."""
        with device_lock():
            if self._holdout is None:
                self._on_phase(Phase(name="scoring the baseline on the holdout split"))
                self._holdout = self._scorer_of(self._task.holdout)
            return confirming.confirm(
                self._baseline,
                [partial(self._compile_to_confirm, number, policy) for number, policy in enumerate(policies)],
                self._holdout,
                self._inputs,
                self._device,
                reference_ms=self.baseline.latency.milliseconds,
                examples=self._task.batch_size,
                effort=self._effort,
                seed=self._seed,
                before_timing=lambda: self._begin("timing", len(policies) * self._timing_s),
            )

    def time_kernels(self, choices: Mapping[str, Sequence[Precision]], *, known: Times, budget_s: float) -> KernelTable:
        """The kernel table of the program's operations; `known` times are not taken again."""
        return time_kernels(
            self._program,
            choices,
            known=known,
            budget_s=budget_s,
            progress=lambda done, total: self._begin("timing kernels", budget_s),
        )

    def check(self) -> None:
        """Returns: nothing that happened in this process forbids to go on."""

    def close(self) -> None:
        """Lets go of everything on the device."""
        for name in ("_baseline", "_scorer", "_inputs", "_params", "_baseline_call"):
            self.__dict__.pop(name, None)
        self._holdout = None

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _measure_baseline(self, reference_ms: float | None) -> None:
        task = self._task
        self._on_phase(Phase(name="compiling the program as written"))
        self._params = commit(task.params, self._device)
        inputs, _, _ = next(task.search.batches(task.batch_size))
        self._inputs = commit(inputs, self._device)
        self._baseline = compile_baseline(task.apply, self._params, self._inputs, self._device)
        started = time.perf_counter()
        self._scorer = self._scorer_of(task.search)
        scored = time.perf_counter()
        self._baseline_call = self._baseline.timed_call(self._inputs, self._device)
        self._baseline_call()
        times = time_alone(self._baseline_call, effort=self._effort)
        self._baseline_s = float(times.min())
        own = self._scorer.baseline_scored()
        self.baseline = Measurement(
            latency=baseline_latency(times, reference_ms, task.batch_size),
            quality=own.quality,
            metrics=own.metrics,
            memory=measure_memory(self._baseline),
            costs=replace(self._baseline.costs, quality_s=scored - started, latency_s=time.perf_counter() - scored),
        )

    def _scorer_of(self, split: Split) -> Scorer:
        task, baseline = self._task, self._baseline
        return Scorer(split, task.batch_size, task.metric, baseline, self._device, self._seed, task.constraints)

    def _begin(self, name: str, extra_s: float = 0.0, index: int | None = None) -> None:
        self._on_phase(Phase(name=name, seconds=self._deadline_s + extra_s, index=index))

    @property
    def _scoring_s(self) -> float:
        """Seconds that scoring may take besides the deadline: a program at the limit of what counts as slow, thrice."""
        return 3 * self._slow * self.baseline.costs.quality_s

    @property
    def _timing_s(self) -> float:
        """Seconds that timing one candidate may take besides the deadline."""
        return 10 * self._effort.seconds + 3 * self._effort.pairs * (1 + self._slow) * self._baseline_s

    def _compile_to_confirm(self, number: int, policy: Policy) -> Executable:
        self._begin("compiling and scoring", self._deadline_s + self._scoring_s, number)
        return self._compile(policy)

    def _compile(self, policy: Policy) -> Executable:
        return compile_policy(self._task.apply, self._params, self._program, policy, self._inputs, self._device)

    def _attempt(self, build: Callable[[], Executable], policy: Policy | None) -> Measurement | Failure:
        with device_lock():
            self._begin("compiling")
            try:
                executable = build()
            except TunerError:  # a mistake of the caller, not of the candidate
                raise
            except Exception as error:  # noqa: BLE001  whatever a compiler throws is this candidate's failure
                return failure_of(error, COMPILE_ERROR)
            try:
                return self._judge(executable, policy)
            except TunerError:
                raise
            except Exception as error:  # noqa: BLE001  the same for what running it throws
                return failure_of(error, ERROR, executable.costs)

    def _judge(self, executable: Executable, policy: Policy | None) -> Measurement | Failure:
        self._begin("making the first call")
        call = executable.timed_call(self._inputs, self._device)
        started = time.perf_counter()
        failure = self._first_call(executable, call)
        costs = replace(executable.costs, latency_s=time.perf_counter() - started)
        if failure is not None:
            return replace(failure, costs=costs)
        self._begin("scoring", self._scoring_s)
        started = time.perf_counter()
        scored = self._scorer.measure(executable, self._limits)
        costs = replace(costs, quality_s=time.perf_counter() - started)
        if not isinstance(scored, Scored):
            return self._quality_failure(scored, costs)
        effective = self._effective(executable, policy)
        memory = measure_memory(executable)
        self._begin("timing", self._timing_s)
        started = time.perf_counter()
        (latency,) = compare(
            self._baseline_call,
            [call],
            reference_ms=self.baseline.latency.milliseconds,
            examples=self._task.batch_size,
            effort=self._effort,
            seed=self._seed,
        )
        return Measurement(
            latency=latency,
            quality=scored.quality,
            metrics=scored.metrics,
            memory=memory,
            costs=replace(costs, latency_s=costs.latency_s + time.perf_counter() - started),
            effective=MappingProxyType(effective),
        )

    def _first_call(self, executable: Executable, call: Callable[[], Any]) -> Failure | None:
        """What one batch shows: late, non-finite or slow."""
        compile_s = executable.costs.compile_s
        if compile_s > self._deadline_s:
            return Failure(cause=DEADLINE, message=self._late("compiling", compile_s))
        started = time.perf_counter()
        outputs = call()
        warm_up_s = time.perf_counter() - started
        if warm_up_s > self._deadline_s:
            return Failure(cause=DEADLINE, message=self._late("one call", warm_up_s))
        non_finite = self._scorer.non_finite(outputs)
        if non_finite is not None:
            return Failure(cause=NON_FINITE, message=non_finite.message)
        self._begin("timing")
        ratio = self._quick_ratio(call, warm_up_s)
        if ratio is None:
            return None
        limit = f"more than {self._slow:g} times is not measured further"
        return Failure(cause=SLOW, message=f"one call takes {ratio:.1f} times the baseline's; {limit}")

    def _quick_ratio(self, call: Callable[[], Any], warm_up_s: float) -> float | None:
        """How many times slower than the baseline a candidate is when that is beyond the cut, else None."""
        limit = self._slow * self._baseline_s
        if warm_up_s > max(1.0, 3 * limit):  # no warm-up costs that much; do not wait for two more
            return warm_up_s / self._baseline_s
        seconds = quick(call)
        if seconds <= limit:
            return None
        # The machine may have slowed down since the baseline was timed, and two short calls may both have been interrupted.
        runs = [self._baseline_call, call] if seconds < _SECOND_LOOK_S else [self._baseline_call]
        baseline_s, *again = best_in_turns(runs, _SECOND_LOOK_S * len(runs))
        ratio = min([seconds, *again]) / baseline_s
        return ratio if ratio > self._slow else None

    def _quality_failure(self, outcome: NonFinite | GivenUp, costs: Costs) -> Failure:
        if isinstance(outcome, NonFinite):
            return Failure(cause=NON_FINITE, message=outcome.message, costs=costs)
        message = (
            f"{outcome.metric} drops by {outcome.drop:.4g} on {outcome.examples} examples, certainly by more "
            f"than {outcome.certain:.4g}; twice the allowed drop is {outcome.limit:.4g}"
        )
        return Failure(cause=LOSER, message=message, costs=costs)

    def _effective(self, executable: Executable, policy: Policy | None) -> dict[str, str]:
        if policy is None:
            return {}
        assigned = {name: precision for name, precision in policy.precisions.items() if not precision.is_original}
        kinds = {layer.name: layer.kind for layer in self._program.layers}
        inputs = {name: precision for name, precision in assigned.items() if kinds[name] == INPUT}
        leaders = segment_leaders(self._program, policy)
        others = {leaders[name]: (kinds[name], precision) for name, precision in assigned.items() if name not in inputs}
        leaves = jax.tree_util.tree_leaves(executable.input_specs)
        given = {
            self._program.layers[position].name: leaf.dtype
            for position, leaf in zip(self._program.input_layers, leaves, strict=True)
            if position is not None
        }
        found = effective_inputs(inputs, given)
        if others:
            found |= effective_precisions(executable.module, others)
        return {name: found[leaders[name]] for name in assigned}

    def _late(self, what: str, seconds: float) -> str:
        return f"{what} took {seconds:.1f} s, the deadline is {self._deadline_s:g} s"

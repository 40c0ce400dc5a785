"""Evaluator: one candidate in, one Measurement or Failure out, in this process.

It holds the task, the compiled baseline, the baseline's scores and a batch on the device. The order is that of what is
cheap to know first: compile, one batch (finite?), a short timing (slow?), quality (a certain loser?), full timing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import jax
import jax.numpy as jnp

from search_spaces import Precision, parse_format
from tuner.calibrating import calibrate_task
from tuner.capturing import capture_shapes
from tuner.data import Split
from tuner.diagnosis import Attempt
from tuner.drop import Drop
from tuner.effect import Screening
from tuner.errors import InputError, TunerError
from tuner.kernel_choice import Comparison, unknown
from tuner.measure import confirm as confirming
from tuner.measure.compile_cache import enable_compile_cache
from tuner.measure.contention import Watch
from tuner.measure.device import device_lock
from tuner.measure.effective import effective_in, worst_of
from tuner.measure.executable import (
    Executable,
    commit,
    compile_baseline,
    compile_cast,
    compile_policy,
    place_of,
    place_params,
)
from tuner.measure.failures import failure_of
from tuner.measure.kernel_table import KernelTable, Times, time_kernels
from tuner.measure.latency import FULL_EFFORT, Effort
from tuner.measure.layer_shares import layer_shares
from tuner.measure.locate import Locator
from tuner.measure.phases import OnPhase, Phase
from tuner.measure.probe import try_precision
from tuner.measure.quality import NonFinite, Scored, Scorer
from tuner.measure.screening import Choices, Effects, Kernels, Policies, Screener, foresee, screen
from tuner.measure.shapes import Kind, Programs, ShapeTimer, kinds_of, programs_of
from tuner.measure.spread import Spreader
from tuner.measure.timing import Timed, Timer
from tuner.measure.usage import read_usage
from tuner.measure.whole_program import compare_programs
from tuner.measurement import (
    ALTERNATE,
    COMPILE_ERROR,
    DEADLINE,
    ERROR,
    LOSER,
    NON_FINITE,
    RESIDENT,
    SLOW,
    Confirmation,
    Failure,
    Measurement,
    Quality,
)
from tuner.policy import Policy
from tuner.program import Program
from tuner.scales import Calibration
from tuner.task import Task

OBJECTIVES = ("latency", "quality", "memory")
CASTS = ("bf16", "f16")
_SLOW = 3.0
_SLOW_BUT_MAYBE_SMALL = 10.0
_LOSER_DROPS = 2.0


class Evaluator:
    """Measures candidates of one task against its resident baseline.

    Args:
        task: what is tuned.
        program: the captured task.
        max_drop: the allowed drop of quality; twice it ends a candidate early.
        objectives: what the search minimizes; with memory among them slow candidates are given more room.
        deadline_s: seconds that compiling, and one call, may take. In this process neither can be interrupted, so a
            candidate fails when it comes back late; who watches from outside is told through `on_phase`.
        reference_ms: the study's baseline in milliseconds, when it is older than this evaluator; its own otherwise. By
            name where the task is timed with several kinds of call.
        effort: how long a candidate is timed.
        seed: of the bootstraps.
        baseline: "resident", or "alternate" where the weights of two programs do not fit the device: they take turns.
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
        reference_ms: float | Mapping[str, float] | None = None,
        effort: Effort = FULL_EFFORT,
        seed: int = 0,
        baseline: str = RESIDENT,
        on_phase: OnPhase = lambda phase: None,
    ) -> None:
        enable_compile_cache()
        self._on_phase = on_phase
        self._task = task
        self._program = program
        self._shapes = capture_shapes(task, program)
        self._slow = _SLOW_BUT_MAYBE_SMALL if "memory" in objectives else _SLOW
        self._deadline_s = deadline_s
        self._effort = effort
        self._seed = seed
        self._device = place_of(task.params)
        self._kept = baseline
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
                self._timer.make_ready(self._baseline)
                self._holdout = self._scorer_of(self._task.holdout, self._baseline.scored)
                self._timer.make_room(self._baseline)
            return confirming.confirm(
                self._timer,
                [partial(self._compile_to_confirm, number, policy) for number, policy in enumerate(policies)],
                self._holdout,
                spread=self._spreader.of,
                before_timing=lambda: self._begin("timing", self._timer.allowance(len(policies))),
            )

    def time_kernels(self, choices: Mapping[str, Sequence[Precision]], *, known: Times, budget_s: float) -> KernelTable:
        """The kernel table of the program's operations; `known` times are not taken again."""
        return time_kernels(
            self._program,
            choices,
            shapes=self._shapes,
            known=known,
            budget_s=budget_s,
            progress=lambda done, total: self._begin("timing kernels", budget_s),
        )

    def layer_shares(self, budget_s: float) -> dict[str, float]:
        """Layer name -> its share of the program as written, as far as there is time to find it."""
        self._begin("timing layers", budget_s)
        shapes, calls = self._shapes or [(1.0, self._program)], [timed.call for timed in self._baseline.timed]
        with device_lock():
            return layer_shares(shapes, calls, budget_s)

    def compare(self, policy: Policy, against: Policy) -> Comparison:
        """How long a policy takes as a ratio to another one; nothing else is asked of either."""
        if self._kept == ALTERNATE:
            return unknown("the weights of two candidates do not fit the device at once")
        build, build_other = (partial(self._compile_to_confirm, None, given) for given in (policy, against))
        with device_lock():
            return compare_programs(build, build_other, self._kinds, self._seed)

    def screen(self, choices: Choices, kernels: Kernels, *, known: Effects, budget_s: float) -> Screening:
        """The effects of single layers on the calibration examples; `known` ones are not found again."""
        if self._kept == ALTERNATE:
            return Screening(effects=known, refusal="with --baseline alternate no second set of weights fits")
        self._begin("building the switchboard")
        build = partial(Screener, self._task, self._program, choices, kernels, self._device)
        with device_lock():
            return screen(self._program, choices, build, known, budget_s, lambda: self._begin("screening"))

    def foresee(self, choices: Choices, kernels: Kernels, ordered: Policies, allowed: float) -> list[Quality | None]:
        """What policies score, uncompiled: those that it takes to find the first inside the allowed drop."""
        build = partial(Screener, self._task, self._program, choices, kernels, self._device)
        with device_lock():
            return foresee(build, self._scorer, ordered, allowed, lambda: self._begin("scoring", self._scoring_s))

    def calibrate(self, choices: Mapping[str, Sequence[Precision]]) -> Calibration:
        """The numbers that layers need to run in these precisions, from the task's calibration examples."""
        self._begin("calibrating", self._scoring_s)
        return calibrate_task(self._task, self._program, choices, self._params)

    def try_precision(self, operation: str, precision: Precision) -> Attempt:
        """Whether one operation runs in a precision here, and what it effectively runs as."""
        self._begin(f"trying {operation} in {precision}")
        return try_precision(operation, precision)

    def check(self) -> None:
        """Returns: nothing that happened in this process forbids to go on."""

    def close(self) -> None:
        """Lets go of everything on the device."""
        for name in ("_baseline", "_scorer", "_inputs", "_params", "_timer", "_spreader", "_locator", "_kinds"):
            self.__dict__.pop(name, None)
        self._holdout = None

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _measure_baseline(self, reference_ms: float | Mapping[str, float] | None) -> None:
        self._on_phase(Phase(name="compiling the program as written"))
        self._params = place_params(self._task.params, self._device, alternate=self._kept == ALTERNATE)
        task = self._task = self._task.with_params(self._params)  # which lets go of those that lie elsewhere
        inputs, _, _ = next(task.search.batches(task.batch_size))
        self._inputs = commit(inputs, self._device)
        executable = compile_baseline(task.apply, self._params, self._inputs, self._device)
        started = time.perf_counter()
        self._scorer = self._scorer_of(task.search, executable)
        scored = time.perf_counter()
        self._kinds = kinds_of(task, self._inputs, self._device)
        self._baseline = programs_of(executable, self._kinds, self._device)
        self._timer = ShapeTimer(
            self._kinds,
            self._baseline,
            self._make_timer,
            reference_ms=reference_ms,
            slow=self._slow,
        )
        self._spreader = Spreader(
            executable,
            self._params,
            self._device,
            self._inputs,
            batches=0 if self._kept == ALTERNATE else -(-len(task.search) // task.batch_size),
            scoring_s=scored - started,
        )
        self._locator = Locator(task, self._program, self._deadline_s)
        own = self._scorer.baseline_scored()
        self.baseline = Measurement(
            latency=self._timer.baseline.latency,
            shapes=self._timer.baseline.shapes,
            quality=own.quality,
            metrics=own.metrics,
            memory=self._baseline.memory,
            costs=replace(self._baseline.costs, quality_s=scored - started, latency_s=time.perf_counter() - scored),
        )

    def _make_timer(self, baseline: Timed, examples: int | None, reference_ms: float | None) -> Timer:
        """A timer of one kind of call; a candidate's time is shared among them."""
        parts = len(self._kinds)
        return Timer(
            baseline,
            examples=examples,
            # An accelerator's neighbors are in no book of the host's.
            watch=Watch(read_usage if jax.devices()[0].platform == "cpu" else None),
            reference_ms=reference_ms,
            effort=replace(self._effort, seconds=self._effort.seconds / parts, least_s=self._effort.least_s / parts),
            seed=self._seed,
            kept=self._kept,
        )

    def _scorer_of(self, split: Split, baseline: Executable) -> Scorer:
        task, again = self._task, self._kept == RESIDENT
        settings = task.metric, baseline, self._device, self._seed, task.constraints
        return Scorer(split, task.batch_size, *settings, again=again)

    def _begin(self, name: str, extra_s: float = 0.0, index: int | None = None) -> None:
        self._on_phase(Phase(name=name, seconds=self._deadline_s + extra_s, index=index))

    @property
    def _scoring_s(self) -> float:
        """Seconds that scoring may take besides the deadline: a program at the limit of what counts as slow, thrice."""
        return 3 * self._slow * self.baseline.costs.quality_s

    def _compile_to_confirm(self, number: int | None, policy: Policy) -> Programs:
        compiling_s = self._deadline_s * (len(self._kinds) + bool(self._spreader.devices))
        self._begin("compiling and scoring", compiling_s + self._scoring_s, number)
        return programs_of(self._compile(policy), self._kinds, self._device)

    def _compile(self, policy: Policy) -> Executable:
        return compile_policy(self._task.apply, self._params, self._program, policy, self._inputs, self._device)

    def _attempt(self, build: Callable[[], Executable], policy: Policy | None) -> Measurement | Failure:
        with device_lock():
            self._begin("compiling", self._deadline_s * (len(self._kinds) - 1))
            try:
                programs = programs_of(build(), self._kinds, self._device)
            except TunerError:  # a mistake of the caller, not of the candidate
                raise
            except Exception as error:  # noqa: BLE001  whatever a compiler throws is this candidate's failure
                return failure_of(error, COMPILE_ERROR)
            try:
                return self._judge(programs, policy)
            except TunerError:
                raise
            except Exception as error:  # noqa: BLE001  the same for what running it throws
                return failure_of(error, ERROR, programs.costs)

    def _judge(self, programs: Programs, policy: Policy | None) -> Measurement | Failure:
        self._begin("making the first call")
        started = time.perf_counter()
        failure = self._first_calls(programs, policy)
        costs = replace(programs.costs, latency_s=time.perf_counter() - started)
        if failure is not None:
            return replace(failure, costs=costs)
        started = time.perf_counter()
        if self._spreader.devices:
            self._begin("compiling for all devices")
        spread = self._spreader.of(programs.scored)
        self._begin("scoring", self._scoring_s)
        scored = self._scorer.measure(spread, self._limits)
        costs = replace(costs, quality_s=time.perf_counter() - started)
        if not isinstance(scored, Scored):
            cause, batch = (NON_FINITE, scored.batch) if isinstance(scored, NonFinite) else (LOSER, 0)
            return self._located(Failure(cause=cause, message=scored.message, costs=costs), policy, batch)
        effective = self._effective(programs, policy)
        memory = programs.memory
        self._begin("timing", self._timer.allowance())
        started = time.perf_counter()
        (timings,) = self._timer.compare([programs])
        return Measurement(
            latency=timings.latency,
            shapes=timings.shapes,
            quality=scored.quality,
            metrics=scored.metrics,
            memory=memory,
            costs=replace(costs, latency_s=costs.latency_s + time.perf_counter() - started),
            effective=MappingProxyType(effective),
        )

    def _first_calls(self, programs: Programs, policy: Policy | None) -> Failure | None:
        """What one call of each kind shows: late, non-finite or slow."""
        for number, (kind, timed) in enumerate(zip(self._kinds, programs.timed, strict=True)):
            failure = self._first_call(number, kind, timed)
            if failure is not None:
                return self._located(failure, policy, 0) if kind.scored else failure
        return None

    def _first_call(self, number: int, kind: Kind, timed: Timed) -> Failure | None:
        compile_s = timed.executable.costs.compile_s
        if compile_s > self._deadline_s:
            return Failure(cause=DEADLINE, message=self._late("compiling", compile_s))
        started = time.perf_counter()
        outputs = timed.call()
        warm_up_s = time.perf_counter() - started
        if warm_up_s > self._deadline_s:
            return Failure(cause=DEADLINE, message=self._late(f"one call{kind.text}", warm_up_s))
        non_finite = self._scorer.non_finite(outputs) if kind.scored else self._timer.non_finite(number, outputs)
        if non_finite is not None:
            return Failure(cause=NON_FINITE, message=non_finite)
        self._begin("timing")
        ratio = self._timer.times_slower(number, timed.call, warm_up_s)
        if ratio is None:
            return None
        limit = f"more than {self._timer.limit(number):g} times is not measured further"
        return Failure(cause=SLOW, message=f"one call{kind.text} takes {ratio:.1f} times the baseline's; {limit}")

    def _located(self, failure: Failure, policy: Policy | None, batch: int) -> Failure:
        """The failure, with the layer that is not finite where it is one of these."""
        if failure.cause != NON_FINITE or policy is None:
            return failure
        begin = partial(self._begin, "finding the layer that is not finite")
        return self._locator.explain(failure, policy, self._scorer.inputs_of(batch), begin)

    def _effective(self, programs: Programs, policy: Policy | None) -> dict[str, str]:
        if policy is None:
            return {}
        executables = (timed.executable for timed in programs.timed)
        found = [effective_in(one.module, one.input_specs, self._program, policy) for one in executables]
        return worst_of({kind.name: ran for kind, ran in zip(self._kinds, found, strict=True)})

    def _late(self, what: str, seconds: float) -> str:
        return f"{what} took {seconds:.1f} s, the deadline is {self._deadline_s:g} s"

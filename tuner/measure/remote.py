"""IsolatedEvaluator: what Evaluator does, in a process of its own, which a candidate may end without ending the search."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from search_spaces import Precision
from tuner.capturing import capture_shapes
from tuner.diagnosis import Attempt
from tuner.drop import Drop
from tuner.effect import Screening
from tuner.errors import InputError, MeasuringStopped
from tuner.kernel_choice import Comparison, unknown
from tuner.measure.device import device_fingerprint
from tuner.measure.evaluator import CASTS, OBJECTIVES, Evaluator
from tuner.measure.kernel_table import KernelTable, Times, time_kernels
from tuner.measure.latency import FULL_EFFORT, Effort
from tuner.measure.process import COMMAND, Lost, MeasuringProcess
from tuner.measure.screening import Choices, Effects, Kernels, Policies
from tuner.measure.sending import (
    CannotSend,
    describe_process,
    describe_task,
    pack_task,
    refusal,
    shares_accelerator,
)
from tuner.measurement import RESIDENT, Confirmation, Failure, Measurement, Quality
from tuner.measurement import reference_ms as of_baseline
from tuner.policy import Policy
from tuner.program import Program
from tuner.scales import Calibration
from tuner.task import Task
from tuner.wire import decode, encode, policy_message

# Children lost one after the other, each to another candidate, before it is not the candidates' fault any more.
_MOST_LOST = 3
# How many times as long as the first a later child may take to load the task and measure the baseline.
_START_FACTOR = 10.0

Say = Callable[[str], object]


def make_evaluator(
    task: Task,
    program: Program,
    *,
    isolation: str = "child",
    memory_limit: int | None = None,
    say: Say = lambda text: None,
    **settings: Any,
) -> "Evaluator | IsolatedEvaluator":
    """An evaluator in a process of its own, or in this one where it was asked for or no other can do it, which is said.

    Args:
        task: what is tuned.
        program: the captured task.
        isolation: "child" or "none".
        memory_limit: bytes that a child may take beyond its baseline; in this process there is none.
        say: called with each remark for the user.
        **settings: as of `Evaluator`.
    """
    if isolation == "none":
        return Evaluator(task, program, **settings)
    reason = refusal(jax.devices()[0].platform)
    if reason is None:
        try:
            return IsolatedEvaluator(task, program, memory_limit=memory_limit, say=say, **settings)
        except CannotSend as error:
            reason = str(error)
    say(f"Note: candidates run in this process, and one that crashes ends the search: {reason}.")
    return Evaluator(task, program, **settings)


class IsolatedEvaluator:
    """Measures candidates of one task in a child process, which holds the task and its baseline.

    A child that crashes, hangs beyond a deadline or runs out of memory is a Failure of the candidate that was measured;
    the next candidate gets a new child. What the first child found of the baseline stays what it is.

    Args:
        task: what is tuned; it must be possible to send.
        program: the captured task.
        max_drop: as of `Evaluator`, like the next six.
        objectives: what the search minimizes.
        deadline_s: seconds that compiling, and one call, may take before the child is ended.
        reference_ms: the study's baseline in milliseconds, by name where there are several kinds of call.
        effort: how long a candidate is timed.
        seed: of the bootstraps.
        baseline: "resident" or "alternate".
        memory_limit: bytes that a child may take beyond its baseline; by default nearly all that is free.
        say: called with each remark for the user.
        command: the child's program.

    Raises:
        CannotSend: the task cannot be measured in another process.
        MeasuringStopped: the program as written ends the process it runs in.
        TunerError: what `Evaluator` would raise.
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
        memory_limit: int | None = None,
        say: Say = lambda text: None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._program = program
        self._shapes = capture_shapes(task, program)
        self._say = say
        self._command = command
        self._settings = {
            "max_drop": str(max_drop),
            "objectives": list(objectives),
            "deadline_s": deadline_s,
            "reference_ms": reference_ms,
            "effort": dataclasses.asdict(effort),
            "seed": seed,
            "baseline": baseline,
            "memory_limit": memory_limit,
        }
        self._task = task
        self._how = describe_task(task)
        self._packed = None if self._how["reference"] is not None else pack_task(task)
        # Messages of the children lost since the last answer, by what was being measured.
        self._lost: dict[str, str] = {}
        self._child: MeasuringProcess | None = None
        self._deadline_s = deadline_s
        self._start_s: float | None = None  # what the first child took
        self.baseline = self._first_start()
        self._settings["reference_ms"] = of_baseline(self.baseline)

    def measure(self, policy: Policy) -> Measurement | Failure:
        """The measurement of a policy, or why it has none.

        Raises:
            PolicyError: the policy is not for this program.
            MeasuringStopped: too many children were lost in a row.
        """
        return self._measure({"ask": "measure", "policy": policy_message(policy)}, lambda: policy.hash)

    def measure_cast(self, format: str) -> Measurement | Failure:
        """The hand-made way, for reference: every floating parameter and input cast to "bf16" or "f16"."""
        if format not in CASTS:
            raise InputError(f"cannot measure a cast to {format!r}: the reference points are {', '.join(CASTS)}")
        return self._measure({"ask": "measure_cast", "format": format}, lambda: f"astype({format})")

    def confirm(self, policies: Sequence[Policy]) -> list[Confirmation | Failure]:
        """Every policy once more, all in one interleaved round with the baseline, and scored on the holdout split.

        One that ends the child is left out of the round, which is then taken again. When that happens while all are
        timed together and nobody knows which one it was, each gets a round of its own.
        """
        outcomes: dict[int, Confirmation | Failure] = {}
        together = True
        while waiting := [number for number in range(len(policies)) if number not in outcomes]:
            self.check()
            batch = waiting if together else waiting[:1]
            messages = [policy_message(policies[number]) for number in batch]
            answer = self._ask({"ask": "confirm", "policies": messages})
            if not isinstance(answer, Lost):
                self._lost.clear()
                outcomes |= dict(zip(batch, decode(answer), strict=True))
            elif answer.index is None and len(batch) > 1:
                together = False
            else:
                number = batch[answer.index or 0]
                outcomes[number] = self._failure(answer, policies[number].hash)
        return [outcomes[number] for number in range(len(policies))]

    def time_kernels(self, choices: Mapping[str, Sequence[Precision]], *, known: Times, budget_s: float) -> KernelTable:
        """The kernel table of the program's operations; `known` times are not taken again.

        When a kernel ends the child, the table has what was known before.
        """
        times = dict(known)
        if budget_s > 0:
            texts = {name: [str(precision) for precision in taken] for name, taken in choices.items()}
            question = {"ask": "time_kernels", "choices": texts, "known": encode(times), "budget_s": budget_s}
            answer = self._ask(question)
            if isinstance(answer, Lost):
                self._say(f"Note: the kernels are not timed, and the plain ones are used: {answer.message}.")
            else:
                times = decode(answer)
        return time_kernels(self._program, choices, shapes=self._shapes, known=times, budget_s=0.0)

    def layer_shares(self, budget_s: float) -> dict[str, float]:
        """Layer name -> its share of the program as written; none when finding them ends the child."""
        answer = self._ask({"ask": "layer_shares", "budget_s": budget_s})
        if isinstance(answer, Lost):
            self._say(f"Note: the layers' shares are not known: {answer.message}.")
            return {}
        return dict(decode(answer))

    def compare(self, policy: Policy, against: Policy) -> Comparison:
        """How long a policy takes as a ratio to another one; not known when that ends the child."""
        messages = {"policy": policy_message(policy), "against": policy_message(against)}
        answer = self._ask({"ask": "compare", **messages})
        if isinstance(answer, Lost):
            return unknown(answer.message)
        compared: Comparison = decode(answer)
        return compared

    def screen(self, choices: Choices, kernels: Kernels, *, known: Effects, budget_s: float) -> Screening:
        """The effects of single layers; when finding them ends the child, those that were known, and why."""
        question = {"ask": "screen", **_switches(choices, kernels), "known": encode(known), "budget_s": budget_s}
        answer = self._ask(question)
        if isinstance(answer, Lost):
            return Screening(effects=known, refusal=answer.message)
        found: Screening = decode(answer)
        return found

    def foresee(self, choices: Choices, kernels: Kernels, ordered: Policies, allowed: float) -> list[Quality | None]:
        """As of `Evaluator`; nothing where it ends the child."""
        policies = [{name: str(precision) for name, precision in one.items()} for one in ordered]
        answer = self._ask({"ask": "foresee", **_switches(choices, kernels), "policies": policies, "allowed": allowed})
        if isinstance(answer, Lost):
            return [None] * len(ordered)
        found: list[Quality | None] = decode(answer)
        return found

    def calibrate(self, choices: Mapping[str, Sequence[Precision]]) -> Calibration:
        """The numbers that layers need to run in these precisions, from the task's calibration examples.

        Raises:
            MeasuringStopped: looking at them ends the child.
        """
        texts = {name: [str(precision) for precision in taken] for name, taken in choices.items()}
        answer = self._ask({"ask": "calibrate", "choices": texts})
        if isinstance(answer, Lost):
            raise MeasuringStopped(
                f"the layers cannot be calibrated: {answer.message}; leave static scales and bias correction out of the "
                "space, or give the task fewer calibration examples"
            )
        found: Calibration = decode(answer)
        return found

    def try_precision(self, operation: str, precision: Precision) -> Attempt:
        """Whether one operation runs in a precision here; one that ends the child cannot run, and that is all."""
        answer = self._ask({"ask": "try_precision", "operation": operation, "precision": str(precision)})
        if isinstance(answer, Lost):
            return Attempt(refusal=f"{answer.cause}: {answer.message}")
        attempt: Attempt = decode(answer)
        return attempt

    def check(self) -> None:
        """Returns when there is a point in measuring another candidate.

        Raises:
            MeasuringStopped: the last three children were lost, each with another candidate.
        """
        if len(self._lost) >= _MOST_LOST:
            raise MeasuringStopped(
                f"the last {len(self._lost)} candidates each ended the process they were measured in, so the search "
                f"stops; everything measured is kept. The last: {list(self._lost.values())[-1]}. Mend what they have "
                "in common (driver, memory, XLA flags) or leave such precisions out of the space, and resume"
            )

    def close(self) -> None:
        """Ends the child."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> "IsolatedEvaluator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _measure(self, question: Mapping[str, Any], key: Callable[[], str]) -> Measurement | Failure:
        self.check()
        answer = self._ask(question)
        if isinstance(answer, Lost):
            return self._failure(answer, key())
        self._lost.clear()
        outcome: Measurement | Failure = decode(answer)
        return outcome

    def _failure(self, lost: Lost, key: str) -> Failure:
        self._lost[key] = lost.message
        return Failure(cause=lost.cause, message=lost.message)

    def _ask(self, question: Mapping[str, Any]) -> Any:
        """The child's answer, or how it was lost; a new one is started when there is none."""
        if self._child is None:
            started = self._start()
            if isinstance(started, Lost):
                raise MeasuringStopped(
                    f"no new process can be started to measure in: {started.message}; everything measured is kept. "
                    "The same command goes on from here"
                )
        return self._speak(question)

    def _speak(self, question: Mapping[str, Any], packed: bytes | None = None, within_s: float | None = None) -> Any:
        """One question to the child there is; whatever goes wrong, there is none afterwards."""
        child = self._child
        if child is None:
            raise RuntimeError("there is no measuring process to ask")
        try:
            answer = child.ask(question, packed, within_s)
        except BaseException:  # Ctrl-C too: an answer that nobody waits for must not be taken for the next one
            self.close()
            raise
        if isinstance(answer, Lost):
            self.close()
        return answer

    def _start(self) -> Any:
        """What a new child says when it is ready, or how it was lost."""
        self._child = MeasuringProcess(self._command)
        question = {
            "ask": "start",
            "process": describe_process(),
            "device": device_fingerprint(),
            "task": self._how,
            "settings": self._settings,
            "blob": self._packed is not None,
        }
        began = time.monotonic()
        # The first may load and measure the baseline as long as it takes: the user watches. A later one must not hang.
        within_s = None if self._start_s is None else max(self._deadline_s, _START_FACTOR * self._start_s)
        answer = self._speak(question, self._packed, within_s)
        self._start_s = self._start_s or time.monotonic() - began
        return answer

    def _first_start(self) -> Measurement:
        try:
            ready = self._start()
        except CannotSend:
            if self._packed is not None:
                raise
            # Its reference does not give this very task (again): send what there is.
            self._packed = pack_task(self._task)
            ready = self._start()
        if isinstance(ready, Lost):
            raise MeasuringStopped(
                f"the program as written does not run in a process of its own: {ready.message}. "
                "Try --isolation none to see it fail in this one"
            )
        self._tell_limits(ready)
        baseline: Measurement = decode(ready["baseline"])
        return baseline

    def _tell_limits(self, ready: Mapping[str, Any]) -> None:
        if ready["unlimited"] is not None:
            self._say(f"Note: candidates have no memory limit: {ready['unlimited']}.")
        if shares_accelerator(jax.devices()[0].platform):
            self._say(
                "Note: this process may hold most of the accelerator's memory, and candidates get the rest; "
                "set XLA_PYTHON_CLIENT_PREALLOCATE=false before JAX begins."
            )


def _switches(choices: Choices, kernels: Kernels) -> dict[str, Any]:
    """What a switchboard is made of, for a message."""
    return {
        "choices": {name: [str(precision) for precision in taken] for name, taken in choices.items()},
        "kernels": [[name, str(precision), kernel] for (name, precision), kernel in kernels.items()],
    }

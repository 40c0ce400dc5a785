"""Probing: all precisions of a device, each in a process that it may end without ending the others."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol

import jax

from search_spaces import Precision
from tuner.diagnosis import BATCH_1, Attempt, Finding, Probe, Speed
from tuner.errors import MeasuringStopped
from tuner.measure import probe
from tuner.measure.failures import failure_of
from tuner.measure.process import Lost, MeasuringProcess
from tuner.measure.sending import describe_process, refusal
from tuner.measurement import ERROR, Failure
from tuner.wire import decode

COMMAND = (sys.executable, "-P", "-m", "tuner.measure.probe_child")
# The cheap ones first, so that a budget that ends early leaves out what takes longest.
_ORDER = ("small", BATCH_1, "medium")


class Prober(Protocol):
    """What tries and times single operations."""

    # Why candidates have no memory limit, None where they have one.
    unlimited: str | None

    def try_precision(self, operation: str, precision: Precision) -> Attempt:
        """Whether it runs."""

    def time_precision(self, operation: str, precision: Precision, shape: str) -> Speed | Failure:
        """How fast it is."""

    def close(self) -> None:
        """Ends the process, where there is one."""


def make_prober() -> Prober:
    """A prober in a process of its own, or in this one on a device that only one process can use."""
    reason = refusal(jax.devices()[0].platform)
    return IsolatedProber() if reason is None else LocalProber(reason)


class LocalProber:
    """Probes in this process.

    Args:
        reason: why not in another.
    """

    def __init__(self, reason: str) -> None:
        self.unlimited: str | None = reason

    def try_precision(self, operation: str, precision: Precision) -> Attempt:
        """Whether it runs."""
        return probe.try_precision(operation, precision)

    def time_precision(self, operation: str, precision: Precision, shape: str) -> Speed | Failure:
        """How fast it is."""
        try:
            return probe.time_precision(operation, precision, shape)
        except Exception as error:  # noqa: BLE001  whatever it throws, it cannot run at this shape
            return failure_of(error, ERROR)

    def close(self) -> None:
        """Nothing."""


class IsolatedProber:
    """Probes in a child; one that ends it is told by its end, and the next gets a new child.

    Args:
        command: the child's program.

    Raises:
        MeasuringStopped: no child starts.
    """

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = command
        self._child: MeasuringProcess | None = None
        self.unlimited: str | None = self._start()

    def try_precision(self, operation: str, precision: Precision) -> Attempt:
        """Whether it runs."""
        answer = self._ask({"ask": "try", "operation": operation, "precision": str(precision)})
        if isinstance(answer, Lost):
            return Attempt(refusal=f"{answer.cause}: {answer.message}")
        attempt: Attempt = decode(answer)
        return attempt

    def time_precision(self, operation: str, precision: Precision, shape: str) -> Speed | Failure:
        """How fast it is."""
        answer = self._ask({"ask": "time", "operation": operation, "precision": str(precision), "shape": shape})
        if isinstance(answer, Lost):
            return Failure(cause=answer.cause, message=answer.message)
        found: Speed | Failure = decode(answer)
        return found

    def close(self) -> None:
        """Ends the child."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _start(self) -> str | None:
        self._child = MeasuringProcess(self._command)
        answer = self._speak({"ask": "start", "process": describe_process(), "blob": False})
        if isinstance(answer, Lost):
            raise MeasuringStopped(f"no process can be started to probe in: {answer.message}")
        unlimited: str | None = answer["unlimited"]
        return unlimited

    def _ask(self, question: Mapping[str, Any]) -> Any:
        if self._child is None:
            self._start()
        return self._speak(question)

    def _speak(self, question: Mapping[str, Any]) -> Any:
        child = self._child
        if child is None:
            raise RuntimeError("there is no probing process to ask")
        try:
            answer = child.ask(question)
        except BaseException:  # Ctrl-C too
            self.close()
            raise
        if isinstance(answer, Lost):
            self.close()
        return answer


def try_all(
    prober: Prober, known: Probe, wanted: Mapping[str, Sequence[Precision]], say: Callable[[str], object]
) -> Probe:
    """What is known, and whether each of the wanted precisions runs, by operation."""
    findings = []
    for operation, precisions in wanted.items():
        for precision in precisions:
            if known.find(operation, precision) is None:
                say(f"trying {operation} in {precision}")
                attempt = prober.try_precision(operation, precision)
                findings.append(Finding(operation=operation, precision=str(precision), attempt=attempt))
    return known.merged(findings)


def time_all(
    prober: Prober,
    found: Probe,
    *,
    seconds: float,
    say: Callable[[str], object],
    clock: Callable[[], float] = time.monotonic,
) -> Probe:
    """The probe with the speed of all that runs, as far as the seconds reach; what is timed already stays as it is."""
    ends = clock() + seconds
    findings = list(found.findings)
    for shape in _ORDER:
        for place, finding in enumerate(findings):
            if finding.attempt.refusal or shape in finding.speeds or shape in finding.failures:
                continue
            if clock() >= ends:
                break
            say(f"timing {finding.operation} in {finding.precision}, {shape}")
            speed = prober.time_precision(finding.operation, Precision.parse(finding.precision), shape)
            findings[place] = _with_speed(finding, shape, speed)
    taken = datetime.now(UTC).isoformat(timespec="seconds")
    return replace(found, findings=tuple(findings), taken=taken)


def _with_speed(finding: Finding, shape: str, speed: Speed | Failure) -> Finding:
    if isinstance(speed, Failure):
        failures = {**finding.failures, shape: f"{speed.cause}: {speed.message}"}
        return replace(finding, failures=MappingProxyType(failures))
    return replace(finding, speeds=MappingProxyType({**finding.speeds, shape: speed}))

"""Locate: of a candidate whose outputs are not finite, the layer where that begins."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tuner.measurement import Failure
from tuner.policy import Policy
from tuner.program import Program, original_policy
from tuner.program.stability import find_stability
from tuner.stability import OUTPUTS, Stability
from tuner.task import Task

_LOG = logging.getLogger("tuner")
# Of all the time so far, and of a deadline; looking for a reason must not cost a search its candidates.
_SHARE = 0.1
_FREE_S = 10.0
_SHARE_OF_DEADLINE = 0.25


class Locator:
    """Looks into candidates of one task.

    Args:
        task: what is tuned.
        program: the captured task.
        deadline_s: what compiling may take; a program that takes a good part of it is not compiled once more.
    """

    def __init__(self, task: Task, program: Program, deadline_s: float) -> None:
        self._task = task
        self._program = program
        self._longest_s = _SHARE_OF_DEADLINE * deadline_s
        self._began = time.monotonic()
        self._spent_s = 0.0
        self._untouched: Stability | None = None

    def explain(
        self, failure: Failure, policy: Policy, inputs: tuple[Any, ...], begin: Callable[[], object]
    ) -> Failure:
        """The failure with the first layer that is not finite and its numbers, where there is time to find it.

        Args:
            failure: of the candidate.
            policy: the candidate.
            inputs: a batch on which it fails.
            begin: called before the work.
        """
        started = time.monotonic()
        allowed = max(_FREE_S, _SHARE * (started - self._began))
        if self._spent_s > allowed or failure.costs.compile_s > self._longest_s:
            return failure
        begin()
        try:
            return self._explain(failure, policy, inputs)
        except Exception:  # noqa: BLE001  the candidate has failed already, and that is what counts
            _LOG.debug("no layer was found for %s", failure.message, exc_info=True)
            return failure
        finally:
            self._spent_s += time.monotonic() - started

    def _explain(self, failure: Failure, policy: Policy, inputs: tuple[Any, ...]) -> Failure:
        found = self._look(policy, inputs)
        if found.first_non_finite is None:
            return failure
        if self._untouched is None:  # on whatever batch: what the program means to be infinite is so on all
            self._untouched = self._look(original_policy(self._program), inputs)
        found = found.besides(self._untouched)
        first, why = found.first_non_finite, found.why_non_finite()
        if first is None or why is None:
            return failure
        layer = None if first.layer == OUTPUTS else first.layer
        return replace(failure, message=f"{failure.message}; {why}", layer=layer)

    def _look(self, policy: Policy, inputs: tuple[Any, ...]) -> Stability:
        return find_stability(self._task.apply, self._task.params, policy, inputs, program=self._program)

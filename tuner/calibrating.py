"""Calibrating: from a task's calibration examples to the numbers that static scales and bias correction need."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.errors import InputError
from tuner.policy import Policy
from tuner.scales import CalibratedOn, Calibration

if TYPE_CHECKING:  # these load JAX
    from search_spaces import Precision
    from tuner.data import Split
    from tuner.program import Program
    from tuner.task import Task

# Batches that are looked at, of the calibration examples there are.
MOST_BATCHES = 32


def calibrate(task: "Task", policy: Policy) -> Policy:
    """The policy with every number that its static scales and bias corrections need, found on the task's examples.

    Args:
        task: what the policy is for; its calibration examples are a slice of the search split unless others were given.
        policy: of its program.

    Raises:
        InputError: a layer sees nothing on these examples, or values that are NaN or infinite.
        PolicyError: the policy is for another program.
    """
    from tuner.capturing import capture_task
    from tuner.policy_fit import check_fits

    if policy.program is not None:
        task = task.with_split_scans(policy.program.split_scans)
    program = capture_task(task)
    check_fits(policy, program.signature)
    found = calibrate_task(task, program, {name: (precision,) for name, precision in policy.precisions.items()})
    for layer, problem in found.problems.items():
        raise InputError(
            f"layer {layer!r} cannot be calibrated for {policy[layer].precision}: {problem}; give the task other "
            "calibration=... or the layer a precision that needs none"
        )
    return found.complete(policy)


def calibrate_task(
    task: "Task", program: "Program", choices: Mapping[str, Sequence["Precision"]], params: Any = None
) -> Calibration:
    """What the layers of a task need to run in these precisions.

    Args:
        task: whose calibration examples are looked at: all of them up to 32 batches, in their order.
        program: the captured task.
        choices: layer name -> precisions.
        params: the task's parameters where they lie already; left out, its own.
    """
    from tuner.program.calibration import calibrate as calibrate_program

    batches = list(_batches(task.calibration, task.batch_size))
    return calibrate_program(program, task.params if params is None else params, batches, choices, calibrated_on(task))


def calibrated_on(task: "Task") -> CalibratedOn:
    """What calibration on a task's examples is made of."""
    examples = task.calibration
    count = len(examples)
    own = type(examples)(task.search.pick(slice(0, count)).inputs).fingerprint() == examples.fingerprint()
    seen = min(count // task.batch_size * task.batch_size or count, MOST_BATCHES * task.batch_size)
    return CalibratedOn(
        examples=seen, split="search" if own else "given", fingerprint=examples.pick(slice(0, seen)).fingerprint()
    )


def _batches(examples: "Split", batch_size: int) -> Iterator[tuple[Any, ...]]:
    """Whole batches, so that no example counts twice; where there are fewer examples than one batch, they are repeated."""
    count = len(examples)
    if count < batch_size:
        yield examples.pick(np.arange(batch_size) % count).inputs
        return
    for number in range(min(count // batch_size, MOST_BATCHES)):
        yield examples.pick(slice(number * batch_size, (number + 1) * batch_size)).inputs

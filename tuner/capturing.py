"""From a task to its program: what the search, `tuner layers` and `tuner verify` have in common."""

from typing import TYPE_CHECKING

from tuner.errors import CaptureError, InputError
from tuner.policy_fit import difference_text

if TYPE_CHECKING:
    from tuner.program import Program
    from tuner.task import Task


def capture_task(task: "Task") -> "Program":
    """The program of a task, traced with one batch of its search split."""
    from tuner.program import capture

    inputs, _, _ = next(task.search.batches(task.batch_size))
    return capture(task.apply, task.params, inputs, split_scans=task.split_scans)


def capture_shapes(task: "Task", program: "Program") -> tuple[tuple[float, "Program"], ...]:
    """(weight, program) of each of the calls that a task is timed with; none where it is timed as it is scored.

    Raises:
        InputError: `apply` does not take such inputs, or has other layers for them.
    """
    return tuple((shape.weight, _capture_shape(task, program, name)) for name, shape in task.shapes.items())


def _capture_shape(task: "Task", program: "Program", name: str) -> "Program":
    from tuner.program import capture

    shape = task.shapes[name]
    if shape.batch_size == task.batch_size:
        return program
    try:
        captured = capture(task.apply, task.params, shape.call(task.search), split_scans=task.split_scans)
    except CaptureError as error:
        raise InputError(f"shape {name!r} of task {task.name!r}: {error}") from error
    difference = difference_text(captured.signature, program.signature)
    if captured.input_tree != program.input_tree:
        difference = f"its inputs are {captured.input_tree} there and {program.input_tree} here"
    if difference:
        raise InputError(
            f"shape {name!r} of task {task.name!r} leads to other layers than the batches that are scored: {difference}; "
            "give inputs that lead to the same layers, or make it a task of its own"
        )
    unread = [captured.leaf_paths[leaf] for leaf in sorted(_read_leaves(captured) - _read_leaves(program))]
    if unread:
        raise InputError(
            f"shape {name!r} of task {task.name!r} reads parameters that the batches that are scored do not: "
            f"{', '.join(unread)}; score batches that read them too, or make it a task of its own"
        )
    return captured


def _read_leaves(program: "Program") -> frozenset[int]:
    """Positions of the parameters that a program reads: only those are packed for it."""
    from tuner.program import original_policy
    from tuner.program.plan import plan

    return plan(program, original_policy(program)).needed

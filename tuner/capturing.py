"""From a task to its program: what the search, `tuner layers` and `tuner verify` have in common."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.program import Program
    from tuner.task import Task


def capture_task(task: "Task") -> "Program":
    """The program of a task, traced with one batch of its search split."""
    from tuner.program import capture

    inputs, _, _ = next(task.search.batches(task.batch_size))
    return capture(task.apply, task.params, inputs, split_scans=task.split_scans)

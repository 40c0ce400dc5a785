"""Sending: how a task reaches the process that measures it, by reference or by value, and what else that process needs."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from tuner import _jax_compat as compat
from tuner.errors import error_line
from tuner.task import Task

_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
_without_preallocation = False


class CannotSend(Exception):
    """The task cannot be measured in another process; the message says why."""


def describe_task(task: Task) -> dict[str, Any]:
    """What the child loads the task by: its reference and what must be equal, when it has one."""
    if task.reference is None:
        return {"reference": None}
    return {
        "reference": task.reference,
        "batch_size": task.batch_size,
        "split_scans": task.split_scans,
        "fingerprints": task.fingerprints(),
    }


def pack_task(task: Task) -> bytes:
    """The task itself: functions of a script or notebook by value, those of modules by name.

    Raises:
        CannotSend: something in it cannot be copied to another process.
    """
    import cloudpickle

    try:
        packed: bytes = cloudpickle.dumps(task)
    except Exception as error:  # whatever a user's object throws
        raise CannotSend(f"the task cannot be copied to another process ({error_line(error)})") from error
    return packed


def describe_process() -> dict[str, Any]:
    """What makes another process compute as this one: where modules are found, and how JAX is configured."""
    return {"path": [entry or os.getcwd() for entry in sys.path], "jax": compat.configuration()}  # noqa: PTH109


def child_environment() -> dict[str, str]:
    """The environment of the child: modules are found where this process finds them."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109
    if _without_preallocation:
        environment.pop(_PREALLOCATE, None)  # that was for this process alone
    return environment


def leave_memory_to_child() -> None:
    """Keeps this process, where JAX has not begun yet, from taking an accelerator's memory for itself."""
    global _without_preallocation
    if _PREALLOCATE not in os.environ and not compat.backends_are_initialized():
        os.environ[_PREALLOCATE] = "false"
        _without_preallocation = True


def refusal(platform: str) -> str | None:
    """Why no second process can measure on this platform, or None."""
    if platform == "tpu":
        return "a TPU belongs to one process at a time"
    if not sys.executable:
        return "this Python does not know its own executable"
    if os.name != "posix":
        return f"measuring in another process is not available on {os.name}"
    return None


def shares_accelerator(platform: str) -> bool:
    """True where this process has taken most of the accelerator's memory already, and the child gets the rest."""
    wanted: Mapping[str, str] = os.environ
    return platform not in ("cpu", "tpu") and wanted.get(_PREALLOCATE, "true").lower() not in ("false", "0")

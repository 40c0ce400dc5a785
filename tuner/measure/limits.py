"""Limits: what a measuring process may take from the machine, and that it does not outlive who asked for it."""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def available_bytes() -> int | None:
    """Memory that is free for new work on this machine and in this control group; None where nobody says."""
    found = [value for value in (_free_on_machine(), _free_in_group()) if value is not None]
    return min(found, default=None)


def limit_memory(more: int) -> str | None:
    """Lets this process grow by so many bytes of address space; None, or why there is no limit.

    An allocation beyond it fails inside the program that asks, so that the candidate fails and not the machine.
    """
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no limit on the memory of one process"
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    wanted = pages * resource.getpagesize() + more
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    except (OSError, ValueError) as error:
        return f"the system refuses a limit on memory: {error}"
    return None


def die_with(parent: int) -> None:
    """Ends this process with its parent even while native code holds the interpreter; Linux only."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that
        os._exit(1)


def _free_on_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _free_in_group() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        most, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    return None if most == "max" else max(0, int(most) - int(used))

"""Owner: the process that claimed a candidate, told apart from a later one with the same number."""

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A process on a host.

    Args:
        host: the host's network name.
        pid: the process's number there.
        started: when it started, in a form that only that host compares; "" where the system does not tell.
    """

    host: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> "Owner":
        """This process."""
        return cls(host=platform.node(), pid=os.getpid(), started=_started(os.getpid()) or "")

    def alive(self) -> bool:
        """False only when the process is certainly gone: one on another host is believed alive."""
        if self.host != platform.node():
            return True
        started = _started(self.pid)
        if started is None:
            return False
        return not self.started or not started or started == self.started


def _started(pid: int) -> str | None:
    """When the process started; None when there is none, "" when the system does not tell."""
    if Path("/proc/self/stat").exists():
        return _started_by_proc(pid)
    return _started_by_ps(pid)


def _started_by_proc(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return ""
    # The second field is the command in brackets, which may hold anything; state is field 3, start time field 22.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else f"{boot}:{fields[19]}"


def _started_by_ps(pid: int) -> str | None:
    try:
        run = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""  # no `ps` here: nobody is declared dead
    return run.stdout.strip() or None

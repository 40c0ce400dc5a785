"""Device: what this one is called, what makes its measurements comparable, and the lock that keeps others off it."""

import errno
import fcntl
import hashlib
import logging
import os
import platform
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jaxlib.version import __version__ as jaxlib_version

from tuner.errors import TunerError

_LOG = logging.getLogger("tuner")
_POLL_S = 0.05
_SAY_WHO_AFTER_S = 2.0
# CPU features that decide which number formats are fast; two machines of one name may differ in them.
_CPU_FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8", "asimd", "bf16", "i8mm", "sve")  # fmt: skip
# Variables that decide which physical accelerator "device 0" is.
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS")


def device_name() -> str:
    """The device measured on, as a person would call it: "NVIDIA H100", or a CPU's model and its threads."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return str(device.device_kind)
    return f"{_cpu_model()}, {_threads()} threads"


def device_fingerprint() -> dict[str, str]:
    """Everything outside the task that changes what is measured; two studies compare only if all of it is equal."""
    device = jax.devices()[0]
    kind = f"{_cpu_model()} ({_cpu_features()})" if device.platform == "cpu" else str(device.device_kind)
    return {
        "platform": device.platform,
        "kind": kind,
        "jaxlib": jaxlib_version,
        "xla_flags": " ".join(
            sorted(f"{os.environ.get('XLA_FLAGS', '')} {os.environ.get('LIBTPU_INIT_ARGS', '')}".split())
        ),
        "threads": str(_threads()),
        "matmul_precision": _setting("jax_default_matmul_precision"),
        "x64": _setting("jax_enable_x64"),
        "promotion": _setting("jax_numpy_dtype_promotion"),
    }


@contextmanager
def device_lock(timeout: float | None = None) -> Iterator[None]:
    """Holds this device against every other measurement on the machine, of any process and user.

    Waits for the holder, and says who that is when it takes long. The kernel drops the lock when its holder dies. Where
    the temp folder has no locks, measuring goes on without, and says so.

    Args:
        timeout: seconds to wait; forever when None.

    Raises:
        TunerError: the timeout passed.
    """
    path = lock_path()
    try:
        handle = _open_shared(path)
    except OSError as error:
        _LOG.warning("no device lock (%s: %s): other measurements may disturb these", path, error.strerror)
        yield
        return
    try:
        if _acquire(handle, path, timeout):
            _write_holder(handle)
        yield
    finally:
        os.close(handle)  # which releases the lock


def lock_state() -> tuple[bool, str]:
    """(whether this device has a lock, in words what it is and who holds it)."""
    path = lock_path()
    try:
        handle = _open_shared(path)
    except OSError as error:
        return False, f"none: {path} cannot be opened ({error.strerror}), and two searches would disturb each other"
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True, f"held by {_holder(handle)}"
    except OSError as error:
        return False, f"none: {path} cannot be locked ({error.strerror}), and two searches would disturb each other"
    finally:
        os.close(handle)
    return True, "free"


def lock_path() -> Path:
    """The lock file of the device measured on."""
    device = jax.devices()[0]
    which = (
        "" if device.platform == "cpu" else f"{device.id}:" + ",".join(os.environ.get(name, "") for name in _VISIBLE)
    )
    digest = hashlib.sha256(which.encode()).hexdigest()[:8] if which else "0"
    return Path(tempfile.gettempdir()) / f"jax-precision-tuner-{device.platform}-{digest}.lock"


def _open_shared(path: Path) -> int:
    """A handle on the lock file, which everyone may open.

    Opened first without creating: in a sticky folder Linux refuses O_CREAT on a file of another user.
    """
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR):
        try:
            handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except (FileNotFoundError, FileExistsError):
            continue
        if flags & os.O_CREAT:
            os.fchmod(handle, 0o666)  # whatever the umask took away
        return handle
    raise OSError(errno.EEXIST, "appears and disappears", str(path))


def _acquire(handle: int, path: Path, timeout: float | None) -> bool:
    """True once the lock is held, False where the file system has none."""
    started, said = time.monotonic(), False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        except OSError as error:
            _LOG.warning("no device lock (%s: %s): other measurements may disturb these", path, error.strerror)
            return False
        waited = time.monotonic() - started
        if timeout is not None and waited >= timeout:
            raise TunerError(
                f"the device is measured on by {_holder(handle)} and was not free within {timeout:g} s; "
                "wait for it to end, or stop it"
            )
        if waited >= _SAY_WHO_AFTER_S and not said:
            _LOG.warning("waiting for the device, measured on by %s", _holder(handle))
            said = True
        time.sleep(_POLL_S)


def _write_holder(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)


def _holder(handle: int) -> str:
    return os.pread(handle, 200, 0).decode(errors="replace") or "another process"


def _threads() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no such call on this system
        return os.cpu_count() or 1


def _cpu_model() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpu_features() -> str:
    present = f"{_cpuinfo('flags')} {_cpuinfo('Features')}".split()
    return " ".join(name for name in _CPU_FEATURES if name in present) or platform.machine()


def _cpuinfo(key: str) -> str:
    """The first value of that key in /proc/cpuinfo, or nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == key), "")


def _setting(name: str) -> str:
    return str(getattr(jax.config, name))

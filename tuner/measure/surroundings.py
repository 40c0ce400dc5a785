"""Surroundings: what measuring needs of the system, and what there is of it."""

import os
import shutil
import tempfile
from pathlib import Path

import jax

from tuner.diagnosis import Check
from tuner.measure.compile_cache import enable_compile_cache
from tuner.measure.device import lock_state
from tuner.measure.limits import available_bytes
from tuner.measure.sending import refusal
from tuner.measure.usage import Usage, read_usage

# Below this a search may end with a full disk.
_LEAST_BYTES = 10**9


def check_surroundings(database: Path, unlimited: str | None) -> tuple[Check, ...]:
    """Everything that measuring needs besides a device.

    Args:
        database: where studies are kept.
        unlimited: why candidates have no memory limit, None where they have one.
    """
    enable_compile_cache()
    cache = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009  mypy knows no settings
    return (
        _check_isolation(refusal(jax.devices()[0].platform)),
        _check_memory(unlimited, available_bytes()),
        Check("lock", *lock_state()),
        _check_disk("database", database.parent),
        _check_disk("temp folder", Path(tempfile.gettempdir())),
        Check("compile cache", False, "off: no folder for it can be written; candidates are compiled anew every time")
        if cache is None
        else _check_disk("compile cache", _nearest(Path(cache))),
        _check_neighbors(read_usage()),
    )


def _nearest(folder: Path) -> Path:
    """The folder itself, or the one that it will be made in."""
    return next((place for place in (folder, *folder.parents) if place.exists()), folder)


def _check_isolation(reason: str | None) -> Check:
    if reason is None:
        return Check("isolation", True, "candidates run in a process of their own")
    return Check("isolation", False, f"candidates run in the search's process, and a crash ends it: {reason}")


def _check_memory(unlimited: str | None, free: int | None) -> Check:
    if unlimited is not None:
        return Check("memory limit", False, f"candidates have none: {unlimited}")
    room = "" if free is None else f"; {free / 1e9:.3g} GB are free"
    return Check("memory limit", True, f"a candidate that takes too much fails alone{room}")


def _check_disk(name: str, folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(name, False, f"{folder} cannot be used: {error.strerror}")
    if not os.access(folder, os.W_OK):
        return Check(name, False, f"{folder} cannot be written")
    return Check(name, free >= _LEAST_BYTES, f"{free / 1e9:.3g} GB free in {folder}")


def _check_neighbors(usage: Usage) -> Check:
    load = "no load is known" if usage.load is None else f"the load is {usage.load:.1f} on {usage.cpus} CPUs"
    if usage.busy_s is None:
        return Check("quiet machine", False, f"{load}, and without /proc/stat neighbors show in timings alone")
    quiet = usage.load is None or usage.load < usage.cpus
    return Check("quiet machine", quiet, load if quiet else f"{load}: what is timed now has wide intervals")

"""The persistent compilation cache: a candidate compiled once on this machine is not compiled again."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import platformdirs
from jax.experimental.compilation_cache import compilation_cache

HIT, MISS, OFF = "hit", "miss", "off"
_HIT_EVENT = "/jax/compilation_cache/cache_hits"
# Reading an entry back costs about as much as compiling for this long.
_LEAST_COMPILE_S = 0.02


class _Hits(threading.local):
    count = 0


_hits = _Hits()


def _count_hits(event: str, **_: Any) -> None:
    if event == _HIT_EVENT:
        _hits.count += 1


jax.monitoring.register_event_listener(_count_hits)


def enable_compile_cache() -> None:
    """Turns the persistent cache on, in the user's cache folder unless the user has chosen one.

    Metadata becomes part of the key: without it a program that differs in names alone would get another's executable,
    and its layers could not be recognized.
    """
    jax.config.update("jax_compilation_cache_include_metadata_in_key", True)
    least = min(_setting("jax_persistent_cache_min_compile_time_secs"), _LEAST_COMPILE_S)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
    if _setting("jax_compilation_cache_dir") is not None:
        return
    folder = Path(platformdirs.user_cache_dir("jax-precision-tuner")) / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(folder, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # JAX decides at its first compilation whether there is a cache; ask it to decide again.
    compilation_cache.reset_cache()


class CacheStatus:
    """What the cache did while compiling; "off" until then."""

    value = OFF


@contextmanager
def watch_compile_cache() -> Iterator[CacheStatus]:
    """Says, when the block is left, whether what it compiled came from the cache."""
    status = CacheStatus()
    before = _hits.count
    yield status
    if _setting("jax_compilation_cache_dir") is not None and _setting("jax_enable_compilation_cache"):
        status.value = HIT if _hits.count > before else MISS


@contextmanager
def stable_locations() -> Iterator[None]:
    """Lowers without the call stack, which would make the key depend on who calls and on the line numbers of files."""
    before = _setting("jax_traceback_in_locations_limit")
    jax.config.update("jax_traceback_in_locations_limit", 0)
    try:
        yield
    finally:
        jax.config.update("jax_traceback_in_locations_limit", before)


def _setting(name: str) -> Any:
    return getattr(jax.config, name)

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tuner.measure.compile_cache import stable_locations, watch_compile_cache

PROGRAM = """
import sys
import jax, jax.numpy as jnp
jax.jit(lambda x: x + 1)(jnp.ones(3))  # JAX has decided by now whether it has a cache
from tuner.measure.compile_cache import enable_compile_cache, stable_locations, watch_compile_cache
enable_compile_cache()
name, = sys.argv[1:]
def program(x):
    with jax.named_scope(name):
        for _ in range(8):
            x = jnp.tanh(x @ x)
    return x
with stable_locations():
    lowered = jax.jit(program).lower(jnp.ones((64, 64)))
with watch_compile_cache() as cache:
    compiled = lowered.compile()
print(cache.value, f"/{name}/" in compiled.as_text())
"""

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="moves the cache folder by XDG_CACHE_HOME")


def compile_in_new_process(name, cache_home, **environment):
    kept = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        env={**kept, "XDG_CACHE_HOME": str(cache_home), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@ON_LINUX
def test_a_second_process_finds_what_the_first_compiled_and_never_a_program_of_other_names(tmp_path):
    assert compile_in_new_process("first", tmp_path) == ["miss", "True"]
    assert compile_in_new_process("first", tmp_path) == ["hit", "True"]
    assert compile_in_new_process("other", tmp_path) == ["miss", "True"]
    assert list((tmp_path / "jax-precision-tuner" / "compiled").iterdir())


@ON_LINUX
def test_a_cache_folder_that_the_user_chose_is_kept(tmp_path):
    chosen = tmp_path / "chosen"
    assert compile_in_new_process("first", tmp_path, JAX_COMPILATION_CACHE_DIR=str(chosen)) == ["miss", "True"]
    assert list(chosen.iterdir())
    assert not (tmp_path / "jax-precision-tuner").exists()


@ON_LINUX
def test_without_a_writable_folder_there_is_no_cache(tmp_path):
    (tmp_path / "file").touch()
    assert compile_in_new_process("first", tmp_path / "file") == ["off", "True"]


def test_a_disabled_cache_is_off():
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        with watch_compile_cache() as cache:
            jax.jit(lambda x: x * 3.25).lower(jnp.ones(3)).compile()
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
    assert cache.value == "off"


def test_locations_are_dropped_while_lowering_and_only_then():
    def lower():
        return jax.jit(lambda x: jnp.sin(x)).lower(1.0).as_text(debug_info=True)

    with stable_locations():
        inside = lower()
    assert Path(__file__).name not in inside
    assert Path(__file__).name in lower()

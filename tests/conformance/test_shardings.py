"""Parameters spread over a mesh stay spread, through prepare and the rewritten function."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

BOUNDS = {
    "original": 0.0,
    "f32/f32/f32": 1e-6,
    "bf16/bf16/f32": 0.01,
    "bf16/bf16/f32->bf16": 0.02,
    "i8/i8/i32": 0.05,
    "i8/f32/f32": 0.03,
}
LAYERS = {
    "data parallel": ["input", "up", "down"],
    "tensor parallel": ["input", "up", "down"],
    "gathered": ["input", "up", "stack"],
    "typed, tensor parallel": ["input", "up", "down"],
    "typed, gathered": ["input", "up", "down"],
    "typed, look-up": ["table"],
    "shard_map": ["input", "up", "down"],
    "scan in shard_map": ["input", "stack"],
}


# Eight devices; the other flags change how long it takes to compile, and nothing that is checked here.
FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


@pytest.fixture(scope="module")
def results() -> Any:
    environment = {**os.environ, "XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.sharded_programs"], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("precision", BOUNDS)
def test_results_and_their_shardings_are_the_users(results: Any, name: str, precision: str) -> None:
    found = results[name][precision]
    assert found["layers"] == LAYERS[name]
    assert found["same sharding"]
    assert found["error"] <= BOUNDS[precision]


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "data parallel"])
def test_packed_weights_are_split_as_the_parameters_were(results: Any, name: str) -> None:
    for precision in ("bf16/bf16/f32", "i8/i8/i32"):
        found = results[name][precision]
        assert set(found["devices"].values()) == {8}
        assert set(found["pieces"].values()) == {2}


def test_work_is_the_whole_programs_or_inside_shard_map_that_of_each_device(results: Any) -> None:
    whole, each = results["tensor parallel"]["original"]["work"], results["shard_map"]["original"]["work"]
    assert whole["up"] == [8, 16, 1, 2 * 8 * 8 * 16]
    assert each["up"] == [8, 16 // 2, 1, 2 * (8 // 4) * 8 * (16 // 2)]
    assert results["scan in shard_map"]["original"]["work"]["stack"] == [8, 8 // 2, 3, 3 * 2 * (8 // 4) * 8 * (8 // 2)]


def test_copies_stay_copies(results: Any) -> None:
    assert set(results["data parallel"]["i8/i8/i32"]["pieces"].values()) == {1}


@pytest.mark.slow
def test_a_spread_model_is_searched_on_its_mesh(tmp_path: Any) -> None:
    environment = {**os.environ, "XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.sharded_search"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    trials = json.loads(run.stdout)
    uniform = {"f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32", "i8/i8/i32@static"}
    assert {label for label, *_ in trials} >= {"baseline", *uniform}
    assert {kind for _, kind, _ in trials} <= {"Measurement", "Failure"}
    assert [kind for label, kind, _ in trials if label == "f32/f32/f32"] == ["Measurement"]

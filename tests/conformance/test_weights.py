"""Every way to reach a weight, against the invariants, and what is stored of it."""

from typing import Any

import pytest

from tests.conformance import checks
from tests.weight_programs import WEIGHTS, Weights
from tuner.program import Program, prepare, uniform_policy


@pytest.fixture(params=WEIGHTS, scope="module")
def example(request: Any) -> Weights:
    return WEIGHTS[request.param]()


@pytest.fixture(scope="module")
def program(example: Weights) -> Program:
    return checks.capture_example(example)


@pytest.fixture(scope="module")
def reference(example: Weights) -> Any:
    return checks.run_jitted(example)


def test_the_layers_are_those_of_the_parameters(example: Weights, program: Program) -> None:
    checks.layers_are_found(example, program)
    checks.names_do_not_depend_on_the_batch(example, program)
    assert not program.notes or "being no floating-point numbers" in program.notes[0]


def test_all_original_is_the_users_program_to_the_bit(example: Weights, program: Program) -> None:
    checks.all_original_is_identical(example, program)


@pytest.mark.parametrize("text", ["f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32", "i8/f32/f32"])
def test_outputs_stay_close(example: Weights, program: Program, reference: Any, text: str) -> None:
    checks.outputs_are_kept(example, program, reference, text)


def test_each_weight_is_stored_once_and_nothing_of_it_is_left_over(example: Weights, program: Program) -> None:
    weighted = [layer for layer in program.layers if layer.params]
    expected = example.packed
    if expected is None:
        expected = {layer.name: layer.shape for layer in weighted}
    model = prepare(example.apply, example.params, uniform_policy(program, "bf16/bf16/bf16"), program=program)
    assert {name: part["weight"].shape for name, part in model.params["layers"].items()} == expected
    if expected:
        assert not any(name.endswith("/w") for name in model.params["parameters"])

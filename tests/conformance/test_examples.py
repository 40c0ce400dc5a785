"""Every example program against every invariant of capture, rewrite and prepare."""

from typing import Any

import jax.numpy as jnp
import pytest

from search_spaces import Precision
from tests.conformance import checks
from tests.programs import EXAMPLES, Example
from tuner.program import Program, capture, prepare, supports, uniform_policy

PRECISIONS = ("f32/f32/f32", "bf16/bf16/f32", "bf16/bf16/bf16", "f16/f16/f32", "i8/i8/i32", "i8/f32/f32", "i8/bf16/f32")


@pytest.fixture(params=EXAMPLES, scope="module")
def example(request: Any) -> Example:
    return EXAMPLES[request.param]()


@pytest.fixture(scope="module")
def program(example: Example) -> Program:
    return checks.capture_example(example)


@pytest.fixture(scope="module")
def reference(example: Example) -> Any:
    return checks.run_jitted(example)


def test_every_layer_is_found_and_named(example: Example, program: Program) -> None:
    checks.layers_are_found(example, program)


def test_all_original_is_the_users_program_to_the_bit(example: Example, program: Program) -> None:
    checks.all_original_is_identical(example, program)


def test_all_original_also_runs_without_jit(example: Example, program: Program) -> None:
    checks.all_original_runs_without_jit(example, program)


@pytest.mark.parametrize("text", PRECISIONS)
def test_outputs_keep_structure_dtypes_and_weak_types_and_stay_close(
    example: Example, program: Program, reference: Any, text: str
) -> None:
    checks.outputs_are_kept(example, program, reference, text)


def test_checking_changes_nothing(example: Example, program: Program, reference: Any) -> None:
    checks.checking_changes_nothing(example, program, reference)


def test_a_policy_really_changes_the_layers_it_names(example: Example, program: Program) -> None:
    precision = Precision.parse("i8/f32/f32")
    takers = [layer for layer in program.layers if supports(layer, precision) is None]
    model = prepare(example.apply, example.params, uniform_policy(program, precision), program=program)
    packed = model.params["layers"]
    assert {name.split("#")[0] for name in packed} == {layer.name for layer in takers}
    assert all(part["weight"].dtype == jnp.int8 for part in packed.values())


def test_names_do_not_depend_on_the_batch(example: Example, program: Program) -> None:
    checks.names_do_not_depend_on_the_batch(example, program)


def test_capturing_twice_gives_the_same_program(example: Example, program: Program) -> None:
    again = capture(example.apply, example.params, example.inputs)
    assert again.layers == program.layers
    assert again.fingerprint == program.fingerprint

"""What is stored of each way to reach a weight; that the programs hold is in the table."""

import pytest

from tests.conformance import checks
from tests.weight_programs import WEIGHTS
from tuner.program import prepare, uniform_policy


@pytest.mark.parametrize("name", WEIGHTS)
def test_each_weight_is_stored_once_and_nothing_of_it_is_left_over(name: str) -> None:
    example = WEIGHTS[name]()
    program = checks.capture_example(example)
    assert not program.notes or "being no floating-point numbers" in program.notes[0]
    weighted = [layer for layer in program.layers if layer.params]
    expected = example.packed
    if expected is None:
        expected = {layer.name: layer.shape for layer in weighted}
    model = prepare(example.apply, example.params, uniform_policy(program, "bf16/bf16/bf16"), program=program)
    assert {name: part["weight"].shape for name, part in model.params["layers"].items()} == expected
    if expected:
        assert not any(name.endswith("/w") for name in model.params["parameters"])

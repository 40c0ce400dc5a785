import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tuner.measure.executable import compile_baseline, compile_cast, compile_policy, tree_bytes
from tuner.measure.memory import measure_memory
from tuner.program import capture, uniform_policy

DEVICE = jax.devices()[0]
PARAMS = {"w": np.ones((32, 16), np.float32)}
INPUTS = (np.ones((8, 32), np.float32),)


def apply(params, x):
    return x @ params["w"]


def test_inputs_do_not_count():
    executable = compile_baseline(apply, PARAMS, INPUTS, DEVICE)
    analysis = executable.compiled.memory_analysis()
    memory = measure_memory(executable)
    weights, outputs = 32 * 16 * 4, 8 * 16 * 4
    assert memory.weight_bytes == weights
    assert memory.total_bytes == weights + outputs + analysis.temp_size_in_bytes


@pytest.mark.parametrize("unused", ["input", "weight"])
def test_what_the_program_never_reads_does_not_count_either(unused):
    params, inputs = dict(PARAMS), INPUTS
    if unused == "input":
        inputs = (INPUTS[0], np.ones((8, 100), np.float32))
    else:
        params["never"] = np.ones(1000, np.float32)
    executable = compile_baseline(lambda params, x, *rest: x @ params["w"], params, inputs, DEVICE)
    plain = compile_baseline(apply, PARAMS, INPUTS, DEVICE)
    assert measure_memory(executable).total_bytes == measure_memory(plain).total_bytes


def test_packed_weights_are_counted_as_packed():
    program = capture(apply, PARAMS, INPUTS)
    policy = uniform_policy(program, Precision.parse("i8/i8/i32"))
    memory = measure_memory(compile_policy(apply, PARAMS, program, policy, INPUTS, DEVICE))
    assert memory.weight_bytes == 32 * 16 + 16 * 4


def test_cast_weights_take_half():
    memory = measure_memory(compile_cast(apply, PARAMS, jnp.bfloat16, INPUTS, DEVICE))
    assert memory.weight_bytes == 32 * 16 * 2


def test_a_back_end_that_says_nothing_is_estimated(monkeypatch):
    executable = compile_baseline(apply, PARAMS, INPUTS, DEVICE)
    monkeypatch.setattr(type(executable.compiled), "memory_analysis", lambda self: None)
    assert measure_memory(executable).total_bytes == 32 * 16 * 4 + 8 * 16 * 4


def test_bytes_of_a_tree():
    tree = {"a": np.ones((3, 2), np.int8), "b": [jnp.ones(4, jnp.bfloat16)], "c": jax.ShapeDtypeStruct((5,), "float32")}
    assert tree_bytes(tree) == 6 + 8 + 20

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import Precision
from tuner.measure.executable import commit, compile_baseline, compile_cast, compile_policy
from tuner.program import capture, make_policy, original_policy

DEVICE = jax.devices()[0]
PARAMS = {"fc": {"w": np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)}, "steps": np.int32(3)}
INPUTS = (np.linspace(0, 1, 16, dtype=np.float32).reshape(2, 8), np.arange(2, dtype=np.int32))


def apply(params, x, ids):
    return {"logits": x @ params["fc"]["w"] * params["steps"], "ids": ids + 1}


def test_baseline_gives_what_jit_gives():
    executable = compile_baseline(apply, PARAMS, INPUTS, DEVICE)
    expected = jax.jit(apply)(PARAMS, *INPUTS)
    outputs = executable(INPUTS)
    assert outputs["logits"].tolist() == expected["logits"].tolist()
    assert outputs["ids"].tolist() == [1, 2]


def test_a_policy_runs_as_prepared():
    program = capture(apply, PARAMS, INPUTS)
    policy = make_policy(program, {"fc": Precision.parse("bf16/bf16/f32")})
    executable = compile_policy(apply, PARAMS, program, policy, INPUTS, DEVICE)
    exact = jax.jit(apply)(PARAMS, *INPUTS)["logits"]
    logits = executable(INPUTS)["logits"]
    assert logits.dtype == exact.dtype
    assert 0 < float(abs(logits - exact).max()) < 0.05
    assert executable.costs.prepare_s > 0


def test_inputs_are_cast_before_the_program_where_their_layer_asks_for_it():
    program = capture(apply, PARAMS, INPUTS)
    (name,) = (layer.name for layer in program.layers if layer.kind == "input")
    policy = make_policy(program, {name: Precision.parse("bf16")})
    executable = compile_policy(apply, PARAMS, program, policy, INPUTS, DEVICE)
    assert [spec.dtype for spec in executable.input_specs] == [jnp.bfloat16, jnp.int32]
    assert executable(INPUTS)["logits"].dtype == jnp.float32


def test_an_original_policy_is_bit_identical():
    program = capture(apply, PARAMS, INPUTS)
    executable = compile_policy(apply, PARAMS, program, original_policy(program), INPUTS, DEVICE)
    assert executable(INPUTS)["logits"].tolist() == jax.jit(apply)(PARAMS, *INPUTS)["logits"].tolist()


def test_a_cast_narrows_floats_and_leaves_the_rest():
    executable = compile_cast(apply, PARAMS, jnp.float16, INPUTS, DEVICE)
    assert executable.weights["fc"]["w"].dtype == jnp.float16
    assert executable.weights["steps"].dtype == jnp.int32
    outputs = executable(INPUTS)
    assert (outputs["logits"].dtype, outputs["ids"].dtype) == (jnp.float16, jnp.int32)


def test_a_timed_call_returns_when_its_outputs_are_there():
    executable = compile_baseline(apply, PARAMS, INPUTS, DEVICE)
    outputs = executable.timed_call(INPUTS, DEVICE)()
    assert outputs["logits"].is_ready()


def test_costs_are_recorded():
    costs = compile_baseline(lambda params, x, ids: x * 1.2345, PARAMS, INPUTS, DEVICE).costs
    assert costs.trace_s > 0
    assert costs.compile_s > 0
    assert costs.compile_cache in ("hit", "miss", "off")


def test_commit_places_arrays_on_the_device():
    placed = commit({"a": np.ones(3), "b": jnp.ones(2)}, DEVICE)
    assert all(leaf.committed and leaf.devices() == {DEVICE} for leaf in jax.tree_util.tree_leaves(placed))

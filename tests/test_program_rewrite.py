"""What a rewrite keeps: effects, random streams, name scopes."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests import programs
from tuner.program import capture, layer_of_op_name, make_policy, prepare


def rewritten(apply: Any, params: Any, inputs: tuple[Any, ...], chosen: dict[str, str]) -> Any:
    program = capture(apply, params, inputs)
    return prepare(apply, params, make_policy(program, chosen), program=program)


def test_debug_prints_still_run(capsys: Any) -> None:
    def apply(params: Any, x: Any) -> Any:
        y = x @ params["w"]
        jax.debug.print("sum {}", y.sum().astype(int), ordered=True)
        jax.debug.print("weight {}", params["w"].sum().astype(int), ordered=True)
        return y

    params, x = {"w": np.ones((3, 3), np.float32)}, np.ones((2, 3), np.float32)
    model = rewritten(apply, params, (x,), {"w": "bf16/bf16/f32"})
    jax.block_until_ready(jax.jit(model)(model.params, x))
    jax.effects_barrier()
    printed = capsys.readouterr().out
    assert "sum 18" in printed
    assert "weight 9" in printed


def test_random_streams_do_not_move() -> None:
    def apply(params: Any, x: Any, key: Any) -> Any:
        kept = jax.random.bernoulli(key, 0.5, x.shape)
        return (x * kept) @ params["w"], kept, jax.random.split(key)

    params, x, key = {"w": programs.normal(6, 4)}, programs.normal(8, 6), jax.random.key(7)
    model = rewritten(apply, params, (x, key), {"w": "i8/i8/i32", "input/0": "bf16"})
    _, kept, keys = jax.jit(model)(model.params, x, key)
    _, expected, expected_keys = apply(params, x, key)
    np.testing.assert_array_equal(kept, expected)
    np.testing.assert_array_equal(jax.random.key_data(keys), jax.random.key_data(expected_keys))


def test_name_scopes_are_kept_and_layers_marked() -> None:
    def apply(params: Any, x: Any) -> Any:
        with jax.named_scope("block"):
            return jnp.tanh(x @ params["a/b"]["w"]) @ params["c]"]["w"]

    params = {"a/b": {"w": programs.normal(6, 6)}, "c]": {"w": programs.normal(6, 6)}}
    x = programs.normal(8, 6)
    model = rewritten(apply, params, (x,), {"a/b": "i8/i8/i32"})
    text = jax.jit(model).lower(model.params, x).compile().as_text()
    names = re.findall(r'op_name="([^"]*)"', text)
    assert any("block" in name for name in names)
    assert {layer_of_op_name(name) for name in names} >= {"a/b", "c]"}


def test_operations_outside_layers_carry_no_layer() -> None:
    assert layer_of_op_name("jit(f)/block/tanh") is None
    assert layer_of_op_name("jit(f)/layer[fc1]/dot_general") == "fc1"


def test_rounding_of_inputs_survives_the_compiler() -> None:
    params, x = {"w": np.eye(4, dtype=np.float32)}, programs.normal(3, 4)
    model = rewritten(lambda p, x: x @ p["w"], params, (x,), {"input": "bf16"})
    rounded = np.asarray(jnp.asarray(x).astype(jnp.bfloat16).astype(jnp.float32))
    np.testing.assert_allclose(jax.jit(model)(model.params, x), rounded, rtol=1e-6)


def test_strict_promotion_and_rank_promotion_do_not_trip_kernels() -> None:
    params, x = {"w": programs.normal(6, 4)}, programs.normal(3, 6)
    for text in ("bf16/bf16/f32", "i8/i8/i32", "i8/bf16/f32", "bf16/f32/f32"):
        with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
            model = rewritten(lambda p, x: x @ p["w"], params, (x,), {"w": text, "input": "bf16"})
            assert model(model.params, x).shape == (3, 4)

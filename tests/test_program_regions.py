"""Narrow regions: what follows a layer with a 16-bit output runs in 16 bits, unless it is sensitive."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.programs import normal
from tuner.errors import PolicyError
from tuner.program import capture, make_policy, prepare

NARROW = "bf16/bf16/f32->bf16"


def prepared(apply: Any, params: Any, x: Any, chosen: dict[str, str]) -> Any:
    program = capture(apply, params, (x,))
    return prepare(apply, params, make_policy(program, chosen), program=program)


def dtypes_of(model: Any, x: Any, primitive: str) -> set[str]:
    """The dtypes in which a primitive runs, at any depth."""
    found: set[str] = set()

    def walk(jaxpr: Any) -> None:
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == primitive:
                found.add(str(eqn.outvars[0].aval.dtype))
            for value in eqn.params.values():
                for item in value if isinstance(value, (tuple, list)) else (value,):
                    if hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                        walk(getattr(item, "jaxpr", item))

    walk(jax.make_jaxpr(model)(model.params, x).jaxpr)
    return found


def around(between: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    """Two layers with something between them."""
    params = {"a": {"w": normal(8, 16)}, "b": {"w": normal(16, 4)}, "bias": normal(16)}

    def apply(params: Any, x: Any) -> Any:
        return between(x @ params["a"]["w"] + params["bias"]) @ params["b"]["w"]

    return apply, params, normal(6, 8)


@pytest.mark.parametrize(
    ("activation", "primitive"),
    [
        (jax.nn.relu, "max"),
        (jax.nn.silu, "logistic"),
        (jnp.tanh, "tanh"),
        (lambda x: jax.nn.gelu(x, approximate=False), "erfc"),
        (jax.nn.hard_tanh, "min"),
        (lambda x: jnp.where(x > 0, x, 0.1 * x), "mul"),
    ],
)
def test_activations_run_narrow(activation: Any, primitive: str) -> None:
    apply, params, x = around(activation)
    model = prepared(apply, params, x, {"a": NARROW})
    wide = prepared(apply, params, x, {"a": "bf16/bf16/f32"})
    assert dtypes_of(wide, x, "add") == {"float32"}
    assert dtypes_of(model, x, "add") == {"bfloat16"}
    if primitive != "min":
        assert dtypes_of(model, x, primitive) == {"bfloat16"}
    found, expected = model(model.params, x), apply(params, x)
    assert found.dtype == jnp.float32
    assert np.linalg.norm(found - expected) < 0.03 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("between", "primitive"),
    [
        (jax.nn.softmax, "exp"),
        (jax.nn.log_softmax, "exp"),
        (jax.nn.logsumexp, "exp"),
        (jax.nn.standardize, "rsqrt"),
        (lambda x: x / jnp.linalg.norm(x), "div"),
        (lambda x: jnp.cumsum(x, -1), "cumsum"),
        (lambda x: jax.nn.gelu(x, approximate=True), "integer_pow"),
    ],
)
def test_softmax_norms_and_the_like_stay_as_written(between: Any, primitive: str) -> None:
    apply, params, x = around(
        lambda h: between(h) if between is not jax.nn.logsumexp else h - between(h, keepdims=True)
    )
    model = prepared(apply, params, x, {"a": NARROW})
    assert dtypes_of(model, x, primitive) <= {"float32"}
    for sensitive in ("exp", "reduce_sum", "reduce_max", "rsqrt", "div", "log", "cumsum", "integer_pow"):
        assert "bfloat16" not in dtypes_of(model, x, sensitive)


def test_what_a_sensitive_operation_computed_is_read_wide() -> None:
    def apply(params: Any, x: Any) -> Any:
        h = x @ params["a"]["w"]
        with jax.named_scope("gate"):
            gate = jnp.exp(-jnp.abs(x.sum(-1, keepdims=True)))
        return h * gate

    x = normal(6, 8)
    model = prepared(apply, {"a": {"w": normal(8, 16)}}, x, {"a": NARROW})
    assert dtypes_of(model, x, "mul") == {"float32"}


def test_regions_cross_scopes_up_to_the_sensitive_one() -> None:
    def apply(params: Any, x: Any) -> Any:
        with jax.named_scope("block"):
            h = x @ params["a"]["w"]
            h = h + params["bias"]
        with jax.named_scope("norm"):
            return h - jnp.mean(h, -1, keepdims=True)

    x = normal(6, 8)
    model = prepared(apply, {"a": {"w": normal(8, 16)}, "bias": normal(16)}, x, {"a": NARROW})
    assert dtypes_of(model, x, "add") == {"bfloat16"}
    assert dtypes_of(model, x, "reduce_sum") == {"float32"}
    assert dtypes_of(model, x, "sub") == {"float32"}


def test_results_carries_and_branches_are_in_their_own_dtype_again() -> None:
    def apply(params: Any, x: Any) -> Any:
        def body(h: Any, w: Any) -> Any:
            return jax.nn.relu(h @ w), (h @ w).max()

        last, tops = jax.lax.scan(body, x, params["w"])
        return jax.lax.cond(tops[0] > 0, lambda h: h @ params["out"]["w"], lambda h: h[:, :4], last), last

    params = {"w": normal(3, 8, 8) / 3, "out": {"w": normal(8, 4)}}
    x = normal(6, 8)
    model = prepared(apply, params, x, {"w": NARROW, "out": NARROW})
    found, expected = model(model.params, x), apply(params, x)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert np.linalg.norm(mine - theirs) < 0.05 * np.linalg.norm(theirs)


def test_an_output_no_narrower_than_the_original_is_refused() -> None:
    apply, params, x = around(jax.nn.relu)
    with pytest.raises(PolicyError, match="its result is float32, which is no wider than f32"):
        prepared(apply, params, x, {"a": "bf16/bf16/f32->f32"})

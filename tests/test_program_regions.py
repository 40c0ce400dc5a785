"""Narrow regions: what follows a layer with a 16-bit output runs in 16 bits, unless it is sensitive."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, PartitionSpec

from tests.narrow_rules import operations, violations
from tests.programs import normal
from tuner import _jax_compat as compat
from tuner.errors import PolicyError
from tuner.program import capture, make_policy, prepare
from tuner.program.regions import NARROW as CLOSED_LIST

NARROW = "bf16/bf16/f32->bf16"


def prepared(apply: Any, params: Any, x: Any, chosen: dict[str, str]) -> Any:
    program = capture(apply, params, (x,))
    return prepare(apply, params, make_policy(program, chosen), program=program)


def formats_of(model: Any, x: Any, primitive: str) -> list[str]:
    """The dtypes in which a primitive runs, at any depth, in order."""
    found: list[str] = []

    def walk(jaxpr: Any) -> None:
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == primitive:
                found.append(str(eqn.outvars[0].aval.dtype))
            for held in compat.jaxprs_in(eqn.params):
                walk(compat.open_jaxpr(held)[0])

    walk(jax.make_jaxpr(model)(model.params, x).jaxpr)
    return found


def dtypes_of(model: Any, x: Any, primitive: str) -> set[str]:
    """The same without order and repetition."""
    return set(formats_of(model, x, primitive))


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
        (jax.nn.hard_tanh, "select_n"),
        (jax.nn.leaky_relu, "select_n"),
        (lambda x: jnp.clip(x, -1, 1), "min"),
        (lambda x: jnp.where(x > 0, x, 0.1 * x), "mul"),
    ],
)
def test_activations_run_narrow(activation: Any, primitive: str) -> None:
    apply, params, x = around(activation)
    model = prepared(apply, params, x, {"a": NARROW})
    wide = prepared(apply, params, x, {"a": "bf16/bf16/f32"})
    assert dtypes_of(wide, x, "add") == {"float32"}
    assert dtypes_of(model, x, "add") == {"bfloat16"}
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


# One use of every operation on the closed list; those of older or newer versions of JAX only are left out.
LISTED: dict[str, Callable[[Any], Any]] = {
    "add": lambda h: h + 0.5,
    "sub": lambda h: h - 0.5,
    "mul": lambda h: h * 0.5,
    "neg": lambda h: -h,
    "max": lambda h: jax.lax.max(h, h * 0.5),
    "min": lambda h: jax.lax.min(h, h * 0.5),
    "select_n": lambda h: jax.lax.select(jnp.ones(h.shape, bool), h, h),
    "clamp": lambda h: jax.lax.clamp(-1.0, h, 1.0),
    "erf": jax.lax.erf,
    "erfc": jax.lax.erfc,
    "tanh": jax.lax.tanh,
    "logistic": jax.lax.logistic,
    "reshape": lambda h: jax.lax.reshape(h, (h.size,)),
    "transpose": lambda h: h.T,
    "broadcast_in_dim": lambda h: jax.lax.broadcast(h, (2,)),
    "squeeze": lambda h: jax.lax.squeeze(h[None], (0,)),
    "rev": lambda h: jax.lax.rev(h, (0,)),
    "pad": lambda h: jax.lax.pad(h, 0.0, ((1, 1, 0), (0, 0, 0))),
    "tile": lambda h: jnp.tile(h, (2, 1)),
    "copy": jnp.copy,
    "slice": lambda h: h[1:3],
    "dynamic_slice": lambda h: jax.lax.dynamic_slice(h, (jnp.argmax(h[:, 0]) * 0, 0), (2, 4)),
    "dynamic_update_slice": lambda h: jax.lax.dynamic_update_slice(h, h[:1], (2, 0)),
    "gather": lambda h: h[jnp.arange(3)],
    "split": lambda h: jnp.split(h, 2, axis=1)[0],
    "unstack": lambda h: jnp.unstack(h)[0],
    "concatenate": lambda h: jnp.concatenate([h, h]),
    "stack": lambda h: jnp.stack([h, h]),
    "name": lambda h: checkpoint_name(h, "kept"),
    "stop_gradient": jax.lax.stop_gradient,
    "sharding_constraint": lambda h: jax.lax.with_sharding_constraint(
        h, NamedSharding(jax.sharding.Mesh(jax.devices()[:1], "x"), PartitionSpec())
    ),
}
OTHERS = {"expand_dims", "copy_p", "add_any", "pvary", "reshard"}


@pytest.mark.parametrize("primitive", [*LISTED])
def test_every_operation_of_the_closed_list_runs_narrow(primitive: str) -> None:
    params, x = {"a": {"w": normal(8, 16)}}, normal(6, 8)
    apply = lambda params, x: LISTED[primitive](x @ params["a"]["w"])
    model = prepared(apply, params, x, {"a": NARROW})
    if primitive not in {operation.name for operation in operations(jax.make_jaxpr(apply)(params, x))}:
        pytest.skip(f"this version of JAX writes it without {primitive}")
    assert dtypes_of(model, x, primitive) == {"bfloat16"}
    assert not list(violations(operations(jax.make_jaxpr(model)(model.params, x))))
    found, expected = jax.jit(model)(model.params, x), apply(params, x)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert np.linalg.norm(found - expected) < 0.03 * np.linalg.norm(expected)


def test_the_closed_list_is_tested_whole() -> None:
    assert LISTED.keys() | OTHERS == CLOSED_LIST


def test_values_in_two_narrow_formats_meet_wide() -> None:
    """Either format would lose what the other keeps: digits, or numbers over 65504."""

    def apply(params: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["a"]["w"]) + jnp.tanh(x @ params["b"]["w"]) * 1e5

    params, x = {"a": {"w": normal(8, 16)}, "b": {"w": normal(8, 16, seed=1)}}, normal(6, 8)
    model = prepared(apply, params, x, {"a": "f16/f16/f32->f16", "b": NARROW})
    assert dtypes_of(model, x, "tanh") == {"float16", "bfloat16"}
    assert dtypes_of(model, x, "add") == {"float32"}
    assert np.isfinite(model(model.params, x)).all()


def test_a_region_goes_on_into_control_flow_with_layers() -> None:
    def apply(params: Any, x: Any) -> Any:
        h = x @ params["a"]["w"]
        body = lambda carry, w: (carry @ w + jnp.tanh(h), None)
        return jax.lax.scan(body, jnp.zeros_like(h), params["layers"]["w"])[0]

    params, x = {"a": {"w": normal(8, 6)}, "layers": {"w": normal(3, 6, 6) / 4}}, normal(4, 8)
    model = prepared(apply, params, x, {"a": NARROW, "layers": NARROW})
    assert dtypes_of(model, x, "tanh") == {"bfloat16"}
    assert dtypes_of(model, x, "add") == {"bfloat16"}
    assert dtypes_of(model, x, "scan") == {"float32"}
    outside_only = prepared(apply, params, x, {"a": NARROW})
    assert dtypes_of(outside_only, x, "tanh") == {"float32"}  # the loop runs as it was written
    expected = apply(params, x)
    assert np.linalg.norm(model(model.params, x) - expected) < 0.03 * np.linalg.norm(expected)


def test_segments_of_a_scan_have_regions_of_their_own() -> None:
    def apply(params: Any, x: Any) -> Any:
        def body(h: Any, w: Any) -> Any:
            with jax.named_scope("fc"):
                product = jnp.tanh(h @ w)
            with jax.named_scope("gate"):
                gate = jnp.exp(-product)
            return product * 0.5, gate

        return jax.lax.scan(body, x, params["layers"]["w"])

    params, x = {"layers": {"w": normal(3, 6, 6)}}, normal(4, 6)
    program = capture(apply, params, (x,), split_scans=True)
    wide, half = "float32", "bfloat16"
    segments = ([half, wide], [wide, half, wide], [wide, half])
    for narrow in range(3):
        chosen = {f"layers/{i}": NARROW if i == narrow else "f32/f32/f32" for i in range(3)}
        model = prepare(apply, params, make_policy(program, chosen), program=program)
        assert formats_of(model, x, "tanh") == segments[narrow]
        assert dtypes_of(model, x, "neg") == {wide}


def test_a_result_that_is_narrow_already_stays_what_it_is() -> None:
    def apply(params: Any, x: Any) -> Any:
        product = jax.lax.dot(x, params["a"]["w"], preferred_element_type=jnp.float16)
        return jnp.tanh(product) * jnp.float16(2)

    params, x = {"a": {"w": normal(8, 6)}}, normal(4, 8)
    model = prepared(apply, params, x, {"a": NARROW})
    assert dtypes_of(model, x, "tanh") == {"float16"}
    assert model(model.params, x).dtype == jnp.float16


def test_weak_types_come_back_at_the_results() -> None:
    params, x = {"w": normal(8, 6)}, normal(4, 8)
    weakly = lambda value: jax.lax.full_like(value, 1.0) * 0 + 2.0

    def apply(params: Any, x: Any) -> Any:
        h = x @ params["w"]
        return jnp.where(h > 0, h, 0.0), weakly(h)

    model = prepared(apply, params, x, {"w": NARROW})
    wanted = jax.eval_shape(apply, params, x)
    assert [(o.dtype, o.weak_type) for o in jax.eval_shape(model, model.params, x)] == [
        (o.dtype, o.weak_type) for o in wanted
    ]

"""Sensitive steps: what stays as written behind a 16-bit result, through scopes, calls and control flow."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.programs import normal
from tests.test_program_regions import NARROW, dtypes_of, prepared
from tuner import _jax_compat as compat
from tuner.program.sensitive import SENSITIVE

PARAMS = {"a": {"w": normal(8, 6)}, "b": {"w": normal(8, 6, seed=1)}, "scale": normal(6), "var": abs(normal(6)) + 1}
X = normal(4, 8)


def run(apply: Callable[..., Any], *primitives: str, **chosen: str) -> list[set[str]]:
    """The dtypes in which these primitives run when the layers hand on bfloat16."""
    model = prepared(apply, PARAMS, X, chosen or {"a": NARROW})
    return [dtypes_of(model, X, primitive) for primitive in primitives]


def layer(params: Any, x: Any, name: str = "a") -> Any:
    with jax.named_scope("fc"):
        return x @ params[name]["w"]


def test_what_reads_further_on_what_a_sensitive_operation_computed_is_wide_too() -> None:
    """As in a norm: the last product reads the layer's own result, and what rsqrt gave only after another product."""

    def apply(params: Any, x: Any) -> Any:
        h = layer(params, x)
        with jax.named_scope("norm"):
            inverse = jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-3)
        return h * (inverse * params["scale"])

    assert run(apply, "mul") == [{"float32"}]


def test_what_parameters_alone_computed_sensitively_is_read_wide() -> None:
    """As in the inference of a batch norm, where only the statistics go through rsqrt."""

    def apply(params: Any, x: Any) -> Any:
        h = layer(params, x)
        with jax.named_scope("norm"):
            return (h - params["scale"]) * jax.lax.rsqrt(params["var"])

    assert run(apply, "sub", "mul") == [{"float32"}, {"float32"}]


def test_a_called_function_is_sensitive_with_what_is_in_it() -> None:
    soften = jax.jit(lambda h: jnp.exp(-jnp.abs(h)))

    def apply(params: Any, x: Any) -> Any:
        h = layer(params, x)
        fed = h + 1
        return soften(fed), jnp.maximum(layer(params, x, "b"), soften(x[:, :6]))

    assert run(apply, "add", "max", "exp", a=NARROW, b=NARROW) == [{"float32"}] * 3


def test_only_what_feeds_it_in_the_same_scope_is_held_back() -> None:
    def apply(params: Any, x: Any) -> Any:
        h = jnp.tanh(layer(params, x))
        with jax.named_scope("softmax"):
            return jnp.exp(-h)

    assert run(apply, "tanh", "neg") == [{"bfloat16"}, {"float32"}]


def test_scopes_inside_a_called_function_count() -> None:
    @jax.jit
    def soften(h: Any) -> Any:
        with jax.named_scope("softmax"):
            return jnp.exp(h)

    def apply(params: Any, x: Any) -> Any:
        h = jnp.tanh(layer(params, x))
        with jax.named_scope("softmax"):
            h = -h
        return soften(h)

    assert run(apply, "tanh", "neg") == [{"bfloat16"}, {"float32"}]


def test_names_that_vmap_gives_to_scopes_do_not_count() -> None:
    apply = lambda params, x: jax.vmap(jnp.exp)(jnp.tanh(layer(params, x)))
    assert run(apply, "tanh") == [{"float32"}]


def test_a_layer_ends_the_chain() -> None:
    def apply(params: Any, x: Any) -> Any:
        h = jnp.tanh(x @ params["a"]["w"]) @ params["a"]["w"].T
        return jax.nn.softmax(h)

    assert run(apply, "tanh") == [{"bfloat16"}]


@pytest.mark.parametrize("reader", [lambda t: jnp.exp(t), lambda t: jax.lax.map(jnp.exp, t)])
def test_what_feeds_control_flow_is_followed_into_it(reader: Any) -> None:
    def apply(params: Any, x: Any) -> Any:
        h = jnp.tanh(x @ params["a"]["w"])
        return jax.lax.cond(x.sum() > 1e6, lambda h: h, lambda h: reader(h) @ params["a"]["w"].T @ params["b"]["w"], h)

    assert run(apply, "tanh", a=NARROW, b=NARROW) == [{"float32"}]


@pytest.mark.parametrize(("function", "dtype"), [(jax.nn.softmax, "float32"), (jnp.tanh, "bfloat16")])
def test_what_control_flow_computed_sensitively_is_read_wide(function: Any, dtype: str) -> None:
    def apply(params: Any, x: Any) -> Any:
        h = layer(params, x)
        branch = lambda x: function(x @ params["b"]["w"])
        gate = jax.lax.cond(x[0, 0] > 1e6, lambda x: x[:, :6], branch, x)
        return h * gate

    assert run(apply, "mul", a=NARROW, b=NARROW) == [{dtype}]


def loop(
    update: Callable[[Any], Any], first: Callable[[Any, Any], Any], piece: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    """A scan whose body multiplies a narrow value with its carry or with its slice.

    Args:
        update: carry -> carry.
        first: (params, x) -> the first carry.
        piece: (params, x) -> what is scanned over.
    """

    def apply(params: Any, x: Any) -> Any:
        def body(carry: Any, scale: Any) -> Any:
            h = layer(params, x)
            with jax.named_scope("carried"):
                following = update(carry)
            return following, (h * carry, jnp.maximum(h, scale))

        with jax.named_scope("before"):
            start, stack = first(params, x), piece(params, x)
        return jax.lax.scan(body, start, stack)

    return apply


ONES = lambda params, x: jnp.ones((4, 6))
STACK = lambda params, x: jnp.stack([x[:, :6], x[:, 2:]])


@pytest.mark.parametrize(
    ("update", "first", "piece", "product", "maximum"),
    [
        (jnp.tanh, ONES, STACK, "bfloat16", "bfloat16"),
        (jnp.exp, ONES, STACK, "float32", "bfloat16"),
        (jnp.tanh, lambda params, x: jnp.exp(x[:, :6]), STACK, "float32", "bfloat16"),
        (jnp.tanh, lambda params, x: jnp.exp(jnp.broadcast_to(params["scale"], (4, 6))), STACK, "float32", "bfloat16"),
        (jnp.tanh, ONES, lambda params, x: jnp.exp(STACK(params, x)), "bfloat16", "float32"),
        (
            jnp.tanh,
            ONES,
            lambda params, x: jnp.exp(jnp.broadcast_to(params["scale"], (2, 1, 6))),
            "bfloat16",
            "float32",
        ),
    ],
)
def test_values_are_followed_into_loops_and_round_them(
    update: Any, first: Any, piece: Any, product: str, maximum: str
) -> None:
    assert run(loop(update, first, piece), "mul", "max") == [{product}, {maximum}]


@pytest.mark.parametrize(("update", "dtype"), [(jnp.exp, "float32"), (jnp.tanh, "bfloat16")])
def test_carries_of_a_while_are_followed_too(update: Any, dtype: str) -> None:
    def apply(params: Any, x: Any) -> Any:
        def body(state: Any) -> Any:
            i, carry, _ = state
            h = layer(params, x)
            with jax.named_scope("carried"):
                following = update(carry)
            return i + 1, following, h * carry

        return jax.lax.while_loop(lambda state: state[0] < 2, body, (0, x[:, :6], x[:, :6]))

    assert run(apply, "mul") == [{dtype}]


def test_booleans_and_integers_carry_nothing_over() -> None:
    """A mask that was counted, or chosen by the largest, is no value of the original dtype."""

    def apply(params: Any, x: Any) -> Any:
        mask = jnp.cumsum((x[:, :6] > 0).astype(jnp.int32), -1) > jnp.argmax(x, -1)[:, None]
        return jnp.where(mask, layer(params, x), 0.0)

    assert run(apply, "select_n") == [{"bfloat16"}]


def test_every_reduction_and_running_sum_of_jax_is_sensitive() -> None:
    jax.lax.sort(X)  # so that the primitives are there
    names = {item.name for item in gc.get_objects() if isinstance(item, compat.Primitive)}
    logical = {"reduce_and", "reduce_or", "reduce_xor"}
    pieces = {name for name in names if name.endswith(("_start", "_done"))}
    found = {name for name in names if name.startswith(("reduce_", "cum", "arg", "scatter-"))}
    known = found - logical - pieces
    assert len(known) > 15
    assert known <= SENSITIVE | {"reduced_vary_cast_p"}


def test_values_without_a_dtype_pass_through() -> None:
    """Types of the user's own, which JAX traces as they are (jax#39700)."""
    hijax = pytest.importorskip("jax.experimental.hijax", reason="this version of JAX has no types of the user's own")
    if not hasattr(hijax, "VJPHiPrimitive"):
        pytest.skip("this version of JAX writes them in another way")

    class Box:
        def __init__(self, value: Any) -> None:
            self.value = value

    @dataclass(frozen=True)
    class Boxed(hijax.HiType):  # type: ignore[misc, name-defined]
        shape: tuple[int, ...]
        lo_ty = lambda self: [hijax.ShapedArray(self.shape, jnp.dtype("float32"))]
        lower_val = lambda self, box: [box.value]
        raise_val = lambda self, value: Box(value)
        to_tangent_aval = lambda self: self.lo_ty()[0]
        str_short = lambda self, short_dtypes=False, **_: "box"

    hijax.register_hitype(Box, lambda box: Boxed(box.value.shape))

    class Change(hijax.VJPHiPrimitive):  # type: ignore[misc, name-defined]
        def __init__(self, into: Any, given: Any, expand: Any) -> None:
            self.in_avals, self.out_aval, self.params = (given,), into, {}
            self.expand = expand
            super().__init__()

    wrap = lambda x: Change(Boxed(x.shape), jax.typeof(x), Box)(x)
    unwrap = lambda box: Change(jax.typeof(box).lo_ty()[0], jax.typeof(box), lambda box: box.value)(box)
    apply = lambda params, x: jnp.tanh(unwrap(wrap(jnp.tanh(x @ params["a"]["w"])))) @ params["a"]["w"].T
    model = prepared(apply, PARAMS, X, {"a": NARROW})
    found, expected = jax.jit(model)(model.params, X), jax.jit(apply)(PARAMS, X)
    assert abs(found - expected).max() < 0.05 * abs(expected).max()

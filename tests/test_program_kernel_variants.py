"""Every kernel variant against the plain kernel of the same precision."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tests.programs import normal
from tuner.errors import PolicyError
from tuner.policy import Assignment
from tuner.program import capture, kernel_names, make_policy, prepare

FLOATS = ("f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32", "i8/f32/f32")


def outputs(apply: Any, params: Any, inputs: tuple[Any, ...], precision: str, kernel: str) -> np.ndarray:
    program = capture(apply, params, inputs)
    (layer,) = [layer for layer in program.layers if layer.kind != "input"]
    chosen = {layer.name: Assignment(precision=Precision.parse(precision), kernel=kernel)}
    model = prepare(apply, params, make_policy(program, chosen), program=program)
    return np.asarray(jax.jit(model)(model.params, *inputs))


def assert_equivalent(apply: Any, params: Any, x: Any, precision: str, expected_kernels: set[str]) -> None:
    inputs = x if isinstance(x, tuple) else (x,)
    program = capture(apply, params, inputs)
    (layer,) = [layer for layer in program.layers if layer.kind != "input"]
    names = kernel_names(program, layer.name, Precision.parse(precision))
    assert names[0] == "plain"
    assert set(names) == {"plain"} | expected_kernels
    plain = outputs(apply, params, inputs, precision, "plain")
    for name in names[1:]:
        found = outputs(apply, params, inputs, precision, name)
        assert found.shape == plain.shape
        assert np.linalg.norm(found - plain) <= 2e-5 * np.linalg.norm(plain), name


@pytest.mark.parametrize("precision", FLOATS)
@pytest.mark.parametrize("equation", ["bk,kn->bn", "bsk,kn->bsn", "nk,bk->nb", "hbk,hkn->hbn", "bk,kmn->bmn"])
def test_matmuls(precision: str, equation: str) -> None:
    sizes = {"b": 3, "s": 2, "k": 16, "n": 5, "h": 2, "m": 4}
    left, right = equation.split("->")[0].split(",")
    first = equation.startswith("nk")  # the weight is the left operand
    weight, value = (left, right) if first else (right, left)
    w, x = normal(*(sizes[axis] for axis in weight), seed=1), normal(*(sizes[axis] for axis in value), seed=2)

    def apply(w: Any, x: Any) -> Any:
        return jnp.einsum(equation, w, x) if first else jnp.einsum(equation, x, w)

    kernels = set() if first else {"transposed"}
    assert_equivalent(apply, w, x, precision, kernels | ({"dequantized"} if precision == "i8/f32/f32" else set()))


@pytest.mark.parametrize("precision", FLOATS)
@pytest.mark.parametrize("left", [False, True])
def test_a_single_row(precision: str, left: bool) -> None:
    def apply(w: Any, x: Any) -> Any:
        return w @ x[0] if left else x @ w

    w = normal(5, 16) if left else normal(16, 5)
    kernels = {"padded"} | (set() if left else {"transposed"})
    assert_equivalent(
        apply, w, normal(1, 16), precision, kernels | ({"dequantized"} if precision == "i8/f32/f32" else set())
    )


def test_a_padded_kernel_also_runs_larger_batches() -> None:
    def apply(w: Any, x: Any) -> Any:
        return x @ w

    w, x = normal(16, 5), normal(1, 16)
    program = capture(apply, w, (x,))
    chosen = {"params": Assignment(precision=Precision.parse("bf16/bf16/f32"), kernel="padded")}
    model = prepare(apply, w, make_policy(program, chosen), program=program)
    several = normal(4, 16)
    assert np.linalg.norm(model(model.params, several) - several @ w) < 0.01 * np.linalg.norm(several @ w)


LAYOUTS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")]


def other_layout(spec: Any) -> str:
    return "channels_last" if spec[0] == "NCHW" else "channels_first"


def convolution(spec: Any, **settings: Any) -> Any:
    return lambda w, x: jax.lax.conv_general_dilated(x, w, dimension_numbers=spec, **settings)


def image_and_kernel(spec: Any, channels: int, kernel: tuple[int, int], inputs: int, outputs_: int) -> tuple[Any, Any]:
    image = {"N": 2, "H": 9, "W": 8, "C": channels}
    sizes = {"H": kernel[0], "W": kernel[1], "I": inputs, "O": outputs_}
    return normal(*(image[axis] for axis in spec[0])), normal(*(sizes[axis] for axis in spec[1]))


@pytest.mark.parametrize("precision", FLOATS)
@pytest.mark.parametrize("spec", LAYOUTS)
@pytest.mark.parametrize(("strides", "padding"), [((1, 1), "SAME"), ((2, 1), ((1, 0), (-1, 2)))])
def test_depthwise_convolutions(precision: str, spec: Any, strides: Any, padding: Any) -> None:
    x, w = image_and_kernel(spec, 6, (3, 3), 1, 6)
    apply = convolution(spec, window_strides=strides, padding=padding, rhs_dilation=(1, 2), feature_group_count=6)
    assert_equivalent(apply, w, x, precision, {"shifted", other_layout(spec)})


@pytest.mark.parametrize("precision", FLOATS)
@pytest.mark.parametrize("spec", LAYOUTS)
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2)])
def test_whole_convolutions(precision: str, spec: Any, kernel: tuple[int, int]) -> None:
    x, w = image_and_kernel(spec, 4, kernel, 4, 5)
    apply = convolution(spec, window_strides=(1, 2), padding="SAME")
    of_patches = {"patches", "rows"} if kernel == (3, 2) else set()
    assert_equivalent(apply, w, x, precision, {"matmuls", other_layout(spec)} | of_patches)


@pytest.mark.parametrize("precision", FLOATS)
@pytest.mark.parametrize("spec", LAYOUTS)
def test_grouped_convolutions(precision: str, spec: Any) -> None:
    groups = 3
    x, w = image_and_kernel(spec, 6, (3, 2), 6 // groups, 12)
    apply = convolution(spec, window_strides=(1, 2), padding="SAME", feature_group_count=groups)
    assert_equivalent(apply, w, x, precision, {"split", "patches", other_layout(spec)})


@pytest.mark.parametrize("precision", ["f32/f32/f32", "i8/i8/i32"])
@pytest.mark.parametrize("spec", [("NHC", "HIO", "NHC"), ("NCH", "OIH", "NCH")])
@pytest.mark.parametrize("groups", [1, 4])
def test_one_dimensional_convolutions(precision: str, spec: Any, groups: int) -> None:
    sizes = {"N": 2, "H": 9, "C": 4, "I": 4 // groups, "O": 4}
    x, kernel = (
        normal(*(sizes[a] for a in spec[0])),
        normal(*(3 if a == "H" else sizes[a] for a in spec[1])),
    )
    apply = convolution(spec, window_strides=(2,), padding="SAME", feature_group_count=groups)
    other = "channels_first" if spec[0] == "NHC" else "channels_last"
    of_taps = {"matmuls", "patches"} if groups == 1 else {"shifted"}
    assert_equivalent(apply, kernel, x, precision, {"as_image", other} | of_taps)


@pytest.mark.parametrize("precision", ["f32/f32/f32", "i8/i8/i32"])
def test_dilated_and_enlarged_images(precision: str) -> None:
    settings = {"window_strides": (1, 2), "padding": ((1, 0), (2, -1)), "lhs_dilation": (2, 3), "rhs_dilation": (1, 2)}
    x = normal(2, 9, 8, 4)
    found = {"matmuls", "patches", "rows", "channels_first"}
    assert_equivalent(convolution(LAYOUTS[0], **settings), normal(3, 3, 4, 5), x, precision, found)
    depthwise = convolution(LAYOUTS[0], **settings, feature_group_count=4)
    assert_equivalent(depthwise, normal(3, 3, 1, 4), x, precision, {"shifted", "channels_first"})


def test_large_images_get_no_patches() -> None:
    apply = convolution(LAYOUTS[0], window_strides=(1, 1), padding="SAME")
    program = capture(apply, normal(3, 3, 32, 2), (jax.ShapeDtypeStruct((1, 128, 128, 32), jnp.float32),))
    names = kernel_names(program, "params", Precision.parse("f32/f32/f32"))
    assert "patches" not in names
    assert "rows" in names


# In bf16 jaxlib's CPU backend cannot run the plain kernel of some of these.
@pytest.mark.parametrize("precision", ["f32/f32/f32", "i8/i8/i32", "i8/f32/f32"])
@pytest.mark.parametrize("equation", ["bsk,bkn->bsn", "bsk,bkn->snb", "bkn,bsk->bns", "skb,bkn->bsn"])
def test_a_weight_that_is_repeated_for_a_batch(precision: str, equation: str) -> None:
    sizes = {"b": 3, "s": 4, "k": 16, "n": 5}
    left, right = equation.split("->")[0].split(",")
    value = left if "s" in left else right

    def apply(w: Any, x: Any) -> Any:
        repeated = jnp.broadcast_to(w, (3, 16, 5))
        return jnp.einsum(equation, *((x, repeated) if value == left else (repeated, x)))

    more = {"dequantized"} if precision == "i8/f32/f32" else set()
    x = normal(*(sizes[axis] for axis in value))
    assert_equivalent(apply, normal(16, 5), x, precision, {"flattened", "transposed"} | more)


def test_weights_that_differ_are_not_flattened() -> None:
    program = capture(lambda w, x: jnp.einsum("bsk,bkn->bsn", x, w), normal(3, 4, 5), (normal(3, 2, 4),))
    assert "flattened" not in kernel_names(program, "params", Precision.parse("f32/f32/f32"))


@pytest.mark.parametrize("precision", ["f32/f32/f32", "bf16/f32/f32", "i8/i8/i32"])
@pytest.mark.parametrize("equation", ["bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "bhqd,bhkd->bhqk", "qd,kd->qk"])
def test_products_of_two_activations(precision: str, equation: str) -> None:
    sizes = {"b": 2, "q": 3, "k": 5, "h": 4, "d": 8}
    left, right = (tuple(sizes[axis] for axis in side) for side in equation.split("->")[0].split(","))

    def apply(params: Any, x: Any, y: Any) -> Any:
        return jnp.einsum(equation, x, y) + 0 * params.sum()

    elsewhere = {"batch_first"} if "bqhd" in equation or "bkhd" in equation else set()
    x, y = normal(*left, seed=3), normal(*right, seed=4)
    assert_equivalent(apply, normal(2, 2), (x, y), precision, {"swapped"} | elsewhere)


def test_kernels_work_under_a_scan() -> None:
    def apply(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, w)[0]

    assert_equivalent(apply, normal(3, 6, 6), normal(2, 6), "i8/i8/i32", {"transposed"})


def test_an_unknown_kernel_is_refused_with_those_there_are() -> None:
    program = capture(lambda w, x: x @ w, normal(6, 6), (normal(2, 6),))
    chosen = {"params": Assignment(precision=Precision.parse("f32/f32/f32"), kernel="wishful")}
    with pytest.raises(
        PolicyError, match="layer 'params' has no kernel 'wishful' in f32/f32/f32; use plain, transposed"
    ):
        make_policy(program, chosen)

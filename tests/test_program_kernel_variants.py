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
    (layer,) = [layer for layer in program.layers if layer.params]
    chosen = {layer.name: Assignment(precision=Precision.parse(precision), kernel=kernel)}
    model = prepare(apply, params, make_policy(program, chosen), program=program)
    return np.asarray(jax.jit(model)(model.params, *inputs))


def assert_equivalent(apply: Any, params: Any, x: Any, precision: str, expected_kernels: set[str]) -> None:
    program = capture(apply, params, (x,))
    (layer,) = [layer for layer in program.layers if layer.params]
    names = kernel_names(program, layer.name, Precision.parse(precision))
    assert names[0] == "plain"
    assert set(names) == {"plain"} | expected_kernels
    plain = outputs(apply, params, (x,), precision, "plain")
    for name in names[1:]:
        found = outputs(apply, params, (x,), precision, name)
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
    assert_equivalent(apply, w, x, precision, {"shifted"} | ({"channels_last"} if spec[0] == "NCHW" else set()))


@pytest.mark.parametrize("precision", FLOATS)
@pytest.mark.parametrize("spec", LAYOUTS)
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2)])
def test_whole_convolutions(precision: str, spec: Any, kernel: tuple[int, int]) -> None:
    x, w = image_and_kernel(spec, 4, kernel, 4, 5)
    apply = convolution(spec, window_strides=(1, 2), padding="SAME")
    assert_equivalent(apply, w, x, precision, {"matmuls"} | ({"channels_last"} if spec[0] == "NCHW" else set()))


def test_one_dimensional_convolutions() -> None:
    apply = convolution(("NHC", "HIO", "NHC"), window_strides=(1,), padding="SAME", feature_group_count=4)
    assert_equivalent(apply, normal(3, 1, 4), normal(2, 9, 4), "f32/f32/f32", {"shifted"})


def test_a_dilated_image_has_the_plain_kernel_only() -> None:
    apply = convolution(LAYOUTS[0], window_strides=(1, 1), padding="SAME", lhs_dilation=(1, 1), feature_group_count=2)
    assert_equivalent(apply, normal(3, 3, 2, 4), normal(2, 9, 8, 4), "f32/f32/f32", set())
    dilated = convolution(LAYOUTS[0], window_strides=(1, 1), padding=((1, 1), (1, 1)), lhs_dilation=(2, 2))
    assert_equivalent(dilated, normal(3, 3, 4, 4), normal(2, 9, 8, 4), "f32/f32/f32", set())


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

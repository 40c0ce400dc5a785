"""Packed weights: one for all operations that can read it, else one for each."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tests import programs
from tests.programs import normal
from tuner.policy import Assignment
from tuner.program import capture, make_policy, prepare

FLOATS, INTEGERS = ("f32/f32/f32", "bf16/bf16/f32"), ("i8/i8/i32", "i8/f32/f32")
CLOSE = {"f32": 1e-5, "bf16": 0.02, "i8": 0.05}


def packed(apply: Any, params: Any, inputs: tuple[Any, ...], text: str, kernel: str = "plain") -> dict[str, Any]:
    """The packed weights of a program's only weighted layer, once its outputs are known to be right."""
    program = capture(apply, params, inputs)
    (layer,) = [layer for layer in program.layers if layer.params]
    assignment = Assignment(precision=Precision.parse(text), kernel=kernel)
    model = prepare(apply, params, make_policy(program, {layer.name: assignment}), program=program)
    expected = jax.jit(apply)(params, *inputs)
    difference = np.linalg.norm(jax.jit(model)(model.params, *inputs) - expected)
    assert difference <= CLOSE[text.split("/")[0]] * np.linalg.norm(expected)
    assert model.weight_bytes == sum(
        part.nbytes for weight in model.params["layers"].values() for part in weight.values()
    )
    layers: dict[str, Any] = model.params["layers"]
    return layers


@pytest.mark.parametrize("text", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("kernel", ["plain", "transposed"])
def test_a_table_that_is_looked_up_and_multiplied_with_is_packed_once(text: str, kernel: str) -> None:
    example = programs.tied_embedding()
    weights = packed(example.apply, example.params, example.inputs, text, kernel)
    assert {name: part["weight"].shape for name, part in weights.items()} == {"tokens": (20, 8)}
    assert all(part["scale"].shape == (20, 1) for part in weights.values() if text in INTEGERS)


def there_and_back(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["w"]) @ params["w"].T


@pytest.mark.parametrize("text", FLOATS)
def test_a_weight_and_its_transpose_are_one_array_without_scales(text: str) -> None:
    weights = packed(there_and_back, {"w": normal(8, 12)}, (normal(4, 8),), text)
    assert {name: part["weight"].shape for name, part in weights.items()} == {"w": (8, 12)}


@pytest.mark.parametrize("text", INTEGERS)
def test_and_two_where_their_scales_lie_along_other_axes(text: str) -> None:
    weights = packed(there_and_back, {"w": normal(8, 12)}, (normal(4, 8),), text)
    assert {name: part["scale"].shape for name, part in weights.items()} == {"w": (1, 12), "w#1": (1, 8)}


@pytest.mark.parametrize("text", ["f32/f32/f32", "i8/i8/i32"])
def test_transposing_twice_or_slicing_twice_makes_no_second_array(text: str) -> None:
    params, x = {"w": normal(3, 8, 8)}, (normal(4, 8),)
    assert list(packed(lambda p, x: jnp.tanh(x @ p["w"][1].T) @ p["w"][1].T, params, x, text)) == ["w"]
    swapped = lambda p, x: jnp.einsum("bi,hio->bho", x, jnp.moveaxis(p["w"], 0, 1)[:, :, :].transpose(1, 0, 2))
    assert list(packed(swapped, params, x, text)) == ["w"]


def test_the_product_with_the_most_work_decides_the_layout() -> None:
    def apply(params: Any, x: Any) -> Any:
        few = x[:1] @ params["w"].T
        return few.sum() + jnp.tanh(x @ params["w"])

    weights = packed(apply, {"w": normal(8, 8)}, (normal(16, 8),), "bf16/bf16/f32", "transposed")
    np.testing.assert_array_equal(weights["w"]["weight"], normal(8, 8).T.astype(jnp.bfloat16))


@pytest.mark.parametrize("text", FLOATS)
def test_what_is_reshaped_or_rounded_first_is_an_array_of_its_own(text: str) -> None:
    params, x = {"w": normal(8, 8)}, (normal(4, 8),)
    reshaped = lambda p, x: x @ p["w"] + (x @ p["w"].reshape(8, 4, 2).reshape(8, 8)).sum()
    assert list(packed(reshaped, params, x, text)) == ["w", "w#1"]
    rounded = lambda p, x: x @ p["w"] + x @ p["w"].astype(jnp.bfloat16).astype(jnp.float32)
    assert list(packed(rounded, params, x, text)) == ["w", "w#1"]


@pytest.mark.parametrize(("text", "copies"), [("bf16/bf16/f32", 1), ("i8/i8/i32", 2)])
def test_stacked_weights_of_a_scan_are_shared_alike(text: str, copies: int) -> None:
    def apply(params: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w) @ w.T / 8, None), x, params["w"])[0]

    weights = packed(apply, {"w": normal(3, 8, 12) / 3}, (normal(4, 8),), text)
    assert [part["weight"].shape for part in weights.values()] == [(3, 8, 12), (3, 12, 8)][:copies]


@pytest.mark.parametrize("text", ["bf16/bf16/f32", "i8/i8/i32"])
def test_two_scans_over_one_stack_share_it(text: str) -> None:
    def encode(stack: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, stack)[0]

    siamese = lambda params, x: encode(params["w"], x) * encode(params["w"], x[::-1] + 1)
    weights = packed(siamese, {"w": normal(3, 8, 8) / 3}, (normal(4, 8),), text)
    assert {name: part["weight"].shape for name, part in weights.items()} == {"w": (3, 8, 8)}


@pytest.mark.parametrize("text", ["bf16/bf16/f32", "i8/i8/i32"])
def test_but_not_one_inside_the_other(text: str) -> None:
    def apply(params: Any, x: Any) -> Any:
        inner = lambda h, w: (jnp.tanh(h @ w), None)
        outer = lambda h, w: (jnp.sin(jax.lax.scan(inner, h, params["w"])[0] @ w), None)
        return jax.lax.scan(outer, x, params["w"])[0]

    weights = packed(apply, {"w": normal(3, 8, 8) / 3}, (normal(4, 8),), text)
    assert [part["weight"].shape for part in weights.values()] == [(3, 8, 8)] * 2


@pytest.mark.parametrize("text", ["bf16/bf16/f32", "i8/i8/i32"])
def test_a_kernel_that_slides_over_two_images_is_packed_once(text: str) -> None:
    def apply(params: Any, x: Any) -> Any:
        convolve = lambda x: jax.lax.conv_general_dilated(
            x, params["w"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        return convolve(x) + convolve(jnp.tanh(x[..., ::-1]))

    weights = packed(apply, {"w": normal(4, 3, 3, 3)}, (normal(2, 3, 8, 8),), text, "channels_last")
    assert [part["weight"].shape for part in weights.values()] == [(3, 3, 3, 4)]

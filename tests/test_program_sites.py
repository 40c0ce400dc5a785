"""Which operations are layers, and which are listed with the reason why they stay as they are."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import RaggedDotDimensionNumbers

from search_spaces import Precision
from tests.programs import normal
from tuner.program import Layer, capture, make_policy, prepare

TABLE = {"positions": {"embedding": normal(20, 8)}}
I8 = Precision.parse("i8/f32/f32")


def only_layer(apply: Any, params: Any, *inputs: Any) -> Layer:
    (layer,) = [layer for layer in capture(apply, params, inputs).layers if layer.params]
    return layer


@pytest.mark.parametrize(
    ("look_up", "scales"),
    [
        (lambda table, i: table[i], (20, 1)),
        (lambda table, i: jax.lax.dynamic_slice_in_dim(table, i, 3), (20, 1)),
        (lambda table, i: table[:, i], (1, 8)),
        (lambda table, i: table.T[i], (8, 1)),
        (lambda table, i: table.reshape(20, 2, 4)[i], (20, 1, 1)),
    ],
)
@pytest.mark.parametrize("number", [0, 3, -1, 99])
def test_one_index_is_a_look_up_of_whole_rows_too(look_up: Any, scales: tuple[int, ...], number: int) -> None:
    apply = lambda params, i: look_up(params["positions"]["embedding"], i)
    program = capture(apply, TABLE, (np.int32(number),))
    (layer,) = program.layers
    assert (layer.name, layer.kind, layer.searchable) == ("positions", "embedding", True)
    model = prepare(apply, TABLE, make_policy(program, {"positions": I8}), program=program)
    packed = model.params["layers"]["positions"]
    assert model.params["parameters"] == {}
    assert (packed["weight"].dtype, packed["scale"].shape) == (jnp.int8, scales)
    expected = jax.jit(apply)(TABLE, np.int32(number))
    np.testing.assert_allclose(jax.jit(model)(model.params, np.int32(number)), expected, atol=abs(expected).max() / 100)


def test_one_index_and_many_into_a_table_are_one_layer() -> None:
    apply = lambda params, i: params["positions"]["embedding"][i[0]] + params["positions"]["embedding"][i]
    assert only_layer(apply, TABLE, np.arange(3)).executions == 2


@pytest.mark.parametrize("look_up", [lambda table, i: table[i, :4], lambda table, i: table[i, i]])
def test_a_part_of_a_row_is_listed_with_the_reason(look_up: Any) -> None:
    layer = only_layer(lambda params, i: look_up(params["positions"]["embedding"], i), TABLE, np.int32(1))
    assert layer.reason == "it looks up parts of rows, and a row has one scale"


def test_integer_tables_and_fixed_positions_are_no_layers() -> None:
    numbers = {"ids": np.arange(6), "w": normal(6)}
    assert capture(lambda p, i: p["ids"][i] * p["w"], numbers, (np.int32(1),)).layers == ()
    first = lambda params, x: x * params["positions"]["embedding"][0]
    assert [layer.name for layer in capture(first, TABLE, (normal(2, 8),)).layers] == ["input"]


def test_rows_in_groups_times_a_matrix_per_group_are_a_layer() -> None:
    sizes = np.array([1, 2, 1], np.int32)
    apply = lambda params, x: jax.lax.ragged_dot(x, params["experts"]["w"], sizes)
    layer = only_layer(apply, {"experts": {"w": normal(3, 6, 5)}}, normal(4, 6))
    assert (layer.name, layer.kind, layer.searchable) == ("experts", "matmul", True)
    assert layer.flops == 2 * 4 * 5 * 6


def test_ragged_products_of_another_form_are_listed_with_the_reason() -> None:
    over_groups = RaggedDotDimensionNumbers(
        (((0,), (0,)), ((), ())), lhs_ragged_dimensions=(0,), rhs_group_dimensions=()
    )
    sizes = np.array([1, 3], np.int32)
    reason = "it is a ragged product, and not of rows in groups with one parameter matrix per group"
    summed = lambda params, x: jax.lax.ragged_dot_general(x, params["w"], sizes, over_groups)
    assert only_layer(summed, {"w": normal(4, 5)}, normal(4, 6)).reason == reason
    swapped = lambda params, x: jax.lax.ragged_dot(params["w"], x, sizes)
    (_, layer) = capture(swapped, {"w": normal(4, 6)}, (normal(2, 6, 5),)).layers
    assert (layer.kind, layer.reason) == ("dot", reason)

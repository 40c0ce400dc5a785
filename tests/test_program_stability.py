import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tuner.errors import PolicyError
from tuner.policy import Policy
from tuner.program import capture, make_policy, uniform_policy
from tuner.program.stability import find_stability
from tuner.stability import OUTPUTS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 8)).astype(np.float32)


def weight(rows, columns, scale=1.0):
    return (scale * RNG.normal(size=(rows, columns))).astype(np.float32)


def look(apply, params, precision, inputs=(X,)):
    program = capture(apply, params, inputs)
    policy = uniform_policy(program, precision) if isinstance(precision, str) else make_policy(program, precision)
    return find_stability(apply, params, policy, inputs, program=program)


def row(found, layer, part):
    (one,) = [one for one in found.watched if (one.layer, one.part) == (layer, part)]
    return one


PARAMS = {"first": {"w": weight(8, 16)}, "second": {"w": weight(16, 4)}}


def two_layers(params, x):
    return jax.nn.relu(x @ params["first"]["w"]) @ params["second"]["w"]


def test_what_each_layer_sees_is_what_its_format_makes_of_it():
    found = look(two_layers, PARAMS, "f16/f16/f32")
    hidden = np.maximum(
        X.astype(np.float16).astype(np.float32) @ PARAMS["first"]["w"].astype(np.float16).astype(np.float32), 0
    )
    activations = row(found, "second", "activations")
    assert (activations.format, activations.counts.count, activations.executions) == ("f16", 6 * 16, 1)
    assert activations.largest == pytest.approx(float(hidden.astype(np.float16).max()), rel=1e-3)
    assert activations.smallest == 0.0
    weights = row(found, "first", "weights")
    assert weights.largest == float(PARAMS["first"]["w"].astype(np.float16).max())
    assert weights.counts.largest_given == pytest.approx(float(np.abs(PARAMS["first"]["w"]).max()))
    assert [one.layer for one in found.watched] == ["input", *["first"] * 3, *["second"] * 3, OUTPUTS]
    assert row(found, OUTPUTS, "results").counts.count == 6 * 4
    assert found.sentences() == ["Every layer's values are finite."]


def test_layers_as_written_are_seen_in_their_own_dtype():
    found = look(two_layers, PARAMS, {})
    assert {one.format for one in found.watched} == {"f32"}
    assert row(found, "second", "weights").largest == float(PARAMS["second"]["w"].max())


def test_values_beyond_a_formats_range_are_counted_and_named():
    params = {"first": {"w": weight(8, 16, 1e5)}, "second": {"w": weight(16, 4)}}
    found = look(two_layers, params, {"second": "f16/f16/f32"})
    hidden = np.maximum(X @ params["first"]["w"], 0)
    beyond = int((hidden >= 65520).sum())
    counts = row(found, "second", "activations").counts
    assert beyond > 0
    assert (counts.saturated, counts.non_finite, counts.non_finite_given) == (beyond, beyond, 0)
    assert found.first_non_finite is row(found, "second", "activations")
    assert f"{beyond} of 96 activations" in found.why_non_finite()
    assert "and f16 ends at 65504" in found.why_non_finite()


def test_weights_beyond_a_formats_range_come_first():
    params = {"first": {"w": weight(8, 16)}, "second": {"w": weight(16, 4, 1e6)}}
    found = look(two_layers, params, "f16/f16/f32")
    assert found.first_non_finite is row(found, "second", "weights")
    assert "is the first that is not finite" in found.why_non_finite()


def test_a_result_that_overflows_is_told_from_an_operand_that_does():
    params = {"first": {"w": np.full((8, 4), 3e38, np.float32)}, "second": {"w": weight(4, 2)}}
    found = look(two_layers, params, {"second": "bf16/bf16/f32"}, (np.full((1, 8), 2.0, np.float32),))
    assert found.first_non_finite is row(found, "first", "results")
    assert "though everything it reads is finite" in found.why_non_finite()


def test_what_is_computed_between_layers_is_told_from_them():
    def apply(params, x):
        return (jnp.log(-jnp.abs(x @ params["first"]["w"]))) @ params["second"]["w"]

    found = look(apply, PARAMS, "bf16/bf16/f32")
    assert found.first_non_finite is row(found, "second", "activations")
    assert "are NaN or infinite when it receives them, computed after layer 'first'" in found.why_non_finite()


def test_outputs_that_alone_are_not_finite():
    found = look(lambda params, x: jnp.log(-jnp.abs(two_layers(params, x))), PARAMS, "bf16/bf16/f32")
    assert found.first_non_finite is row(found, OUTPUTS, "results")
    assert "the outputs alone are not finite" in found.why_non_finite()
    assert "after layer 'second'" in found.why_non_finite()


def test_integers_show_what_becomes_zero_and_never_saturate_with_scales_of_their_own():
    x = np.tile(np.array([[1.0, 1e-4, 1e-4, 1e-4, 1e-4, 0.0, 0.0, 0.0]], np.float32), (6, 1))
    found = look(two_layers, PARAMS, {"first": "i8/i8/i32"}, (x,))
    counts = row(found, "first", "activations").counts
    assert (counts.count, counts.underflowed, counts.saturated) == (48, 24, 0)
    assert row(found, "first", "activations").largest == pytest.approx(1.0)
    assert found.first_underflowed is None  # half of them, and no more


def test_inputs_are_seen_as_they_come_and_as_they_are_kept():
    x = X.copy()
    x[0, 0] = 1e30
    found = look(two_layers, PARAMS, {"input": "f16"}, (x,))
    values = row(found, "input", "values")
    assert (values.format, values.counts.saturated) == ("f16", 1)
    assert found.first_non_finite is values


def test_a_product_of_two_activations_has_a_left_and_a_right():
    found = look(lambda params, x: (x @ params["first"]["w"]) @ x.T.repeat(2, 0), PARAMS, {"first": "f16/f16/f32"})
    parts = {one.part for one in found.watched if one.layer not in ("input", "first", OUTPUTS)}
    assert parts == {"left", "right", "results"}


def test_a_loop_says_in_which_iteration_it_went_wrong():
    params = {"blocks": {"w": 300 * np.stack([np.eye(8, dtype=np.float32)] * 4)}}

    def apply(params, x):
        return jax.lax.scan(lambda carry, w: (carry @ w, None), x, params["blocks"]["w"])[0]

    found = look(apply, params, "f16/f16/f32", (np.ones((2, 8), np.float32),))
    activations = row(found, "blocks", "activations")
    assert (activations.executions, activations.broke.execution) == (4, 3)
    assert activations.broke.counts.saturated == 16
    assert "in its execution 3 of 4: 16 of 16 activations (100 %) exceed" in found.why_non_finite()
    assert row(found, "blocks", "weights").executions == 4


def test_loops_and_branches_are_looked_into_even_as_written():
    def apply(params, x):
        def body(state):
            value, count = state
            return jax.lax.cond(count > 0, lambda v: v @ params["square"]["w"], lambda v: v, value), count + 1

        return jax.lax.while_loop(lambda state: state[1] < 3, body, (x, 0))[0]

    found = look(apply, {"square": {"w": np.eye(8, dtype=np.float32)}}, {})
    assert row(found, "square", "results").executions == 2
    assert row(found, "square", "results").counts.count == 2 * X.size


def test_a_table_that_is_looked_up_is_a_weight():
    params = {"embed": {"embedding": weight(10, 4)}, "out": {"w": weight(4, 2)}}
    apply = lambda params, tokens: params["embed"]["embedding"][tokens] @ params["out"]["w"]
    found = look(apply, params, "i8/bf16/f32", (np.arange(5, dtype=np.int32),))
    assert row(found, "embed", "weights").format == "i8"
    assert row(found, "embed", "results").counts.count == 20
    assert not [one for one in found.watched if one.part == "values"]  # tokens are no floats


def test_a_layer_that_does_not_run_shows_its_weights_only():
    def apply(params, x):
        return jax.lax.cond(x.sum() > 1e6, lambda v: v @ params["never"]["w"], lambda v: v @ params["always"]["w"], x)

    params = {"never": {"w": weight(8, 8)}, "always": {"w": weight(8, 8)}}
    found = look(apply, params, "bf16/bf16/f32")
    assert [one.part for one in found.watched if one.layer == "never"] == ["weights"]
    assert found.idle == ["never"]
    assert found.sentences() == ["Every layer's values are finite.", "Not run in this call: 'never'."]


def test_a_layer_of_whole_numbers_is_seen_to_run():
    params = {"whole": {"w": np.arange(16, dtype=np.int8).reshape(4, 4)}, "out": {"w": weight(4, 2)}}

    def apply(params, tokens):
        counts = jax.lax.dot(tokens, params["whole"]["w"], preferred_element_type=jnp.int32)
        return counts.astype(jnp.float32) @ params["out"]["w"]

    found = look(apply, params, {}, (np.ones((2, 4), np.int8),))
    assert row(found, "whole", "results").format == "i32"
    assert found.idle == []


def test_convolutions_of_any_kernel_hold_their_image_alike():
    image = RNG.normal(size=(2, 6, 6, 3)).astype(np.float32)
    params = {"conv": {"w": RNG.normal(size=(3, 3, 3, 4)).astype(np.float32)}}

    def apply(params, x):
        return jax.lax.conv_general_dilated(
            x, params["conv"]["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    found = look(apply, params, "i8/i8/i32", (image,))
    activations = row(found, "conv", "activations")
    assert (activations.format, activations.counts.count) == ("i8", image.size)
    assert activations.largest == pytest.approx(float(image.max()), rel=0.01)


def test_a_policy_of_another_program_is_refused():
    with pytest.raises(PolicyError, match="says nothing about layer"):
        find_stability(two_layers, PARAMS, Policy(()), (X,))

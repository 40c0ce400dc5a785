"""Prepared models: what is packed, what they accept, what they refuse."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tests import programs
from tuner.errors import CaptureError, PolicyError
from tuner.policy import Assignment, Policy
from tuner.program import capture, make_policy, original_policy, prepare, uniform_policy

I8 = Precision.parse("i8/i8/i32")


def prepared(example: programs.Example, chosen: dict[str, Any]) -> Any:
    program = capture(example.apply, example.params, example.inputs)
    return prepare(example.apply, example.params, make_policy(program, chosen), program=program)


def test_the_original_weight_is_dropped_once_it_is_packed() -> None:
    model = prepared(programs.mlp(), {"fc1": "i8/i8/i32"})
    assert set(model.params["parameters"]) == {"fc1/bias", "fc2/bias", "fc2/kernel"}
    assert model.params["layers"]["fc1"]["weight"].dtype == jnp.int8
    assert model.params["layers"]["fc1"]["scale"].shape == (1, 16)


def test_weight_bytes_count_scales_and_what_is_kept() -> None:
    model = prepared(programs.mlp(), {"fc1": "i8/i8/i32"})
    assert model.weight_bytes == 12 * 16 + 4 * 16 + 4 * (16 + 5 + 16 * 5)


def test_a_computed_weight_is_computed_once() -> None:
    model = prepared(programs.weight_norm(), {"fc/{g,v}": "bf16/bf16/f32"})
    text = str(jax.make_jaxpr(model)(model.params, programs.normal(3, 6)))
    assert "sqrt" not in text
    assert "div" not in text


def test_a_tied_weight_is_assigned_in_both_uses() -> None:
    model = prepared(programs.tied_embedding(), {"tokens": "i8/i8/i32"})
    assert model.params["parameters"] == {}
    assert all(part["weight"].dtype == jnp.int8 for part in model.params["layers"].values())


def test_stacked_weights_are_packed_for_all_iterations_at_once() -> None:
    model = prepared(programs.scan_over_layers(), {"layers/up": "i8/i8/i32", "layers/down": "i8/i8/i32"})
    assert set(model.params["parameters"]) == {"layers/scale", "shared/kernel"}
    assert model.params["layers"]["layers/up"]["weight"].shape == (3, 6, 8)
    assert model.params["layers"]["layers/up"]["scale"].shape == (3, 1, 8)


def test_nothing_known_before_a_loop_is_computed_inside_it() -> None:
    example = programs.while_with_condition()
    model = prepared(example, {"loop": "bf16/bf16/f32"})
    (loop,) = [
        e
        for e in jax.make_jaxpr(model)(model.params, *example.inputs).eqns[0].params["call_jaxpr"].eqns
        if e.primitive.name == "while"
    ]
    assert "reduce_sum" not in str(loop.params["body_jaxpr"]).split("dot_general")[0]


def test_no_data_is_needed_when_the_policy_knows_its_inputs() -> None:
    example = programs.mlp()
    policy = uniform_policy(capture(example.apply, example.params, example.inputs), I8)
    model = prepare(example.apply, example.params, policy)
    assert model(model.params, *example.inputs).shape == (8, 5)


def test_a_policy_without_inputs_asks_for_them() -> None:
    example = programs.mlp()
    program = capture(example.apply, example.params, example.inputs)
    bare = Policy(uniform_policy(program, I8).assignments)
    with pytest.raises(PolicyError, match="pass `inputs=`"):
        prepare(example.apply, example.params, bare)


def test_other_batch_sizes_give_the_same_rows() -> None:
    example = programs.mlp()
    model = prepared(example, {"fc1": "i8/i8/i32", "fc2": "i8/i8/i32"})
    whole = jax.jit(model)(model.params, *example.inputs)
    part = jax.jit(model)(model.params, example.inputs[0][:3])
    np.testing.assert_allclose(part, whole[:3], rtol=1e-5, atol=1e-5)


def test_no_example_depends_on_the_others_in_its_batch() -> None:
    example = programs.convolutions()
    model = prepared(example, dict.fromkeys(("stem", "depthwise", "dilated", "head"), "i8/i8/i32"))
    x = example.inputs[0]
    louder = np.concatenate([x[:1], 100 * x[1:]])
    np.testing.assert_allclose(model(model.params, x)[:1], model(model.params, louder)[:1], rtol=1e-5, atol=1e-5)


def test_it_can_be_vmapped() -> None:
    example = programs.mlp()
    model = prepared(example, {"fc1": "bf16/bf16/f32"})
    stacked = np.stack([example.inputs[0], 2 * example.inputs[0]])
    outputs = jax.vmap(lambda x: model(model.params, x))(stacked)
    np.testing.assert_allclose(outputs[1], model(model.params, stacked[1]), rtol=1e-2, atol=1e-2)


def test_parameters_are_an_argument() -> None:
    example = programs.mlp()
    model = prepared(example, {"fc1": "bf16/bf16/f32"})
    zeros = jax.tree_util.tree_map(jnp.zeros_like, model.params)
    np.testing.assert_allclose(jax.jit(model)(zeros, *example.inputs), np.full((8, 5), -np.log(5)), rtol=1e-6)


def test_gradients_are_refused_with_the_reason() -> None:
    example = programs.mlp()
    model = prepared(example, {"fc1": "bf16/bf16/f32"})
    with pytest.raises(TypeError, match="cannot be differentiated: its policy was measured for inference"):
        jax.grad(lambda x: model(model.params, x).sum())(example.inputs[0])


def test_inputs_are_cast_at_preprocessing() -> None:
    example = programs.mlp()
    model = prepared(example, {"input": "bf16"})
    (narrow,) = model.cast_inputs(*example.inputs)
    assert narrow.dtype == jnp.bfloat16
    np.testing.assert_array_equal(jax.jit(model)(model.params, narrow), jax.jit(model)(model.params, *example.inputs))


def test_other_layers_for_another_shape_are_a_clear_error() -> None:
    def apply(params: Any, x: Any) -> Any:
        return x @ params["a"] if x.shape[0] > 4 else x @ params["b"]

    params = {"a": programs.normal(6, 3), "b": programs.normal(6, 3)}
    policy = original_policy(capture(apply, params, (programs.normal(8, 6),)))
    model = prepare(apply, params, policy)
    with pytest.raises(CaptureError) as caught:
        model(model.params, programs.normal(2, 6))
    assert str(caught.value) == (
        "for inputs float32[2,6] the function has other layers than for float32[8,6], which this model was prepared "
        "for: it has 'b' and lacks 'a'; call it with shapes that lead to the same layers, or search with these"
    )
    with pytest.raises(PolicyError) as refused:
        prepare(apply, params, policy, inputs=(programs.normal(2, 6),))
    assert str(refused.value) == (
        "the policy names layer 'a', which this program does not have (its layers: input, b); it was made with inputs "
        "float32[8,6], and these are float32[2,6]; apply it to the program it was made for, use shapes that lead to "
        "the same layers, or search this one"
    )


def test_another_input_structure_is_a_clear_error() -> None:
    model = prepared(programs.mlp(), {})
    with pytest.raises(CaptureError, match="the inputs have the structure"):
        model(model.params, {"x": programs.normal(8, 12)})


def test_a_policy_for_another_program_is_refused_by_name() -> None:
    example = programs.mlp()
    other = original_policy(capture(lambda p, x: x @ p["w"], {"w": programs.normal(12, 3)}, example.inputs))
    with pytest.raises(PolicyError, match="w"):
        prepare(example.apply, example.params, other)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            Assignment(precision=Precision.parse("tf32/tf32/f32")),
            "layer 'fc1' cannot run in tf32/tf32/f32: not available yet",
        ),
        (Assignment(precision=I8, kernel="magic"), "layer 'fc1' has no kernel 'magic' in this version; upgrade"),
    ],
)
def test_a_policy_file_of_a_version_that_could_more_is_refused_by_layer(assignment: Assignment, message: str) -> None:
    example = programs.mlp()
    policy = original_policy(capture(example.apply, example.params, example.inputs)).assign("fc1", assignment)
    with pytest.raises(PolicyError, match=message):
        prepare(example.apply, example.params, policy)


def test_an_input_that_is_in_its_format_already_may_stay_so() -> None:
    example = programs.mlp()
    policy = original_policy(capture(example.apply, example.params, example.inputs))
    policy = policy.assign("input", Assignment(precision=Precision.parse("f32")))
    model = prepare(example.apply, example.params, policy)
    np.testing.assert_allclose(
        model(model.params, *example.inputs), example.apply(example.params, *example.inputs), rtol=1e-5, atol=1e-5
    )


def test_unpacked_parameters_are_refused_with_what_to_write() -> None:
    model = prepared(programs.mlp(), {"fc1": "i8/i8/i32"})
    with pytest.raises(PolicyError, match=r"not a dict of 'fc1', 'fc2'; call it as model\(model.params, \*inputs\)"):
        model(programs.mlp().params, programs.normal(8, 12))
    with pytest.raises(PolicyError, match="not a ndarray; call it as"):
        model(programs.normal(8, 12), programs.normal(8, 12))


def test_program_and_model_are_shown_without_their_insides() -> None:
    example = programs.mlp()
    assert repr(capture(example.apply, example.params, example.inputs)) == "Program(3 layers: input, fc1, fc2)"
    model = prepared(example, {"fc1": "i8/i8/i32"})
    assert repr(model) == "Prepared(Policy(3 layers: 1 x i8/i8/i32, 2 x original), 660 bytes)"


def test_one_precision_everywhere_may_be_given_as_text() -> None:
    program = capture(programs.mlp().apply, programs.mlp().params, programs.mlp().inputs)
    assert uniform_policy(program, "w8a8") == uniform_policy(program, I8)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"fc9": "bf16"}, "layer 'fc9' does not exist; the layers are input, fc1, fc2"),
        ({"fc1": "tf32/tf32/f32"}, "layer 'fc1' cannot run in tf32/tf32/f32: not available yet"),
        ({"input": "i8/i8/i32"}, "an input has one float format: write f32, bf16 or f16"),
        ({"input": "f32"}, "the input is float32 already"),
    ],
)
def test_impossible_assignments_are_refused(chosen: dict[str, str], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        prepared(programs.mlp(), chosen)

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from search_spaces import SearchSpace
from tests.search_bench import SPACE
from tuner.errors import InputError
from tuner.program import Program, capture, make_policy
from tuner.search.choices import ChoiceSpace
from tuner.search.first_candidates import cast_trial, first_candidates, label_of, start_proposal
from tuner.search.spaces import resolve_space


def made(text: str = SPACE, dtype: object = np.float32) -> tuple[Program, ChoiceSpace]:
    params = {name: {"kernel": np.ones((8, 8), dtype)} for name in ("a", "b")}

    def apply(params, x):
        return jnp.tanh(x @ params["a"]["kernel"]) @ params["b"]["kernel"]

    program = capture(apply, params, (np.ones((4, 8), dtype),))
    return program, ChoiceSpace.from_resolution(resolve_space(SearchSpace.parse(text, "test"), program).resolution)


def labels(program: Program, space: ChoiceSpace, rank=list, **kwargs) -> list[str]:
    return [candidate.label for candidate in first_candidates(program.layers, space, rank, **kwargs)]


def test_baseline_then_same_formats_then_uniform_as_ranked():
    program, space = made()
    backwards = lambda precisions: precisions[::-1]
    assert labels(program, space, backwards) == ["baseline", "f32/f32/f32", "i8/i8/i32", "bf16/bf16/f32"]


def test_the_same_formats_of_a_bf16_model_are_bf16():
    text = '[[rules]]\nkinds = ["matmul"]\nprecisions = ["f32/f32/f32", "bf16/bf16/bf16"]\n'
    program, space = made(text, ml_dtypes.bfloat16)
    assert labels(program, space) == ["baseline", "bf16/bf16/bf16", "f32/f32/f32"]


def test_a_layer_takes_a_uniform_precision_only_where_it_may():
    rules = (
        '[[rules]]\nlayers = "a"\nprecisions = ["i8/i8/i32"]\n[[rules]]\nlayers = "b"\nprecisions = ["bf16/bf16/f32"]\n'
    )
    program, space = made(rules)
    candidates = {c.label: c.proposal for c in first_candidates(program.layers, space, list)}
    assert candidates["i8/i8/i32"]["a"] == "i8/i8/i32"
    assert candidates["i8/i8/i32"]["b"] == "original"


def test_what_only_inputs_can_take_is_no_uniform_candidate():
    rules = f'{SPACE}\n[[rules]]\nkinds = ["input"]\nprecisions = ["f16"]\n'
    program, space = made(rules)
    assert "f16/f16/f16" not in labels(program, space)


def test_a_space_without_choices_has_the_baseline_only():
    program, space = made('[[rules]]\nkinds = ["conv"]\nprecisions = ["i8/i8/i32"]\noptional = true\n')
    assert labels(program, space) == ["baseline"]


def test_a_policy_to_start_from_must_be_in_the_space():
    program, space = made()
    start = make_policy(program, {"a": "i8/i8/i32"})
    assert start_proposal(start, space)["a"] == "i8/i8/i32"
    assert labels(program, space, start=start)[:2] == ["baseline", "start"]
    with pytest.raises(InputError) as caught:
        start_proposal(make_policy(program, {"a": "f16/f16/f32"}), space)
    assert str(caught.value) == (
        "the policy to start from gives layer 'a' f16/f16/f32, which this search space does not allow (original, "
        "f32/f32/f32, bf16/bf16/f32, i8/i8/i32); widen the space with --space or leave --start out"
    )


def test_labels_say_what_a_policy_is_made_of():
    _, space = made()
    assert label_of(space, space.expand({})) == "baseline"
    assert label_of(space, space.expand({"a": "i8/i8/i32", "b": "i8/i8/i32"})) == "i8/i8/i32"
    assert label_of(space, space.expand({"a": "i8/i8/i32"})) == "1 x i8/i8/i32"
    mixed = space.expand({"a": "i8/i8/i32", "b": "bf16/bf16/f32"})
    assert label_of(space, mixed) == "1 x bf16/bf16/f32, 1 x i8/i8/i32"


def test_reference_points_have_no_trial_number():
    assert [cast_trial(name) for name in ("bf16", "f16")] == [-1, -2]

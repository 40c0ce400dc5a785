"""What is said of a policy's kernels, and where: in the front and of one point."""

import io
from dataclasses import replace

import pytest

from search_spaces import Precision
from tests.factories import make_point, make_policy
from tuner.policy import PLAIN, Assignment, Policy
from tuner.report.front import explain_front
from tuner.report.points import keeps_f32, kernels_text
from tuner.report.policies import write_point


def policy(*given: tuple[str, str]) -> Policy:
    layers = [
        (f"layer_{i}", Assignment(precision=Precision.parse(text), kernel=kernel))
        for i, (text, kernel) in enumerate(given)
    ]
    return Policy(tuple(layers))


KERNELS = policy(("f32/f32/f32", "shifted"), ("original", PLAIN), ("f32/f32/f32", "shifted"), ("f32/f32/f32", "padded"))


def test_kernels_are_counted_the_most_frequent_first():
    assert kernels_text(KERNELS) == "2 x shifted, 1 x padded"
    assert kernels_text(policy(("i8/i8/i32", PLAIN))) == ""
    assert kernels_text(None) == ""


@pytest.mark.parametrize(
    ("given", "kept"),
    [(KERNELS, True), (policy(("f32/f32/f32", PLAIN), ("bf16/bf16/f32", "padded")), False), (None, False)],
)
def test_a_policy_of_f32_changes_kernels_alone(given, kept):
    assert keeps_f32(given) is kept


def test_the_front_says_what_is_faster_without_a_narrower_format():
    point = replace(make_point(trial=7), policy=KERNELS)
    said = "Trial 7 keeps every layer in f32: other kernels alone (2 x shifted, 1 x padded)."
    assert said in explain_front([point], {})
    plain = replace(make_point(trial=7), policy=make_policy("i8/i8/i32"))
    assert not any("other kernels" in sentence for sentence in explain_front([plain], {}))


def test_a_point_says_which_kernels_it_has():
    file = io.StringIO()
    write_point(replace(make_point(trial=7), policy=KERNELS), file)
    assert "kernels       2 x shifted, 1 x padded\n" in file.getvalue()

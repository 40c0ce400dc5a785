"""What JAX cannot trace is told in one sentence: what the function does, where, and what to write instead."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.programs import normal
from tuner import Task, capture, prepare, uniform_policy
from tuner.errors import CaptureError, InputError
from tuner.task import check_task

W, X = normal(3, 3), normal(2, 3)
REMEDY = "; return arrays alone, and add the rest outside of the function"


def complaint(apply: Any, *inputs: Any) -> str:
    with pytest.raises(CaptureError) as caught:
        capture(apply, W, inputs or (X,))
    return str(caught.value)


def branching(w: Any, x: Any) -> Any:
    if x.sum() > 0:
        return x @ w
    return x


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, lambda f: lambda w, x: jax.vmap(lambda x: f(w, x))(x[None])])
def test_a_branch_in_python_is_shown_with_its_line(wrap: Any) -> None:
    sentence = complaint(wrap(branching)).split(" ", 1)[1]
    line = branching.__code__.co_firstlineno + 1
    assert sentence == (
        "branches in Python on a value that is known only when it runs "
        f"(test_trace_problems.py:{line}: if x.sum() > 0:); "
        "choose with jax.numpy.where, or branch with jax.lax.cond or jax.lax.while_loop"
    )


@pytest.mark.parametrize(
    ("apply", "words"),
    [
        (lambda w, x: x[x > 0], ["selects by a mask", "the size of the result is not", "choose with jax.numpy.where"]),
        (lambda w, x: np.tanh(x) @ w, ["hands NumPy a value", "np.tanh(x) @ w", "use jax.numpy there"]),
        (lambda w, x: x * float(w.sum()), ["makes a Python number", "keep it a jax.numpy array"]),
        (lambda w, x: jnp.arange(x.shape[0] + w[0, 0]), ["a length or a shape", "from the shapes of its arguments"]),
    ],
)
def test_other_uses_of_a_traced_value(apply: Any, words: list[str]) -> None:
    sentence = complaint(apply)
    assert sentence.startswith("'<lambda>' ")
    assert [word for word in [*words, "(test_trace_problems.py:"] if word not in sentence] == [], sentence


@pytest.mark.parametrize(
    ("apply", "found"),
    [
        (lambda w, x: {"y": x @ w, "label": "cat"}, "a str as output['label'] ('cat')"),
        (lambda w, x: (x @ w, [np.array(["a"])]), "a ndarray as output[1][0] (array(['a'], dtype='<U1'))"),
        (lambda w, x: "cat" * 50, f"a str as output ('{'cat' * 12}...)"),
    ],
)
def test_an_output_that_is_no_array_is_shown_with_its_place(apply: Any, found: str) -> None:
    assert complaint(apply) == f"'<lambda>' returns {found}, which JAX cannot compute{REMEDY}"


def test_numbers_and_none_are_outputs() -> None:
    assert capture(lambda w, x: (x @ w, 3, None, np.float32(2)), W, (X,)).notes == ()


def test_anything_else_keeps_its_own_error_and_the_shapes() -> None:
    def apply(w: Any, x: Any) -> Any:
        raise ValueError("the weather is bad\nand more of it.")

    assert complaint(apply) == (
        "JAX cannot trace 'apply' on inputs float32[2,3]: ValueError: the weather is bad; "
        "make it run under jax.jit with these arguments first"
    )


def test_a_task_says_the_same_before_it_is_searched() -> None:
    task = Task(
        name="toy", apply=branching, params=W, inputs=normal(8, 3), batch_size=4, metric=lambda outputs, _: outputs
    )
    with pytest.raises(InputError, match=r"^apply of task 'toy' branches in Python on a value .*if x.sum\(\) > 0:"):
        check_task(task)


def test_and_so_does_prepare_for_a_function_that_is_not_the_one_of_the_policy() -> None:
    policy = uniform_policy(capture(lambda w, x: x @ w, W, (X,)), "bf16/bf16/f32")
    with pytest.raises(CaptureError, match=r"^'branching' branches in Python"):
        prepare(branching, W, policy)

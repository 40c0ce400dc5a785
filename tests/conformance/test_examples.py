"""Every example program against every invariant of capture, rewrite and prepare."""

import collections
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tests.programs import EXAMPLES, Example
from tuner.program import Program, capture, original_policy, prepare, supports, uniform_policy

PRECISIONS = ("f32/f32/f32", "bf16/bf16/f32", "bf16/bf16/bf16", "f16/f16/f32", "i8/i8/i32", "i8/f32/f32", "i8/bf16/f32")
# Relative error allowed for a whole small network: a few roundings of each format, in units of its last place.
BOUNDS = {"f32": 1e-5, "bf16": 0.05, "f16": 0.01, "i8": 0.12}


@pytest.fixture(params=EXAMPLES, scope="module")
def example(request: Any) -> Example:
    return EXAMPLES[request.param]()


@pytest.fixture(scope="module")
def program(example: Example) -> Program:
    return capture(example.apply, example.params, example.inputs)


@pytest.fixture(scope="module")
def reference(example: Example) -> Any:
    return jax.jit(example.apply)(example.params, *example.inputs)


def leaves(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(tree)


def as_numpy(value: Any) -> np.ndarray:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)


def operation_counts(compiled: Any) -> collections.Counter[str]:
    return collections.Counter(re.findall(r"= \S+ ([a-z\-]+)\(", compiled.as_text()))


def test_every_layer_is_found_and_named(example: Example, program: Program) -> None:
    assert tuple((layer.name, layer.kind) for layer in program.layers) == example.layers


def test_all_original_is_the_users_program_to_the_bit(example: Example, program: Program) -> None:
    model = prepare(example.apply, example.params, original_policy(program), program=program)
    theirs = jax.jit(example.apply).lower(example.params, *example.inputs).compile()
    ours = jax.jit(model).lower(model.params, *example.inputs).compile()
    assert operation_counts(ours) == operation_counts(theirs)
    expected, found = theirs(example.params, *example.inputs), ours(model.params, *example.inputs)
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    for mine, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_array_equal(as_numpy(mine), as_numpy(other))


def test_all_original_also_runs_without_jit(example: Example, program: Program) -> None:
    model = prepare(example.apply, example.params, original_policy(program), program=program)
    expected, found = example.apply(example.params, *example.inputs), model(model.params, *example.inputs)
    for mine, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_allclose(as_numpy(mine).astype(float), as_numpy(other).astype(float), rtol=2e-2, atol=1e-4)


@pytest.mark.parametrize("text", PRECISIONS)
def test_outputs_keep_structure_dtypes_and_weak_types_and_stay_close(
    example: Example, program: Program, reference: Any, text: str
) -> None:
    precision = Precision.parse(text)
    policy = uniform_policy(program, precision)
    model = prepare(example.apply, example.params, policy, program=program)
    expected = jax.eval_shape(example.apply, example.params, *example.inputs)
    found = jax.eval_shape(model, model.params, *example.inputs)
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    for mine, other in zip(leaves(found), leaves(expected), strict=True):
        assert (mine.shape, mine.dtype, mine.weak_type) == (other.shape, other.dtype, other.weak_type)
    outputs = jax.jit(model)(model.params, *example.inputs)
    for mine, other in zip(leaves(outputs), leaves(reference), strict=True):
        if jnp.issubdtype(other.dtype, jnp.floating):
            a, b = as_numpy(mine).astype(float), as_numpy(other).astype(float)
            bound = max(BOUNDS[precision.weights.name], BOUNDS[precision.activations.name])
            bound = max(bound, BOUNDS["bf16"]) if other.dtype == jnp.bfloat16 else bound
            assert np.linalg.norm(a - b) <= bound * np.linalg.norm(b)
        else:
            np.testing.assert_array_equal(as_numpy(mine), as_numpy(other))


def test_a_policy_really_changes_the_layers_it_names(example: Example, program: Program) -> None:
    precision = Precision.parse("i8/f32/f32")
    takers = [layer for layer in program.layers if supports(layer, precision) is None]
    model = prepare(example.apply, example.params, uniform_policy(program, precision), program=program)
    packed = model.params["layers"]
    assert {name.split("#")[0] for name in packed} == {layer.name for layer in takers}
    assert all(part["weight"].dtype == jnp.int8 for part in packed.values())


def test_names_do_not_depend_on_the_batch(example: Example, program: Program) -> None:
    doubled = jax.tree_util.tree_map(
        lambda x: np.concatenate([x, x]) if getattr(x, "ndim", 0) >= 2 else x, example.inputs
    )
    larger = capture(example.apply, example.params, doubled)
    assert [(layer.name, layer.kind) for layer in larger.layers] == [
        (layer.name, layer.kind) for layer in program.layers
    ]


def test_capturing_twice_gives_the_same_program(example: Example, program: Program) -> None:
    again = capture(example.apply, example.params, example.inputs)
    assert again.layers == program.layers
    assert again.fingerprint == program.fingerprint

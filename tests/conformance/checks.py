"""What must hold for every program and every policy, each as one function; the tests call them with their own programs."""

import collections
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import Precision
from tests.programs import Example
from tuner.program import Program, capture, original_policy, prepare, uniform_policy

# Relative error allowed for a whole small network: a few roundings of each format, in units of its last place.
BOUNDS = {"f32": 1e-5, "bf16": 0.05, "f16": 0.01, "i8": 0.12}
# Outputs under this key depend on no layer: they are the same to the bit in every precision.
EXACT = "exact"


def capture_example(example: Example) -> Program:
    return capture(example.apply, example.params, example.inputs)


def run_jitted(example: Example) -> Any:
    """What the user's own program gives."""
    return jax.jit(example.apply)(example.params, *example.inputs)


def leaves(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(tree)


def as_numpy(value: Any) -> np.ndarray:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)


def operation_counts(compiled: Any) -> collections.Counter[str]:
    """Operations of the optimized program; arguments are none: a parameter that nothing reads is not handed to ours."""
    return collections.Counter(re.findall(r"= \S+ (?!parameter)([a-z\-]+)\(", compiled.as_text()))


def layers_are_found(example: Example, program: Program) -> None:
    assert tuple((layer.name, layer.kind) for layer in program.layers) == example.layers


def all_original_is_identical(example: Example, program: Program) -> None:
    """To the bit, with the operations of the user's own program, nothing more."""
    model = prepare(example.apply, example.params, original_policy(program), program=program)
    theirs = jax.jit(example.apply).lower(example.params, *example.inputs).compile()
    ours = jax.jit(model).lower(model.params, *example.inputs).compile()
    assert operation_counts(ours) == operation_counts(theirs)
    expected, found = theirs(example.params, *example.inputs), ours(model.params, *example.inputs)
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    for mine, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_array_equal(as_numpy(mine), as_numpy(other))


def all_original_runs_without_jit(example: Example, program: Program) -> None:
    model = prepare(example.apply, example.params, original_policy(program), program=program)
    expected, found = example.apply(example.params, *example.inputs), model(model.params, *example.inputs)
    for mine, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_allclose(as_numpy(mine).astype(float), as_numpy(other).astype(float), rtol=2e-2, atol=1e-4)


def outputs_are_kept(example: Example, program: Program, reference: Any, text: str) -> None:
    """In a uniform precision: structure, shapes, dtypes, weak types and effects as written; values close, or equal."""
    precision = Precision.parse(text)
    model = prepare(example.apply, example.params, uniform_policy(program, precision), program=program)
    theirs, expected = jax.make_jaxpr(example.apply, return_shape=True)(example.params, *example.inputs)
    ours, found = jax.make_jaxpr(model, return_shape=True)(model.params, *example.inputs)
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    for mine, other in zip(leaves(found), leaves(expected), strict=True):
        assert (mine.shape, mine.dtype, mine.weak_type) == (other.shape, other.dtype, other.weak_type)
    assert set(map(str, ours.effects)) == set(map(str, theirs.effects))
    outputs = jax.jit(model)(model.params, *example.inputs)
    named = jax.tree_util.tree_flatten_with_path(reference)[0]
    for mine, (path, other) in zip(leaves(outputs), named, strict=True):
        if jnp.issubdtype(other.dtype, jnp.floating) and EXACT not in jax.tree_util.keystr(path):
            is_close(as_numpy(mine), as_numpy(other), precision)
        else:
            np.testing.assert_array_equal(as_numpy(mine), as_numpy(other))


def checking_changes_nothing(example: Example, program: Program, reference: Any) -> None:
    """A model that checks itself has the types of one that does not, and finds nothing in a healthy program."""
    policy = uniform_policy(program, Precision.parse("f32/f32/f32"))
    model = prepare(example.apply, example.params, policy, program=program, check="finite")
    plain = prepare(example.apply, example.params, policy, program=program)
    traced = [jax.make_jaxpr(one, return_shape=True)(one.params, *example.inputs)[1] for one in (model, plain)]
    for mine, other in zip(*map(leaves, traced), strict=True):
        assert (mine.shape, mine.dtype, mine.weak_type) == (other.shape, other.dtype, other.weak_type)
    for mine, other in zip(leaves(model(model.params, *example.inputs)), leaves(reference), strict=True):
        np.testing.assert_allclose(as_numpy(mine).astype(float), as_numpy(other).astype(float), rtol=1e-3, atol=1e-4)


def is_close(found: np.ndarray, expected: np.ndarray, precision: Precision) -> None:
    formats = [precision.weights.name, precision.activations.name, *_HALVES.get(expected.dtype.name, ())]
    a, b = found.astype(float), expected.astype(float)
    assert np.isfinite(a).all()
    assert np.linalg.norm(a - b) <= max(BOUNDS[name] for name in formats) * np.linalg.norm(b)


# The program's own format bounds how close its outputs can be.
_HALVES = {"bfloat16": ("bf16",), "float16": ("f16",)}


def names_do_not_depend_on_the_batch(example: Example, program: Program) -> None:
    doubled = jax.tree_util.tree_map(
        lambda x: np.concatenate([x, x]) if getattr(x, "ndim", 0) >= 2 else x, example.inputs
    )
    larger = capture(example.apply, example.params, doubled)
    assert [(layer.name, layer.kind) for layer in larger.layers] == [
        (layer.name, layer.kind) for layer in program.layers
    ]

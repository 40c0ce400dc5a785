import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tuner.program import capture
from tuner.program.affine import find_affines, fold
from tuner.program.expression import evaluate

rng = np.random.default_rng(0)
PARAMS = {
    "w": rng.normal(size=(6, 4)).astype(np.float32),
    "heads": rng.normal(size=(6, 2, 3)).astype(np.float32),
    "kernel": rng.normal(size=(3, 3, 6, 4)).astype(np.float32),
    "mean": rng.normal(size=4).astype(np.float32),
    "var": rng.uniform(0.5, 2, size=4).astype(np.float32),
    "gamma": rng.normal(size=4).astype(np.float32),
    "beta": rng.normal(size=4).astype(np.float32),
    "per_head": rng.normal(size=(2, 3)).astype(np.float32),
}
ROWS = rng.normal(size=(5, 6)).astype(np.float32)
IMAGES = rng.normal(size=(2, 5, 5, 6)).astype(np.float32)


def convolve(p, x):
    return jax.lax.conv_general_dilated(x, p["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def normed(p, y):
    return (y - p["mean"]) * (jax.lax.rsqrt(p["var"] + 1e-3) * p["gamma"]) + p["beta"]


FOLDED = {
    "a norm after a convolution": (lambda p, x: jax.nn.relu(normed(p, convolve(p, x))), IMAGES, 3),
    "a norm that divides": (
        lambda p, x: (convolve(p, x) - p["mean"]) / jnp.sqrt(p["var"]) * p["gamma"] + p["beta"],
        IMAGES,
        4,
    ),
    "a norm after a product": (lambda p, x: jnp.tanh(normed(p, x @ p["w"])), ROWS, 3),
    "the weight on the left": (lambda p, x: p["w"].T @ x.T * p["gamma"][:, None] + p["beta"][:, None], ROWS, 2),
    "heads": (lambda p, x: jnp.einsum("bi,ihd->bhd", x, p["heads"]) * p["per_head"] + p["per_head"], ROWS, 2),
    "a number": (lambda p, x: 3.0 - (x @ p["w"]) * 2.0, ROWS, 2),
    "a broadcast of the user's own": (
        lambda p, x: (x @ p["w"]) * jnp.broadcast_to(p["gamma"], (5, 4)) + jnp.broadcast_to(p["beta"], (5, 4)),
        ROWS,
        2,
    ),
}


@pytest.mark.parametrize("name", FOLDED)
def test_what_follows_is_one_scale_and_one_offset(name):
    apply, inputs, count = FOLDED[name]
    program = capture(apply, PARAMS, (inputs,))
    (affine,) = find_affines(program.steps, program.outputs).values()
    assert (len(affine.steps), affine.pays) == (count, True)
    leaves, memo = jax.tree.leaves(PARAMS), {}
    scale, offset = affine.scale_and_offset(lambda expression: evaluate(expression, leaves, memo))
    site = affine.site
    weight = evaluate(site.weight, leaves, memo)
    operands = [jnp.asarray(inputs), jnp.asarray(inputs)]
    if name == "the weight on the left":
        operands = [None, jnp.asarray(inputs).T]
    run = lambda weight: site.eqn.primitive.bind(
        *(weight if i == site.weight_operand else operands[i] for i in (0, 1)), **site.eqn.params
    )
    expected = run(weight)
    for step, value, first in zip(affine.steps, affine.values, affine.first, strict=True):
        value = jnp.asarray(evaluate(value, leaves, memo))
        expected = step.eqn.primitive.bind(*((expected, value) if first else (value, expected)), **step.eqn.params)
    np.testing.assert_allclose(run(weight * scale) + offset, expected, rtol=1e-4, atol=1e-4)


NOT_FOLDED = {
    "read twice": lambda p, x: (y := x @ p["w"]) * p["gamma"] + y,
    "handed out": lambda p, x: ((y := x @ p["w"]), y * p["gamma"]),
    "by an activation": lambda p, x: (x @ p["w"]) * x[:, :4],
    "along the rows": lambda p, x: (x @ p["w"]) * p["gamma"].mean() ** jnp.arange(5.0)[:, None],
    "a number over it": lambda p, x: 1.0 / (x @ p["w"]),
    "in another shape": lambda p, x: (x[:1] @ p["w"]) * p["kernel"][0, 0],
    "in another dtype": lambda p, x: (x @ p["w"]).astype(jnp.bfloat16) * p["gamma"].astype(jnp.bfloat16),
    "no weight": lambda p, x: (x @ x.T) * 2.0,
}


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_what_is_not_per_output_channel_or_read_elsewhere_is_left_alone(name):
    program = capture(NOT_FOLDED[name], PARAMS, (ROWS,))
    assert find_affines(program.steps, program.outputs) == {}


def test_a_bias_alone_does_not_pay():
    program = capture(lambda p, x: x @ p["w"] + p["beta"], PARAMS, (ROWS,))
    (affine,) = find_affines(program.steps, program.outputs).values()
    assert not affine.pays


def test_inside_a_scan_too_and_folding_leaves_the_operations_out():
    layers = {"w": np.ones((2, 6, 6), np.float32), "g": np.ones((2, 6), np.float32)}
    layer = lambda x, p: (jnp.tanh(x @ p["w"] * p["g"] + 1.0), None)
    program = capture(lambda p, x: jax.lax.scan(layer, x, p)[0], layers, (ROWS,))
    found = find_affines(program.steps, program.outputs)
    (affine,) = found.values()
    assert len(affine.steps) == 2
    count = lambda steps: sum(1 + sum(count(body.steps) for body in step.bodies) for step in steps)
    assert count(fold(program.steps, found)) == count(program.steps) - 2
    assert fold(program.steps, {}) == program.steps

"""Expressions: recipes for what depends on parameters alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.programs import normal
from tuner.program.capture import capture


def weight_of(apply: Any, params: Any, x: Any) -> Any:
    program = capture(apply, params, (x,))
    return [site.weight for sites in program.sites for site in sites if site.weight is not None]


def test_a_chain_longer_than_pythons_stack_is_evaluated() -> None:
    from tuner.program.expression import evaluate

    def apply(params: Any, x: Any) -> Any:
        w = params
        for _ in range(1500):
            w = w + 1.0
        return x @ w

    (weight,) = weight_of(apply, np.zeros((2, 2), np.float32), np.ones((1, 2), np.float32))
    np.testing.assert_array_equal(evaluate(weight, [jnp.zeros((2, 2))], {}), np.full((2, 2), 1500.0))


def test_a_shared_part_is_computed_once() -> None:
    from tuner.program.expression import evaluate

    def apply(params: Any, x: Any) -> Any:
        shared = jnp.sin(params)
        return x @ (shared + shared), x @ (shared * 2.0)

    first, second = weight_of(apply, normal(3, 3), normal(2, 3))
    memo: dict[int, Any] = {}
    evaluate(first, [normal(3, 3)], memo)
    after_first = len(memo)
    evaluate(second, [normal(3, 3)], memo)
    assert len(memo) == after_first + 1  # only the product; the sine is known


def test_a_matrix_and_its_transpose_are_the_same_weight_and_slices_are_not() -> None:
    from tuner.program.expression import weight_key

    def apply(params: Any, x: Any) -> Any:
        return x @ params["w"] + x @ params["w"].T + x @ params["s"][0] + x @ params["s"][1]

    keys = [weight_key(w) for w in weight_of(apply, {"w": normal(4, 4), "s": normal(2, 4, 4)}, normal(2, 4))]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_part_of_a_parameter_counts_as_that_part() -> None:
    def apply(params: Any, x: Any) -> Any:
        first, second = jnp.split(params["two"], [2], axis=1)
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w[0].T), None), x, params["stack"])
        return h @ first, h @ second, h @ params["stack"][1, 1], h @ (params["two"][:, :2] * params["gain"])

    params = {"gain": normal(2), "stack": normal(3, 2, 4, 4), "two": normal(4, 6)}
    layers = capture(apply, params, (normal(2, 4),)).layers
    assert {layer.name: layer.params for layer in layers if layer.params} == {
        "stack/0": 3 * 16,
        "two/0": 4 * 2,
        "two/1": 4 * 4,
        "stack/1": 16,
        "{gain,two}": 2 + 4 * 6,  # what is computed with is not followed
    }


def test_random_weights_of_a_fixed_key_are_constants_to_the_program() -> None:
    def apply(params: Any, x: Any) -> Any:
        return x @ (params * jax.random.normal(jax.random.key(0), params.shape))

    program = capture(apply, normal(3, 3), (normal(2, 3),))
    assert [layer.name for layer in program.layers] == ["input", "params"]
    assert all(step.eqn.primitive.name != "random_bits" for step in program.steps)

"""A program's inputs as text and back."""

import jax
import jax.numpy as jnp
import pytest

from tuner.errors import PolicyError
from tuner.program.input_specs import specs_to_text, text_to_specs


def spec(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


def test_nested_inputs_come_back_as_they_were() -> None:
    tree = (spec(2, 3), {"ids": spec(4, dtype="int32"), "none": None}, [spec(dtype="bfloat16")])
    assert text_to_specs(specs_to_text(tree)) == tree


def test_what_json_cannot_say_is_left_out() -> None:
    assert specs_to_text((jax.random.key(0),)) == ""


@pytest.mark.parametrize("text", ["{", "[1]", '{"shape": [1]}', '{"shape": [1], "dtype": "float99"}', "3"])
def test_damaged_text_is_a_policy_error(text: str) -> None:
    with pytest.raises(PolicyError, match="cannot be read; export the policy again"):
        text_to_specs(text)


def test_no_text_asks_for_inputs() -> None:
    with pytest.raises(PolicyError, match="pass `inputs="):
        text_to_specs("")

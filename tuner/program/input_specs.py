"""The inputs a program was captured with, as text and back: `prepare` can then trace a policy's program without data."""

import json
from typing import Any

import jax
import jax.numpy as jnp

from tuner.errors import PolicyError


def specs_to_text(specs: Any) -> str:
    """JSON of a tree of shapes and dtypes; empty when the tree holds something that JSON cannot say."""
    try:
        return json.dumps(_to_json(specs), separators=(",", ":"))
    except TypeError:
        return ""


def text_to_specs(text: str) -> Any:
    """The tree of `jax.ShapeDtypeStruct` that `specs_to_text` wrote.

    Raises:
        PolicyError: the text is empty or no such tree.
    """
    if not text:
        raise PolicyError(
            "the policy does not say which inputs its program takes; pass `inputs=` with examples or shapes"
        )
    try:
        return _from_json(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PolicyError(f"the policy's inputs {text[:80]!r} cannot be read; export the policy again") from error


def _to_json(tree: Any) -> Any:
    if tree is None:
        return None
    if type(tree) is tuple:
        return {"tuple": [_to_json(item) for item in tree]}
    if type(tree) is list:
        return {"list": [_to_json(item) for item in tree]}
    if type(tree) is dict and all(isinstance(key, str) for key in tree):
        return {"dict": {key: _to_json(item) for key, item in tree.items()}}
    shape, dtype = getattr(tree, "shape", None), getattr(tree, "dtype", None)
    if shape is None or dtype is None or jnp.issubdtype(dtype, jax.dtypes.extended):
        raise TypeError(f"{type(tree).__name__} has no JSON form")
    return {"shape": [int(size) for size in shape], "dtype": str(dtype)}


def _from_json(value: Any) -> Any:
    if value is None:
        return None
    if "tuple" in value:
        return tuple(_from_json(item) for item in value["tuple"])
    if "list" in value:
        return [_from_json(item) for item in value["list"]]
    if "dict" in value:
        return {key: _from_json(item) for key, item in value["dict"].items()}
    return jax.ShapeDtypeStruct(tuple(value["shape"]), jnp.dtype(value["dtype"]))

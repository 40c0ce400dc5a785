"""Shapes: the calls that a task is timed with, where that is more than one kind, such as prefill and decode."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tuner.data import PyTree, Split, describe, positional
from tuner.errors import InputError
from tuner.fingerprint import hash_text, hash_tree


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Shape:
    """One kind of call: so many examples, or inputs of its own, and how often it happens.

    Attributes:
        batch_size: so many examples of the search split in one call.
        inputs: instead of that, the inputs of one call: an array or pytree, or a tuple of them.
        weight: how many such calls there are for each call of the others. What a search makes small is the weighted sum
            of the milliseconds.
    """

    batch_size: int | None = None
    inputs: PyTree = None
    weight: float = 1.0

    def call(self, examples: Split) -> tuple[PyTree, ...]:
        """The inputs of one call."""
        if self.batch_size is None:
            inputs: tuple[PyTree, ...] = self.inputs
            return inputs
        return next(examples.batches(self.batch_size))[0]

    def fingerprint(self) -> str:
        """Hex digest of everything that it says."""
        return hash_text(str(self.batch_size), str(self.weight), hash_tree(self.inputs))

    def __repr__(self) -> str:
        what = f"batch_size={self.batch_size}" if self.inputs is None else f"inputs={describe(self.inputs)}"
        return f"Shape({what}, weight={self.weight:g})"


Shapes = Mapping[str, Shape]


def read_shapes(shapes: Any) -> Shapes:
    """Checks what a user gives as the shapes of a task; none where it is timed as it is scored.

    Raises:
        InputError: something cannot be used as given.
    """
    if shapes is None:
        return MappingProxyType({})
    if not isinstance(shapes, Mapping) or not shapes:
        raise InputError(
            f"shapes={shapes!r} is no mapping of names to shapes; give one such as "
            "{'prefill': tuner.Shape(batch_size=16), 'decode': tuner.Shape(inputs=tokens, weight=64)}, or leave it out"
        )
    return MappingProxyType({_checked_name(name): _read(name, shape) for name, shape in shapes.items()})


def weights_text(shapes: Mapping[str, Any]) -> str:
    """`1 x prefill + 64 x decode`, of anything that has weights; empty for none."""
    return " + ".join(f"{shape.weight:g} x {name}" for name, shape in shapes.items())


def shapes_fingerprint(shapes: Shapes) -> str:
    """Hex digest of all of them."""
    return hash_text(*(part for name, shape in shapes.items() for part in (name, shape.fingerprint())))


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"the shape name {name!r} is empty or no text; give a short one, such as 'decode'")
    return name


def _read(name: str, shape: Any) -> Shape:
    if not isinstance(shape, Shape):
        raise InputError(f"shape {name!r} is a {type(shape).__name__}; give tuner.Shape(batch_size=..., weight=...)")
    if (shape.batch_size is None) == (shape.inputs is None):
        given = "neither batch_size nor inputs" if shape.inputs is None else "both batch_size and inputs"
        raise InputError(f"shape {name!r} has {given}; give one of them")
    weight: Any = shape.weight
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise InputError(f"shape {name!r} has weight={weight!r}; give a number above 0, such as calls per request")
    if shape.inputs is not None:
        return replace(shape, inputs=positional(shape.inputs, f"inputs of shape {name!r}"))
    size: Any = shape.batch_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InputError(f"shape {name!r} has batch_size={size!r}; give a whole number of at least 1")
    return shape

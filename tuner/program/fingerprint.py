"""Fingerprint of a program: equal for the same equations, shapes and dtypes, in every process."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tuner.program.expression import Computation, Constant, Expression, Leaf, Result
from tuner.program.steps import Reference, Step

# Printed functions carry their address, which differs from run to run.
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def fingerprint(
    steps: Sequence[Step], input_avals: Sequence[Any], outputs: Sequence[Reference], listing: str = ""
) -> str:
    """Hex SHA-256 of a program's equations, constants, shapes and dtypes; parameter values do not count.

    Args:
        steps: what it runs.
        input_avals: what it takes.
        outputs: where its results are found.
        listing: how its layers are listed, where that is not the usual way.
    """
    writer = _Writer()
    if listing:
        writer.write(listing)
    for aval in input_avals:
        writer.write(str(aval))
    for step in steps:
        writer.equation(step.eqn, step.operands)
        writer.write(str(step.results))
    for output in outputs:
        writer.operand(output)
    return writer.digest.hexdigest()


class _Writer:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._numbers: dict[int, int] = {}  # computations already written, by identity

    def write(self, text: str) -> None:
        self.digest.update(text.encode())
        self.digest.update(b"\n")

    def equation(self, eqn: Any, operands: Sequence[Reference]) -> None:
        for operand in operands:
            self.operand(operand)
        settings = [f"{name}={_ADDRESS.sub('', str(value))}" for name, value in eqn.params.items()]
        avals = [str(variable.aval) for variable in eqn.outvars]
        self.write(f"{eqn.primitive.name} {settings} -> {avals}")

    def operand(self, operand: Reference) -> None:
        if isinstance(operand, int):
            self.write(f"slot {operand}")
        elif isinstance(operand, Leaf):
            self.write(f"leaf {operand.index} {operand.aval}")
        elif isinstance(operand, Constant):
            self.write(_constant_text(operand.value))
        elif isinstance(operand, Result):
            self.computation(operand.computation)
            self.write(f"result {self._numbers[id(operand.computation)]}.{operand.position}")

    def computation(self, computation: Computation) -> None:
        pending = [computation]
        while pending:
            current = pending[-1]
            needed = [
                inner for inner in map(_computation_of, current.operands) if inner and id(inner) not in self._numbers
            ]
            if needed:
                pending.extend(needed)
                continue
            pending.pop()
            if id(current) not in self._numbers:
                self._numbers[id(current)] = len(self._numbers)
                self.equation(current.eqn, current.operands)


def _computation_of(expression: Expression) -> Computation | None:
    return expression.computation if isinstance(expression, Result) else None


def _constant_text(value: Any) -> str:
    aval = jax.typeof(value)
    if jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        value = jax.random.key_data(value)
    return f"constant {aval} {hashlib.sha256(np.asarray(value).tobytes()).hexdigest()}"

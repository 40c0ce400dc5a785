"""The rules of narrow regions, read off a rewritten program's jaxpr without the code that made it.

The lists are those of the specification, spelled as JAX's primitives; they are not the tuner's, so that a change there shows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.extend import core

from tuner import _jax_compat as compat

ARITHMETIC = {"add", "sub", "mul", "max", "min", "neg", "select_n", "clamp", "erf", "erfc", "tanh", "logistic"}
MOVEMENT = {
    *("reshape", "transpose", "broadcast_in_dim", "squeeze", "rev", "pad", "tile", "copy", "name", "stop_gradient"),
    *("slice", "dynamic_slice", "dynamic_update_slice", "gather", "split", "concatenate", "stack", "unstack", "pvary"),
    "sharding_constraint",
}
ALLOWED = ARITHMETIC | MOVEMENT
SENSITIVE = {
    *("exp", "exp2", "expm1", "log", "log1p", "pow", "integer_pow", "square", "sqrt", "rsqrt", "div", "cumsum"),
    *("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce", "argmax", "argmin", "reduce_window_sum"),
    *("reduce_window_max", "cumprod", "cummax", "cumlogsumexp", "sort", "erf_inv"),
}
PRODUCTS = {"dot_general", "conv_general_dilated", "ragged_dot_general"}
CALLS = {"jit", "pjit", "custom_jvp_call", "custom_vjp_call", "closed_call", "remat2", "checkpoint"}


@dataclass(frozen=True, eq=False)
class Operation:
    """One equation of a flattened jaxpr, conversions between formats left out.

    Attributes:
        reads: the operations whose floating results it reads, through conversions.
        read_in: the formats in which it reads floating values.
        formats: the formats of its floating results.
        reads_narrow: some floating operand is 16 bits wide where it was computed, or comes to it so.
    """

    name: str
    scope: str
    reads: tuple["Operation", ...]
    read_in: tuple[str, ...]
    formats: tuple[str, ...]
    reads_narrow: bool

    @property
    def is_of_a_layer(self) -> bool:
        """True for products, and for what a kernel does around one, such as finding scales."""
        return self.name in PRODUCTS or "layer[" in self.scope

    @property
    def is_narrow(self) -> bool:
        return any(map(is_half, self.formats)) and not self.is_of_a_layer

    def __repr__(self) -> str:
        return f"{self.name}[{self.scope}] {' '.join(self.read_in)} -> {' '.join(self.formats)}"


@dataclass(frozen=True)
class _Value:
    """Where a floating value comes from, and the format that it was computed in."""

    writer: Operation | None
    computed_in: str


def is_half(format: str) -> bool:
    return format in ("bfloat16", "float16")


def operations(jaxpr: Any) -> list[Operation]:
    """The operations of a closed jaxpr, called functions inlined."""
    found: list[Operation] = []
    _flatten(jaxpr.jaxpr, [None] * len(jaxpr.jaxpr.invars), "", found)
    return found


def _flatten(jaxpr: Any, given: list[_Value | None], scope: str, found: list[Operation]) -> list[_Value | None]:
    env: dict[Any, _Value | None] = dict(zip(jaxpr.invars, given, strict=True))
    read = lambda atom: None if isinstance(atom, core.Literal) else env.get(atom)
    for eqn in jaxpr.eqns:
        values, name = [read(atom) for atom in eqn.invars], eqn.primitive.name
        inner_scope = "/".join(filter(None, (scope, compat.scope_text(compat.scope_of(eqn)))))
        if name in CALLS:
            (held,) = [h for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if (h := eqn.params.get(key)) is not None]
            env.update(
                zip(eqn.outvars, _flatten(getattr(held, "jaxpr", held), values, inner_scope, found), strict=True)
            )
        elif name == "convert_element_type" and all(map(_is_float, (eqn.invars[0], eqn.outvars[0]))):
            env[eqn.outvars[0]] = values[0] or _Value(None, str(eqn.invars[0].aval.dtype))
        else:
            operation = Operation(
                name=name,
                scope=inner_scope,
                reads=tuple(value.writer for value in values if value and value.writer),
                read_in=tuple(str(atom.aval.dtype) for atom in eqn.invars if _is_float(atom)),
                formats=tuple(str(v.aval.dtype) for v in eqn.outvars if _is_float(v)),
                reads_narrow=any(value is not None and is_half(value.computed_in) for value in values),
            )
            found.append(operation)
            env.update({v: _Value(operation, str(v.aval.dtype)) for v in eqn.outvars if _is_float(v)})
    return [read(atom) for atom in jaxpr.outvars]


def _is_float(atom: Any) -> bool:
    return bool(jnp.issubdtype(getattr(atom.aval, "dtype", jnp.int32), jnp.floating))


def sensitive_of(found: list[Operation]) -> set[Operation]:
    """The sensitive operations: in themselves, as what feeds one in its scope, or as what reads what one has computed."""
    readers: dict[Operation, list[Operation]] = {}
    for operation in found:
        for writer in operation.reads:
            readers.setdefault(writer, []).append(operation)
    itself = (operation for operation in found if operation.name in SENSITIVE and operation.read_in)
    sensitive = {operation for operation in itself if not operation.is_of_a_layer}
    pending = list(sensitive)
    while pending:
        current = pending.pop()
        feeding = (writer for writer in current.reads if writer.scope == current.scope)
        for other in (*feeding, *readers.get(current, ())):
            if other not in sensitive and not other.is_of_a_layer:
                sensitive.add(other)
                pending.append(other)
    return sensitive


def violations(found: list[Operation]) -> Iterator[str]:
    """What breaks the rules, one sentence each."""
    yield from unsound(found)
    sensitive = sensitive_of(found)
    for operation in found:
        could = operation.name in ALLOWED and operation.formats and operation.reads_narrow
        if could and not operation.is_of_a_layer and operation not in sensitive and not operation.is_narrow:
            yield f"{operation} reads a narrow value, is on the closed list and runs wide"


def unsound(found: list[Operation]) -> Iterator[str]:
    """What runs in 16 bits and must not."""
    sensitive = sensitive_of(found)
    for operation in found:
        if operation.is_narrow and operation.name not in ALLOWED:
            yield f"{operation} is not on the closed list and runs in 16 bits"
        if operation in sensitive and (operation.is_narrow or any(map(is_half, operation.read_in))):
            yield f"{operation} is sensitive and runs in 16 bits"


def behind_products(found: list[Operation]) -> list[Operation]:
    """The operations that a product's result reaches, in order."""
    reached: set[Operation] = set()
    for operation in found:
        if operation.name in PRODUCTS or any(writer in reached for writer in operation.reads):
            reached.add(operation)
    return [operation for operation in found if operation in reached and operation.name not in PRODUCTS]

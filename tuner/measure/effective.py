"""Effective precision: what the compiled program really does for each layer, read back from the optimized HLO.

A compiler may widen operands, merge operations or replace them. What cannot be attributed to a layer with certainty is
"unknown", never assumed. XLA keeps the name of the operation that an instruction comes from in its metadata. A product
that was rewritten may have lost it, or go by that of a transpose behind it; then the packed weight that reaches it tells
the layer, or else the relayouts and conversions that the rewrite put around it (they keep the product's own name), on the
side of its users and of its operands. When those disagree it stays unknown. A convolution that runs without one, as shifted
images times numbers, is told by the dtype of its multiplications.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import Precision
from tuner.measure.hlo import Computation, Instruction, Module
from tuner.policy import Policy
from tuner.program import Program, layer_of_op_name, segment_leaders
from tuner.program.layer import EMBEDDING, INPUT
from tuner.program.layer_scope import SHIFTED_PRODUCTS

AS_REQUESTED = "as requested"
UNKNOWN = "unknown"

# Names that XLA and this project give the same format.
_SHORT = {"s8": "i8", "s4": "i4", "u4": "u4", "s16": "i16", "s32": "i32", "f8e4m3fn": "f8_e4m3fn", "f8e5m2": "f8_e5m2"}
_HLO_NAME = {
    "float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16", "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2", "int32": "s32", "int8": "s8", "int4": "s4",
}  # fmt: skip
# What a rewrite of a product puts around it: the values stay the same.
_RELAYOUTS = frozenset({"bitcast", "reshape", "copy", "transpose", "convert", "broadcast", "pad", "slice", "tuple", "get-tuple-element"})  # fmt: skip
_PRODUCT_NAMES = ("dot_general", "conv_general_dilated")
_LIBRARY_CALLS = ("gemm", "matmul", "conv", "dot")
_FARTHEST = 12
# How an argument's metadata names a packed weight: "packed['layers']['encoder/dense']['weight']".
_PACKED_WEIGHT = re.compile(r"\['layers'\]\[(.+)\]\['weight'\]$")

LayerOf = Callable[[str], str | None]
Place = tuple[Computation, Instruction]


@dataclass(frozen=True, slots=True)
class Ran:
    """Dtypes of one operation as it runs, in XLA's names."""

    operands: tuple[str, ...]
    result: str

    def __str__(self) -> str:
        operands = " x ".join(_SHORT.get(dtype, dtype) for dtype in self.operands)
        return operands if not self.result else f"{operands} -> {_SHORT.get(self.result, self.result)}"


def worst_of(found: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What ran at several shapes as one verdict per layer: what differs anywhere, else what is unknown anywhere.

    Args:
        found: name of the shape -> layer name -> verdict.
    """
    layers = next(iter(found.values()))
    return {layer: _worst({name: verdicts[layer] for name, verdicts in found.items()}) for layer in layers}


def _worst(verdicts: Mapping[str, str]) -> str:
    texts = set(verdicts.values())
    if len(texts) == 1:
        return texts.pop()
    different = {name: text for name, text in verdicts.items() if text not in (AS_REQUESTED, UNKNOWN)}
    if not different:
        return UNKNOWN
    return "different: " + ", ".join(f"{text.partition(':')[2].strip()} in {name}" for name, text in different.items())


def effective_in(module: Module, input_specs: Any, program: Program, policy: Policy) -> dict[str, str]:
    """What ran for every layer that a policy does not leave as written, in the program compiled for it.

    Args:
        module: the optimized program.
        input_specs: shape and dtype of the inputs that it takes.
        program: the captured task.
        policy: that it was compiled for.
    """
    assigned = {name: precision for name, precision in policy.precisions.items() if not precision.is_original}
    kinds = {layer.name: layer.kind for layer in program.layers}
    inputs = {name: precision for name, precision in assigned.items() if kinds[name] == INPUT}
    leaders = segment_leaders(program, policy)
    others = {leaders[name]: (kinds[name], precision) for name, precision in assigned.items() if name not in inputs}
    leaves = jax.tree_util.tree_leaves(input_specs)
    given = {
        program.layers[position].name: leaf.dtype
        for position, leaf in zip(program.input_layers, leaves, strict=True)
        if position is not None
    }
    found = effective_inputs(inputs, given)
    if others:
        found |= effective_precisions(module, others)
    return {name: found[leaders[name]] for name in assigned}


def effective_precisions(
    module: Module,
    requested: Mapping[str, tuple[str, Precision]],
    layer_of: LayerOf = layer_of_op_name,
) -> dict[str, str]:
    """Per layer "as requested", "different: <what ran>" or "unknown".

    Args:
        module: the optimized program.
        requested: layer name -> (layer kind, precision) of every layer that is not `original`; no input layers.
        layer_of: the layer that a metadata op name carries.
    """
    products, look_ups = _find(module, layer_of)
    verdicts = {}
    for name, (kind, precision) in requested.items():
        if kind == EMBEDDING:
            wanted = Ran((_table_dtype(precision),), "")
            verdicts[name] = _verdict(look_ups.get(name, []), wanted, any_is_enough=True)
        else:
            operand = _multiplied_in(precision)
            wanted = Ran((operand, operand), _hlo_dtype(precision.accumulate.dtype))
            verdicts[name] = _verdict(products.get(name, []), wanted)
    return verdicts


def effective_inputs(requested: Mapping[str, Precision], given: Mapping[str, np.dtype]) -> dict[str, str]:
    """The same for input layers: the dtype that the executable takes the input in."""
    verdicts = {}
    for name, precision in requested.items():
        ran = Ran((_hlo_dtype(given[name].name),), "") if name in given else None
        verdicts[name] = _verdict([ran] if ran else [], Ran((_hlo_dtype(precision.activations.dtype),), ""))
    return verdicts


def _verdict(ran: list[Ran], wanted: Ran, any_is_enough: bool = False) -> str:
    if not ran:
        return UNKNOWN
    others = sorted({str(one) for one in ran if one != wanted})
    if not others or (any_is_enough and wanted in ran):
        return AS_REQUESTED
    return f"different: {', '.join(others)}"


def _table_dtype(precision: Precision) -> str:
    """The dtype that a look-up reads: i4 lies in bytes, two in each."""
    return "u8" if precision.weights.name == "i4" else _hlo_dtype(precision.weights.dtype)


def _multiplied_in(precision: Precision) -> str:
    """The dtype both operands of a product meet in."""
    weights, activations = precision.weights.dtype, precision.activations.dtype
    if precision.is_weight_only or weights == activations:
        return _hlo_dtype(activations)
    if precision.activations.is_scaled and precision.weights.kind == "float":  # two kinds of f8
        return "f32"
    return _hlo_dtype(np.dtype(jnp.promote_types(weights, activations)).name)


def _hlo_dtype(name: str) -> str:
    return _HLO_NAME.get(name, name)


def _find(module: Module, layer_of: LayerOf) -> tuple[dict[str, list[Ran]], dict[str, list[Ran]]]:
    """What ran for each layer: products, and look-ups."""
    products: dict[str, list[Ran]] = {}
    look_ups: dict[str, list[Ran]] = {}
    elementwise: dict[str, list[Ran]] = {}
    for computation, instruction in module:
        if instruction.opcode == "gather" or instruction.opcode == "dynamic-slice":
            layer = layer_of(instruction.op_name or "")
            if layer is not None:
                look_ups.setdefault(layer, []).append(_look_up(computation, instruction))
        elif _is_product(instruction):
            layer = _attribute(module, computation, instruction, layer_of)
            if layer is not None:
                products.setdefault(layer, []).append(_product(computation, instruction))
        elif instruction.opcode == "multiply" and _is_elementwise_product(instruction.op_name):
            layer = layer_of(instruction.op_name or "")
            if layer is not None:
                elementwise.setdefault(layer, []).append(_product(computation, instruction))
    return {**elementwise, **products}, look_ups


def _is_product(instruction: Instruction) -> bool:
    if instruction.opcode in ("dot", "convolution"):
        return True
    target = (instruction.target or "").lower()
    return instruction.opcode == "custom-call" and any(word in target for word in _LIBRARY_CALLS)


def _is_product_name(op_name: str | None) -> bool:
    return op_name is not None and op_name.endswith(_PRODUCT_NAMES)


def _is_elementwise_product(op_name: str | None) -> bool:
    """True for the multiplications that a product becomes: over an axis of length one, or of shifted images."""
    return _is_product_name(op_name) or (op_name is not None and op_name.endswith(f"/{SHIFTED_PRODUCTS}/mul"))


def _product(computation: Computation, instruction: Instruction) -> Ran:
    operands = [
        computation.instructions[name].dtype for name in instruction.operands[:2] if name in computation.instructions
    ]
    return Ran(tuple(operands), instruction.dtype)


def _look_up(computation: Computation, instruction: Instruction) -> Ran:
    """The dtype the table is read in: a conversion fused with the look-up touches only the rows that are looked up."""
    table = computation.instructions.get(instruction.operands[0])
    while table is not None and table.opcode in _RELAYOUTS and table.operands:
        source = computation.instructions.get(table.operands[0])
        if source is None or (table.opcode != "bitcast" and not computation.callers):
            break  # in the entry computation every instruction writes its whole result
        table = source
    return Ran((table.dtype if table else "",), "")


def _attribute(module: Module, computation: Computation, product: Instruction, layer_of: LayerOf) -> str | None:
    if product.op_name is not None and (_is_product_name(product.op_name) or layer_of(product.op_name) is not None):
        return layer_of(product.op_name)
    behind = list(_upstream(module, computation, product))
    found = {layer for _, place in behind if (layer := _layer_of_weight(place)) is not None}
    if not found:
        found = _layers(behind, layer_of) | _layers(_downstream(module, computation, product), layer_of)
    return found.pop() if len(found) == 1 else None


def _layer_of_weight(instruction: Instruction) -> str | None:
    """The layer whose packed weight this argument of the program is."""
    argument = _PACKED_WEIGHT.search(instruction.op_name or "") if instruction.opcode == "parameter" else None
    # A second copy of a tied weight is called "name#1".
    return re.sub(r"#\d+$", "", ast.literal_eval(argument[1])) if argument else None


def _layers(places: Iterable[Place], layer_of: LayerOf) -> set[str]:
    names = (place.op_name for _, place in places if _is_product_name(place.op_name))
    return {layer for name in names if (layer := layer_of(name or "")) is not None}


def _downstream(module: Module, computation: Computation, start: Instruction) -> Iterator[Place]:
    """Relayouts and conversions that the result goes through, across fusion boundaries; nearest first."""
    pending = [(computation, start, 0)]
    while pending:
        where, instruction, distance = pending.pop(0)
        if distance > _FARTHEST:
            continue
        steps: list[Place] = [(where, user) for user in where.users.get(instruction.name, [])]
        if instruction.is_root:
            for outer, caller in where.callers:
                if caller.opcode == "fusion":
                    pending.append((outer, caller, distance + 1))
        for inside, user in steps:
            for place in _entered(module, inside, user, instruction.name):
                if place[1].opcode in _RELAYOUTS:
                    yield place
                passes_on = place[1].opcode in _RELAYOUTS or place[1].opcode == "parameter"
                # A name ends the search here: what comes later may belong to what reads the result.
                if passes_on and not _is_product_name(place[1].op_name):
                    pending.append((*place, distance + 1))


def _entered(module: Module, where: Computation, user: Instruction, operand: str) -> Iterator[Place]:
    """The user itself, or for a fusion the parameters inside it that stand for the operand."""
    called = module.computations.get(user.calls[0]) if user.opcode == "fusion" and user.calls else None
    if called is None:
        yield where, user
        return
    for position, name in enumerate(user.operands):
        parameter = called.parameter(position)
        if name == operand and parameter is not None:
            yield called, parameter


def _upstream(module: Module, computation: Computation, start: Instruction) -> Iterator[Place]:
    """Relayouts and conversions that the operands come from, across fusion boundaries; nearest first."""
    pending = [(computation, start, 0)]
    while pending:
        where, instruction, distance = pending.pop(0)
        if distance > _FARTHEST:
            continue
        for source in _sources(module, where, instruction):
            if source[1].opcode in _RELAYOUTS:
                yield source
                if not _is_product_name(source[1].op_name):
                    pending.append((*source, distance + 1))
            elif source[1].opcode == "parameter":
                yield source
                pending.append((*source, distance + 1))


def _sources(module: Module, where: Computation, instruction: Instruction) -> Iterator[Place]:
    if instruction.opcode == "parameter":
        for outer, caller in where.callers:
            if caller.opcode == "fusion" and instruction.parameter is not None:
                yield from _produced(module, outer, caller.operands[instruction.parameter])
        return
    for name in instruction.operands:
        yield from _produced(module, where, name)


def _produced(module: Module, where: Computation, name: str) -> Iterator[Place]:
    """The instruction of that name, or for a fusion the root inside it."""
    instruction = where.instructions.get(name)
    if instruction is None:
        return
    called = (
        module.computations.get(instruction.calls[0]) if instruction.opcode == "fusion" and instruction.calls else None
    )
    root = called.root if called is not None else None
    if called is not None and root is not None:
        yield called, root
    else:
        yield where, instruction

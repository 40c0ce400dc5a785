"""Expression: a value that depends on parameters and constants alone, kept as a recipe until something needs it.

Capture builds expressions instead of running equations whose operands are all known without the inputs. A layer's weight is
such an expression: `prepare` evaluates it once, and the rewritten function never computes it again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner import _jax_compat as compat

# Operations that say on which devices a value lies; it stays the same.
PLACEMENT = frozenset({"reshard", "sharding_constraint"})

# Operations that move a value without choosing a part of it or changing a number: they do not make another weight.
MOVEMENT = PLACEMENT | frozenset(
    {"transpose", "reshape", "broadcast_in_dim", "squeeze", "expand_dims", "convert_element_type", "copy", "copy_p"}
)

# Operations that choose a part of a value: equal parts of one parameter are the same weight.
SELECTION = frozenset({"slice", "dynamic_slice", "split", "gather"})


@dataclass(frozen=True, eq=False, slots=True)
class Leaf:
    """One parameter leaf, by its position in the flattened parameters."""

    index: int
    aval: Any


@dataclass(frozen=True, eq=False, slots=True)
class Constant:
    """A literal, or an array that the function closes over."""

    value: Any
    aval: Any


@dataclass(frozen=True, eq=False, slots=True)
class Shards:
    """How a mesh splits a value between the devices that run a `shard_map` body."""

    mesh: Any
    spec: Any
    manual_axes: frozenset[Any]

    @property
    def axes(self) -> tuple[Any, ...]:
        """The mesh axes that the value is split over."""
        names: dict[Any, None] = {}
        for entry in self.spec:
            for name in entry if isinstance(entry, tuple) else (entry,):
                names.update({} if name is None else {name: None})
        return tuple(names)


@dataclass(frozen=True, eq=False, slots=True)
class Slice:
    """What one iteration of a scan, or one device of a `shard_map`, sees of a value that depends on parameters alone."""

    stack: "Expression"
    loop: int  # the number of the body that it is seen in
    aval: Any
    shards: Shards | None = None  # None: a scan's slice along the first axis


@dataclass(frozen=True, eq=False, slots=True)
class Computation:
    """One equation whose operands are all expressions."""

    eqn: Any
    scope: Any
    operands: tuple["Expression", ...]
    # The number of the body that the equation stands in, 0 outside of all: there it runs, if it must.
    body: int


@dataclass(frozen=True, eq=False, slots=True)
class Result:
    """One output of a computation."""

    computation: Computation
    position: int
    aval: Any
    sources: frozenset[int]


Expression = Leaf | Constant | Slice | Result


def sources(expression: Expression) -> frozenset[int]:
    """The parameter leaves that the value depends on."""
    if isinstance(expression, Leaf):
        return frozenset((expression.index,))
    if isinstance(expression, Slice):
        return sources(expression.stack)
    return expression.sources if isinstance(expression, Result) else frozenset()


def computed(eqn: Any, scope: Any, operands: tuple[Expression, ...], body: int = 0) -> list[Expression]:
    """One expression per output of the equation."""
    computation = Computation(eqn, scope, operands, body)
    origin = frozenset[int]().union(*map(sources, operands))
    return [Result(computation, i, variable.aval, origin) for i, variable in enumerate(eqn.outvars)]


def evaluate(expression: Expression, leaves: Sequence[Any], memo: dict[int, list[Any]]) -> Any:
    """The value of an expression, given the parameter leaves.

    Args:
        expression: what to compute.
        leaves: parameter values by position; only those among `sources(expression)` are read.
        memo: results of computations already run, and the current slices, by identity; shared by the expressions of
            one body.
    """
    if isinstance(expression, Leaf):
        return leaves[expression.index]
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Slice):
        return memo[id(expression)][0]
    pending = [expression.computation]
    while pending:  # a loop, not recursion: chains can be longer than Python's stack
        computation = pending[-1]
        needed = [
            operand.computation
            for operand in computation.operands
            if isinstance(operand, Result) and id(operand.computation) not in memo
        ]
        if needed:
            pending.extend(needed)
            continue
        pending.pop()
        if id(computation) not in memo:
            values = [evaluate(operand, leaves, memo) for operand in computation.operands]
            memo[id(computation)] = compat.bind_within(computation.eqn, computation.scope, values)
    return memo[id(expression.computation)][expression.position]


def weight_key(expression: Expression, *, exact: bool = False) -> tuple[Any, ...]:
    """Equal for two expressions that hold the same weight, however transposed or reshaped.

    Two slices of one parameter have different keys, a matrix and its transpose have the same. A weight that is computed
    twice counts as two.

    Args:
        expression: the weight.
        exact: equal only for the same values in the same places.
    """
    while not exact and isinstance(expression, Result) and expression.computation.eqn.primitive.name in MOVEMENT:
        expression = expression.computation.operands[0]
    if isinstance(expression, Leaf):
        return ("leaf", expression.index)
    if isinstance(expression, Slice):
        split = exact and expression.shards is not None  # two scans over a stack read the same, two meshes may not
        place = (expression.loop, str(expression.shards)) if split else ()
        return ("slice", weight_key(expression.stack, exact=exact), *place)
    if isinstance(expression, Constant):
        small = getattr(expression.value, "size", 1) <= 16
        return ("constant", str(expression.value) if small else id(expression.value))
    computation = expression.computation
    name = computation.eqn.primitive.name
    if name not in SELECTION and not (exact and name in MOVEMENT):
        return ("computed", id(computation), expression.position)
    settings = tuple((name, str(value)) for name, value in sorted(computation.eqn.params.items()))
    operands = (weight_key(operand, exact=exact) for operand in computation.operands)
    return ("part", name if exact else "", settings, expression.position, *operands)


def share_of_sources(expression: Expression) -> float:
    """The share of its parameters that a value is made of: of a part of one parameter its size, else all."""
    share = 1.0
    while not isinstance(expression, Leaf | Constant):
        if isinstance(expression, Slice):  # a weight in a loop stands for those of all iterations
            expression = expression.stack
            continue
        name, operands = expression.computation.eqn.primitive.name, expression.computation.operands
        if name in SELECTION:
            share *= min(1.0, expression.aval.size / max(operands[0].aval.size, 1))
        elif name not in MOVEMENT:
            return share
        expression = operands[0]
    return share


def untransposed(expression: Expression) -> tuple[Expression, tuple[int, ...]]:
    """What the value is a transpose of, and for each of its axes the axis there."""
    axes = tuple(range(expression.aval.ndim))
    while isinstance(expression, Result) and expression.computation.eqn.primitive.name == "transpose":
        permutation = expression.computation.eqn.params["permutation"]
        axes = tuple(permutation[axis] for axis in axes)
        (expression,) = expression.computation.operands
    return expression, axes


def repeated_axes(expression: Expression) -> tuple[int, ...]:
    """The axes of a value along which it is one part repeated, as far as its last movements tell."""
    axes = list(range(expression.aval.ndim))  # positions of the outermost axes in what is looked at, -1 once repeated
    repeated: set[int] = set()
    while isinstance(expression, Result):
        eqn = expression.computation.eqn
        if eqn.primitive.name == "transpose":
            axes = [axis if axis < 0 else eqn.params["permutation"][axis] for axis in axes]
        elif eqn.primitive.name == "broadcast_in_dim":
            before, kept = expression.computation.operands[0].aval.shape, eqn.params["broadcast_dimensions"]
            places = {axis: place for place, axis in enumerate(kept) if before[place] == eqn.params["shape"][axis]}
            repeated.update(place for place, axis in enumerate(axes) if axis >= 0 and axis not in places)
            axes = [places.get(axis, -1) for axis in axes]
        elif eqn.primitive.name not in PLACEMENT | {"convert_element_type", "copy", "copy_p"}:
            break
        expression = expression.computation.operands[0]
    return tuple(sorted(repeated))


def slices_in(expression: Expression) -> list[Slice]:
    """The slices that a value is computed from, each once; those of outer loops through the stacks of inner ones."""
    found: dict[int, Slice] = {}
    seen: set[int] = set()
    pending: list[Expression] = [expression]
    while pending:
        current = pending.pop()
        if isinstance(current, Slice):
            found.setdefault(id(current), current)
            pending.append(current.stack)
        elif isinstance(current, Result) and id(current.computation) not in seen:
            seen.add(id(current.computation))
            pending.extend(current.computation.operands)
    return list(found.values())


def sources_besides(expression: Expression, loops: frozenset[int]) -> frozenset[int]:
    """The parameter leaves that a value depends on otherwise than through slices of these loops."""
    if not loops:
        return sources(expression)
    found: set[int] = set()
    seen: set[int] = set()
    pending = [expression]
    while pending:
        current = pending.pop()
        if isinstance(current, Leaf):
            found.add(current.index)
        elif isinstance(current, Slice) and current.loop not in loops:
            pending.append(current.stack)
        elif isinstance(current, Result) and id(current.computation) not in seen:
            seen.add(id(current.computation))
            pending.extend(current.computation.operands)
    return frozenset(found)


def parts_outside(expression: Expression, bodies: frozenset[int]) -> list[Expression]:
    """The largest parts of a value that are known before any of these bodies is entered."""
    found: list[Expression] = []
    seen: set[int] = set()
    pending = [expression]
    while pending:
        current = pending.pop()
        if isinstance(current, Result) and current.computation.body in bodies:
            if id(current.computation) not in seen:
                seen.add(id(current.computation))
                pending.extend(current.computation.operands)
        elif not (isinstance(current, Slice) and current.loop in bodies):
            found.append(current)
    return found


def split_axes(pieces: Iterable[Slice]) -> tuple[Any, ...]:
    """The mesh axes that any of these shards are split over, each once."""
    return tuple(dict.fromkeys(axis for piece in pieces if piece.shards is not None for axis in piece.shards.axes))

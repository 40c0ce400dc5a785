"""Passing: what a layer with a calibrated scale reads is held in its integers from where it was made.

Rounding to integers by one scale is monotone. So it may be done before whatever keeps the order of numbers or only moves
them, and the result is the same to the bit: `max` and `min` with a number (relu and its like), max-pooling, reshapes. What
lies between two layers is then a quarter as wide. A value that is also added to something, as in a residual block, is read
there from the same integers: that addition is off by half a scale at most.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp

from search_spaces import FORMATS
from search_spaces.quantize import quantize_with
from tuner import _jax_compat as compat
from tuner.program.calls import body_of, follow_inside, run_inside
from tuner.program.kernels.operands import Held
from tuner.program.steps import Reference, Site, Step, readers_by_slot, slots_in

_BOUNDS = frozenset({"max", "min", "clamp"})
_MOVES = frozenset(
    {"reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "rev", "slice", "copy", "copy_p", "name"}
    | {"reduce_window_max", "reduce_max"}
)
_ADDS = frozenset({"add", "sub", "add_any"})
# What is held: other formats are not multiplied as they are.
HELD_FORMAT = "i8"
# Scales that are equal have equal keys; None: the operation has no calibrated integer activations.
Key = Callable[[Site], Any]


@dataclass(frozen=True, eq=False, slots=True)
class Pass:
    """A value held in the integers that an operation reads.

    Attributes:
        slot: the value.
        reader: the operation whose calibrated scale it is held by.
        steps: what runs on the integers between the two.
        producer: the operation that the value comes from, None where it comes from none.
    """

    slot: int
    reader: Site
    steps: tuple[Step, ...]
    producer: Site | None


@dataclass(frozen=True, slots=True)
class Passes:
    """Where values are held in integers.

    Attributes:
        slots: slot -> the operation whose scale it is held by.
        steps: identities of the steps that run on integers.
    """

    slots: Mapping[int, Site] = field(default_factory=dict)
    steps: frozenset[int] = frozenset()

    @classmethod
    def of(cls, chosen: Sequence[Pass]) -> "Passes":
        """Of these values."""
        steps = frozenset(id(step) for one in chosen for step in one.steps)
        return cls({one.slot: one.reader for one in chosen}, steps)


def find_passes(steps: Sequence[Step], outputs: Sequence[Reference], key: Key) -> list[Pass]:
    """What can be held in integers, in these steps and in what they hold; of several readers the first gives the scale.

    Args:
        steps: the steps of a program or of a body.
        outputs: what it hands on.
        key: of an operation, its calibrated scale.
    """
    flow = _Flow(steps, outputs, key)
    found: dict[int, Pass] = {}
    for step in steps:
        for body in step.bodies:
            found.update({one.slot: one for one in find_passes(body.steps, body.outputs, key)})
        one = None if step.site is None or key(step.site) is None else flow.follow(step, step.site)
        if one is not None:
            found.setdefault(one.slot, one)
    return list(found.values())


class _Flow:
    """Who writes and who reads each slot, in one list of steps."""

    def __init__(self, steps: Sequence[Step], outputs: Sequence[Reference], key: Key) -> None:
        self.key = key
        self.writers = {slot: step for step in steps for slot in step.results if slot is not None}
        self.readers = readers_by_slot(steps, outputs)

    def follow(self, step: Step, reader: Site) -> Pass | None:
        """What the operation reads, from as far up as it may be held in integers; None where nothing is gained."""
        slot = step.operands[_activation(reader)]
        if not isinstance(slot, int):
            return None
        chain: list[Step] = []
        while len(self.readers[slot]) == 1:
            before = self._before(slot)
            if before is None:
                break
            chain.append(self.writers[slot])
            slot = before
        writer = self.writers.get(slot)
        if writer is None or writer.bodies or not self._may_hold(slot, chain, reader):
            return None
        others = len(self.readers[slot]) > 1
        moved = any(step.eqn.primitive.name in _MOVES for step in chain)  # all else XLA computes in one pass anyway
        return Pass(slot, reader, tuple(chain[::-1]), self._producer(writer)) if moved or others else None

    def _before(self, slot: int) -> int | None:
        """What the slot was made of, where that keeps the order of numbers; else None."""
        writer = self.writers.get(slot)
        if writer is None or writer.bodies or writer.site is not None or len(writer.results) != 1:
            return None
        varying = list(slots_in(writer.operands))
        keeps = len(varying) == 1 and keeps_order(writer.eqn, [isinstance(o, int) for o in writer.operands])
        return varying[0] if keeps else None

    def _may_hold(self, slot: int, chain: Sequence[Step], reader: Site) -> bool:
        """True where all who read the slot can read the integers of this reader."""
        if len(self.readers[slot]) == 1:
            return True
        wanted = self.key(reader)
        for step in self.readers[slot]:
            if step is None:
                return False
            same = (
                step.site is not None
                and self.key(step.site) == wanted
                and step.operands[_activation(step.site)] == slot
            )
            if not (same or (chain and step is chain[-1]) or step.eqn.primitive.name in _ADDS):
                return False
        return True

    def _producer(self, writer: Step) -> Site | None:
        """The operation that a value comes from: that of its writer, or of what the writer read last."""
        seen: set[int] = set()
        pending = [writer]
        while pending:
            step = pending.pop(0)
            if step.site is not None:
                return step.site
            for slot in slots_in(step.operands):
                before = self.writers.get(slot)
                if before is not None and not before.bodies and id(before) not in seen:
                    seen.add(id(before))
                    pending.append(before)
        return None


def _activation(site: Site) -> int:
    """Which operand of an operation with a weight is not the weight."""
    return 1 if site.weight_operand == 0 else 0


def keeps_order(eqn: Any, held: Sequence[bool]) -> bool:
    """True where an equation, of whose operands some are held in integers, gives the same when it runs on the integers.

    Args:
        eqn: the equation.
        held: for each operand whether it is; the others are numbers.
    """
    return any(_held_results(eqn, list(held)))


def _held_results(eqn: Any, held: list[bool]) -> list[bool]:
    """For each result whether it is held in integers; none where the equation cannot run so."""
    name, none = eqn.primitive.name, [False] * len(eqn.outvars)
    if eqn.effects or not any(held):
        return none
    if name in _MOVES:
        return [True] if held == [True] else none
    if name in _BOUNDS:
        numbers = all(atom.aval.shape == () for atom, one in zip(eqn.invars, held, strict=True) if not one)
        return [numbers and sum(held) == 1]
    body = body_of(eqn)
    if body is None:
        return none
    lost = False

    def follow(inner: Any, inside: list[bool]) -> list[bool]:
        nonlocal lost
        results = _held_results(inner, inside)
        lost = lost or (any(inside) and not any(results))
        return results

    results = follow_inside(body, held, follow)
    return none if lost else results


def run_held(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of an equation that keeps the order, on held operands: numbers are rounded by the same scale."""
    held = next((operand for operand in operands if isinstance(operand, Held)), None)
    if held is None:
        return compat.bind(eqn, list(operands))
    if eqn.primitive.name in _MOVES | _BOUNDS:
        integers = [o.values if isinstance(o, Held) else _rounded(o, held) for o in operands]
        return [replace(held, values=result) for result in compat.bind(eqn, integers)]
    body = body_of(eqn)
    assert body is not None  # nothing else keeps the order
    return run_inside(body, operands, run_held)


def _rounded(number: Any, held: Held) -> Any:
    return quantize_with(jnp.asarray(number, jnp.float32), FORMATS[HELD_FORMAT], held.scale)

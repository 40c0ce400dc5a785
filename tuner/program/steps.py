"""Steps: a traced function as a flat list of equations to run, and the sites among them that carry precision."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.program.expression import Expression, Slice
from tuner.program.placement import Placement

# Where a step finds an operand: a slot number for what depends on the inputs, an expression for what does not.
Reference = int | Expression


@dataclass(frozen=True, slots=True)
class Rows:
    """Some consecutive iterations of a scan: the number of its body, the first, and the one after the last."""

    loop: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False, slots=True)
class Site:
    """One operation of a layer."""

    kind: str
    eqn: Any
    # Which operand is the weight, or None for a product of two activations.
    weight_operand: int | None
    weight: Expression | None
    # Equal for sites that hold the same weight: they make one layer.
    key: tuple[Any, ...]
    scope: Any
    executions: int
    reason: str | None
    # The iterations that it runs in, where its scan is cut into segments.
    rows: Rows | None = None
    # Where the program wants the weight to lie when it reads it.
    placement: Placement | None = None
    # The axes along which the program repeats the weight.
    repeated: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """One function held by a control-flow equation, looked into.

    Attributes:
        number: its own number, from 1.
        arguments: for each input of the function where its steps read it: a slot of its own, an outer slot, or an
            expression.
        own_slots: the arguments that are slots of its own, in order.
        slices: position of an argument -> the slice that it is, for stacked parameters of a scan.
        rows: the iterations that it runs, where a scan is cut into segments.
    """

    number: int
    arguments: tuple[Reference, ...]
    own_slots: tuple[int, ...]
    slices: dict[int, Slice]
    steps: tuple["Step", ...]
    outputs: tuple[Reference, ...]
    rows: Rows | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One equation to run."""

    eqn: Any
    scope: Any
    operands: tuple[Reference, ...]
    results: tuple[int | None, ...]  # slots, None for what is thrown away
    site: Site | None = None
    # What a control-flow equation holds, when there are layers inside.
    bodies: tuple[Body, ...] = ()

    def sites(self) -> Iterator[Site]:
        """The step's own site and those of its bodies, at any depth."""
        if self.site is not None:
            yield self.site
        for body in self.bodies:
            for step in body.steps:
                yield from step.sites()

    def reads(self) -> Iterator[Reference]:
        """What the step reads, its bodies' outer references included."""
        yield from self.operands
        for body in self.bodies:
            yield from body.outputs
            for step in body.steps:
                yield from step.reads()


def bodies_around(steps: Sequence[Step], outside: frozenset[int] = frozenset()) -> dict[int, frozenset[int]]:
    """Identity of every site -> numbers of the bodies that it stands in."""
    found: dict[int, frozenset[int]] = {}
    for step in steps:
        if step.site is not None:
            found[id(step.site)] = outside
        for body in step.bodies:
            found.update(bodies_around(body.steps, outside | {body.number}))
    return found


def slots_in(references: Iterable[Reference]) -> Iterator[int]:
    """The slots among references; what is no slot does not depend on the inputs."""
    return (reference for reference in references if isinstance(reference, int))


def readers_by_slot(steps: Sequence[Step], outputs: Iterable[Reference]) -> defaultdict[int, list[Step | None]]:
    """Slot -> who reads it, once per reading: a step, or None where it is handed on or read by control flow."""
    readers: defaultdict[int, list[Step | None]] = defaultdict(list)
    for step in steps:
        for slot in slots_in(step.reads()):
            readers[slot].append(None if step.bodies else step)
    for slot in slots_in(outputs):
        readers[slot].append(None)
    return readers


def last_uses(steps: Sequence[Step], outputs: Sequence[Reference]) -> list[tuple[int, ...]]:
    """For each step the slots that nothing reads after it."""
    kept = set(slots_in(outputs))
    freed: list[tuple[int, ...]] = []
    for step in reversed(steps):
        here = {*slots_in(step.reads()), *(slot for slot in step.results if slot is not None)} - kept
        kept |= here
        freed.append(tuple(here))
    return freed[::-1]


def segments_in(steps: Sequence[Step]) -> Iterator[Body]:
    """The bodies, at any depth, that run only some iterations of a scan."""
    for step in steps:
        for body in step.bodies:
            if body.rows is not None:
                yield body
            yield from segments_in(body.steps)

"""Plan: which of a program's sites a policy runs through a kernel, and what the rewritten function still reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.policy import Assignment, Policy
from tuner.program import control_flow
from tuner.program.affine import Affine, fold
from tuner.program.expression import Expression, Leaf, parts_outside, slices_in, sources_besides, split_axes
from tuner.program.fusions import affines_of, passes_of
from tuner.program.packing import Packing, packings
from tuner.program.passing import Passes
from tuner.program.program import Program
from tuner.program.regions import Regions, find_regions
from tuner.program.scan_segments import cut
from tuner.program.steps import Body, Reference, Rows, Step, bodies_around, last_uses, segments_in
from tuner.scales import LayerScales


@dataclass(frozen=True, eq=False, slots=True)
class StackRows:
    """The iterations of a stacked parameter that one segment of a scan reads, and what they are called when packed."""

    name: str
    stack: Expression
    rows: Rows


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """What a policy means for a program.

    Attributes:
        steps: what is run: the program's steps, split scans cut into segments.
        leaders: layer -> the layer whose name its operations carry; another one's in a segment of several iterations.
        assignments: identity of a site -> its assignment, for sites that do not stay as written.
        packings: the packed weights.
        slots: identity of a site with a packed weight -> name of that weight.
        affines: identity of a site -> what is folded into it.
        turns: identity of a site -> the permutation of the packed weight's axes that its kernel wants, None for none.
        names: identity of a site -> its layer's name, for all sites.
        input_assignments: one per input leaf.
        needed: the parameter leaves that are read besides the packed weights.
        read_slices: identities of the slices that are read besides the packed weights.
        rows: (identity of a segment of a scan, argument position) -> what it reads there besides the packed weights.
        passes: what is held in the integers of the layer that reads it.
        regions: what is held in 16 bits between layers.
        freed: for each step the slots that nothing reads after it.
        scales: layer -> its calibrated numbers; several where it leads iterations that have their own.
        watched: whether control flow is opened for layers that stay as written, too, so that they can be looked at.
    """

    program: Program
    steps: tuple[Step, ...]
    leaders: Mapping[str, str]
    assignments: Mapping[int, Assignment]
    packings: tuple[Packing, ...]
    slots: Mapping[int, str]
    affines: Mapping[int, Affine]
    turns: Mapping[int, tuple[int, ...] | None]
    names: Mapping[int, str]
    input_assignments: tuple[Assignment, ...]
    needed: frozenset[int]
    read_slices: frozenset[int]
    rows: Mapping[tuple[int, int], "StackRows"]
    passes: Passes
    regions: Regions
    freed: tuple[tuple[int, ...], ...]
    scales: Mapping[str, tuple[LayerScales, ...]]
    watched: bool = False

    def opens(self, step: Step) -> bool:
        """True when some layer inside a control-flow step does not stay as written, or is watched."""
        if self.watched:
            return bool(step.bodies)
        return any(id(site) in self.assignments for body in step.bodies for s in body.steps for site in s.sites())

    def stacked_in(self, body: Body) -> list[str]:
        """Names of the packed weights that are stacked along the iterations of a body."""
        names = {
            self.slots[id(site)]: None
            for step in body.steps
            for site in step.sites()
            if id(site) in self.slots and site.weight is not None
            if any(piece.loop == body.number for piece in slices_in(site.weight))
        }
        return list(names)

    def split_axes(self, body: Body, name: str) -> tuple[Any, ...]:
        """The mesh axes that a packed weight of a `shard_map` body is split over."""
        sites = (site for step in body.steps for site in step.sites() if self.slots.get(id(site)) == name)
        site = next(sites)
        assert site.weight is not None  # it has a slot
        return split_axes(piece for piece in slices_in(site.weight) if piece.loop == body.number)

    def known_before(self, step: Step) -> list[Expression]:
        """What a control-flow step's bodies read that can be computed before it is entered."""
        bodies = frozenset(_numbers(step))
        reads = [e for body in step.bodies for e in reads_of(self, body.steps, body.outputs)]
        return [part for expression in reads for part in parts_outside(expression, bodies)]


def plan(program: Program, policy: Policy, *, watched: bool = False) -> Plan:
    """The plan for a policy; the policy must be for this program."""
    segmented = cut(program, policy)
    assignments: dict[int, Assignment] = {}
    packed: list[Packing] = []
    around = bodies_around(segmented.steps)
    for name, sites, assignment in segmented.layers:
        if assignment.precision.is_original:
            continue
        assignments.update((id(site), assignment) for site in sites)
        packed.extend(packings(name, sites, assignment, around))
    affines = affines_of(policy, segmented, packed, program)
    steps = fold(segmented.steps, affines)
    chosen = [Assignment() if i is None else policy[program.layers[i].name] for i in program.input_layers]
    draft = Plan(
        program=program,
        steps=steps,
        leaders=segmented.leaders,
        assignments=assignments,
        packings=tuple(packed),
        slots={site: packing.name for packing in packed for site in packing.turns},
        affines=affines,
        turns={site: turn for packing in packed for site, turn in packing.turns.items()},
        names={id(site): name for name, sites, _ in segmented.layers for site in sites},
        input_assignments=tuple(chosen),
        needed=frozenset(),
        read_slices=frozenset(),
        rows={},
        passes=Passes.of(passes_of(policy, segmented, steps, program)),
        regions=find_regions(steps, assignments),
        freed=tuple(last_uses(steps, program.outputs)),
        scales=_scales_by_leader(policy, segmented.leaders),
        watched=watched,
    )
    reads = list(reads_of(draft, draft.steps, program.outputs))
    pieces = [piece for expression in reads for piece in slices_in(expression)]
    needed = frozenset(leaf for expression in reads for leaf in sources_besides(expression, segmented.loops))
    rows = _stack_rows(draft) if segmented.loops else {}
    return replace(draft, needed=needed, read_slices=frozenset(map(id, pieces)), rows=rows)


def _scales_by_leader(policy: Policy, leaders: Mapping[str, str]) -> dict[str, tuple[LayerScales, ...]]:
    found: dict[str, tuple[LayerScales, ...]] = {}
    for name, scales in policy.scales:
        found[leaders[name]] = (*found.get(leaders[name], ()), scales)
    return found


def _stack_rows(plan: Plan) -> dict[tuple[int, int], StackRows]:
    """For each segment of a cut scan what it still reads of stacked parameters: its own iterations alone are kept."""
    found = {}
    for body in segments_in(plan.steps):
        reads = reads_of(plan, body.steps, body.outputs)
        read = {id(piece) for expression in reads for piece in slices_in(expression)}
        for position, piece in body.slices.items():
            if body.rows is not None and id(piece) in read:
                name = _stack_name(plan.program, piece.stack, body.number, position)
                found[id(body), position] = StackRows(
                    f"{name}[{body.rows.start}:{body.rows.stop}]", piece.stack, body.rows
                )
    return found


def _stack_name(program: Program, stack: Expression, loop: int, position: int) -> str:
    return program.leaf_paths[stack.index] if isinstance(stack, Leaf) else f"stack {position} of scan {loop}"


def reads_of(plan: Plan, steps: tuple[Step, ...], outputs: tuple[Reference, ...]) -> Iterator[Expression]:
    """The expressions that steps read under a plan, packed weights excepted."""
    for step in steps:
        yield from _step_reads(plan, step)
    yield from (output for output in outputs if not isinstance(output, int))


def _step_reads(plan: Plan, step: Step) -> Iterator[Expression]:
    if not plan.opens(step):
        packed = step.site.weight_operand if step.site is not None and id(step.site) in plan.slots else None
        yield from (o for i, o in enumerate(step.operands) if i != packed and not isinstance(o, int))
        return
    for body in step.bodies:
        yield from reads_of(plan, body.steps, body.outputs)
    yield from (o for o in control_flow.operands_read(step) if not isinstance(o, int))


def _numbers(step: Step) -> Iterator[int]:
    for body in step.bodies:
        yield body.number
        for inner in body.steps:
            yield from _numbers(inner)

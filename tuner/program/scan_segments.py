"""Scan segments: a scan over stacked weights whose iterations take different precisions, cut into runs of equal ones.

With `split_scans` the layers inside such a scan are listed once per iteration, as if the user had written a loop. A policy
then decides how much of the scan remains one: consecutive iterations that take the same assignments stay together, so that
a policy of one precision is still one scan, and one exception in the middle makes three.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.policy import Assignment, Policy
from tuner.program.expression import slices_in
from tuner.program.program import Program
from tuner.program.steps import Body, Rows, Site, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitScan:
    """A scan that may be cut.

    Attributes:
        loop: the number of its body.
        length: its iterations.
    """

    loop: int
    length: int


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Segmented:
    """A program's steps as a policy cuts them.

    Attributes:
        steps: the steps to run.
        layers: (layer name, sites, assignment) for every layer that something runs under its own name: of the layers that
            one segment holds that is the first.
        leaders: layer -> the layer whose name its operations carry.
        loops: numbers of the bodies that are cut.
    """

    steps: tuple[Step, ...]
    layers: tuple[tuple[str, tuple[Site, ...], Assignment], ...]
    leaders: Mapping[str, str]
    loops: frozenset[int] = frozenset()


def find_split_scans(steps: Sequence[Step]) -> dict[int, SplitScan]:
    """Identity of a site -> the scan whose iterations its layer is listed by.

    A scan is split when a weight in it is stacked along its iterations; of scans inside one another the outermost such. A
    weight that is the same in all iterations stays one layer.
    """
    found: dict[int, SplitScan] = {}
    for step in steps:
        for body in step.bodies:
            scan = _split_scan(step, body)
            if scan is None:
                found.update(find_split_scans(body.steps))
                continue
            moving = (site for inner in body.steps for site in inner.sites() if _differs(site, scan.loop))
            found.update((id(site), scan) for site in moving)
    return found


def _split_scan(step: Step, body: Body) -> SplitScan | None:
    if step.eqn.primitive.name != "scan":
        return None
    if any(slices_in(piece.stack) for piece in body.slices.values()):
        return None  # stacks that are themselves slices: of an outer scan, or one device's share of a mesh
    weights = (site.weight for inner in body.steps for site in inner.sites() if site.weight is not None)
    if not any(piece.loop == body.number for weight in weights for piece in slices_in(weight)):
        return None
    return SplitScan(loop=body.number, length=int(step.eqn.params["length"]))


def _differs(site: Site, loop: int) -> bool:
    return site.weight is None or any(piece.loop == loop for piece in slices_in(site.weight))


def cut(program: Program, policy: Policy) -> Segmented:
    """The program's steps, its split scans cut where the policy asks for it."""
    layers = list(zip(program.layers, program.sites, program.iterations, strict=True))
    assigned = dict(policy.assignments)
    if not program.split_loops:
        return Segmented(
            steps=program.steps,
            layers=tuple((layer.name, sites, assigned[layer.name]) for layer, sites, _ in layers),
            leaders={layer.name: layer.name for layer in program.layers},
        )
    scissors = _Scissors(program.split_loops)
    for layer, sites, iteration in layers:
        for site in sites if iteration is not None else ():
            scissors.assignments.setdefault(id(site), []).append(assigned[layer.name])
    steps = scissors.cut(program.steps)
    running: list[tuple[str, tuple[Site, ...], Assignment]] = []
    leaders: dict[str, str] = {}
    first: dict[tuple[int, int], str] = {}
    for layer, sites, iteration in layers:
        here = [piece for site in sites for piece in scissors.pieces_of(site) if _starts(piece, iteration)]
        if here or not sites:
            running.append((layer.name, tuple(here), assigned[layer.name]))
        for site in sites:
            begins = scissors.beginning(site, iteration)
            leader = first.setdefault((id(site), begins), layer.name)
            leaders.setdefault(layer.name, leader)
    return Segmented(
        steps=steps,
        layers=tuple(running),
        leaders={layer.name: leaders.get(layer.name, layer.name) for layer in program.layers},
        loops=frozenset(scissors.loops),
    )


def segment_leaders(program: Program, policy: Policy) -> Mapping[str, str]:
    """Layer -> the layer whose name its operations carry: in a segment of several iterations that of the first."""
    return cut(program, policy).leaders


def _starts(piece: Site, iteration: int | None) -> bool:
    return iteration is None or iteration == (0 if piece.rows is None else piece.rows.start)


class _Scissors:
    """Cuts steps, and remembers what became of the sites."""

    def __init__(self, split: frozenset[int]) -> None:
        self._split = split
        self.assignments: dict[int, list[Assignment]] = {}  # per site that is listed by iteration
        self.loops: set[int] = set()
        self._pieces: dict[int, list[Site]] = {}

    def pieces_of(self, site: Site) -> list[Site]:
        """The sites that run in its place, in order of their iterations."""
        return self._pieces.get(id(site), [site])

    def beginning(self, site: Site, iteration: int | None) -> int:
        """The first iteration of the segment that an iteration of a site is in."""
        starts = [piece.rows.start for piece in self.pieces_of(site) if piece.rows is not None]
        return max((start for start in starts if iteration is not None and start <= iteration), default=0)

    def cut(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """The steps, scans cut where their iterations differ."""
        return tuple(self._cut_step(step) if step.bodies else step for step in steps)

    def _cut_step(self, step: Step) -> Step:
        listed = [self.assignments[id(site)] for site in step.sites() if id(site) in self.assignments]
        if not listed:
            return step
        body = step.bodies[0]
        if body.number not in self._split:
            return replace(step, bodies=tuple(replace(body, steps=self.cut(body.steps)) for body in step.bodies))
        segments = list(_runs(list(zip(*listed, strict=True))))
        if len(segments) == 1:
            return step
        self.loops.add(body.number)
        return replace(step, bodies=tuple(self._piece(body, Rows(body.number, *segment)) for segment in segments))

    def _piece(self, body: Body, rows: Rows) -> Body:
        return replace(body, steps=tuple(self._copy(step, rows) for step in body.steps), rows=rows)

    def _copy(self, step: Step, rows: Rows) -> Step:
        """The same step, as another one: its site may be assigned otherwise than in the next segment."""
        site = step.site
        if site is not None:
            site = replace(site, rows=rows if id(site) in self.assignments else None)
            self._pieces.setdefault(id(step.site), []).append(site)
        inner = (replace(body, steps=tuple(self._copy(s, rows) for s in body.steps)) for body in step.bodies)
        return replace(step, site=site, bodies=tuple(inner))


def _runs(values: Sequence[object]) -> Iterator[tuple[int, int]]:
    """(start, stop) of each run of equal values."""
    start = 0
    for position in range(1, len(values) + 1):
        if position == len(values) or values[position] != values[start]:
            yield start, position
            start = position

"""Fusions: the rewrites across layers that a program allows under a policy, and those that a policy asks for.

They are timed in the whole program only, and named in the policy, one per edge:

    affine LAYER     what the model multiplies the layer's result by, and adds to it, per output channel (batch norm, a
                     learned scale, with a bias) is packed with the layer's weight; one addition is left. The weight is
                     rounded after it was multiplied, so that with the policy's formats the result differs by their
                     rounding, and in `f32/f32/f32` by that of float32.
    pass A > B       what layer B reads with a calibrated scale is held in its integers from where layer A hands it on:
                     through relu, max-pooling and reshapes to the same result to the bit, and where the value is also
                     added to something, as in a residual block, with that addition off by at most half a scale.
"""

from collections.abc import Iterable, Mapping, Sequence

from tuner.errors import PolicyError
from tuner.policy import Fusion, Policy
from tuner.program.affine import Affine, find_affines, fold
from tuner.program.expression import slices_in
from tuner.program.layer import CONV, MATMUL
from tuner.program.packing import Packing, packings
from tuner.program.passing import HELD_FORMAT, Pass, find_passes
from tuner.program.program import Program
from tuner.program.scan_segments import Segmented, cut
from tuner.program.steps import Site, Step, bodies_around

AFFINE, PASS = "affine", "pass"
_DTYPES = frozenset({"float32", "bfloat16", "float16"})


def available_fusions(program: Program, policy: Policy) -> tuple[Fusion, ...]:
    """Every fusion that a program allows under the assignments of a policy that fits it, sorted."""
    segmented = cut(program, policy)
    around = bodies_around(segmented.steps)
    packed = [
        packing
        for name, sites, assignment in segmented.layers
        if not assignment.precision.is_original
        for packing in packings(name, sites, assignment, around)
    ]
    affines = _affines(segmented, packed, program)
    steps = fold(segmented.steps, {id(affine.site): affine for affine in affines.values()})
    passes = _passes(policy, segmented, steps, program)
    return tuple(sorted({*(Fusion(AFFINE, (name,)) for name in affines), *passes}))


def check_fusions(policy: Policy, program: Program, where: str) -> None:
    """Returns when the program allows every fusion that the policy asks for.

    Raises:
        PolicyError: names the first that it does not allow.
    """
    allowed = available_fusions(program, policy) if policy.fusions else ()
    for fusion in policy.fusions:
        if fusion not in allowed:
            listed = ", ".join(map(repr, map(str, allowed))) or "none"
            raise PolicyError(
                f"{where}: this program does not allow the fusion {str(fusion)!r} (allowed with these precisions: "
                f"{listed}); remove it, or search here and export the policy again"
            )


def affines_of(
    policy: Policy, segmented: Segmented, packed: Sequence[Packing], program: Program
) -> Mapping[int, Affine]:
    """Identity of a site -> what a policy folds into it."""
    wanted = {fusion.layers for fusion in policy.fusions if fusion.kind == AFFINE}
    if not wanted:
        return {}
    found = _affines(segmented, packed, program)
    return {id(affine.site): affine for name, affine in found.items() if (name,) in wanted}


def passes_of(policy: Policy, segmented: Segmented, steps: Sequence[Step], program: Program) -> list[Pass]:
    """What a policy holds in the integers of the layer that reads it.

    Args:
        policy: the policy.
        segmented: the program's layers, as the policy cuts its scans.
        steps: what is run, what is folded into layers left out.
        program: the program.
    """
    wanted = {fusion for fusion in policy.fusions if fusion.kind == PASS}
    if not wanted:
        return []
    return [one for fusion, one in _passes(policy, segmented, steps, program).items() if fusion in wanted]


def _passes(policy: Policy, segmented: Segmented, steps: Sequence[Step], program: Program) -> dict[Fusion, Pass]:
    names = {id(site): name for name, sites, _ in segmented.layers for site in sites}
    precisions = {id(site): a.precision for _, sites, a in segmented.layers for site in sites}
    scales = dict(policy.scales)

    def key(site: Site) -> object:
        precision = precisions.get(id(site))
        if precision is None or precision.scaling != "static" or not precision.symmetric:
            return None
        if precision.activations.name != HELD_FORMAT or site.kind not in (MATMUL, CONV):
            return None
        return scales[names[id(site)]].scale if names[id(site)] in scales else None

    found = {}
    for one in find_passes(steps, program.outputs, key):
        before = () if one.producer is None else (names[id(one.producer)],)
        found[Fusion(PASS, (*before, names[id(one.reader)]))] = one
    return found


def _affines(segmented: Segmented, packed: Iterable[Packing], program: Program) -> dict[str, Affine]:
    """Layer -> what can be folded into it: it has one operation, whose packed weight nothing else reads."""
    alone = {id(packing.owner) for packing in packed if len(packing.turns) == 1}
    names = {id(sites[0]): name for name, sites, _ in segmented.layers if len(sites) == 1}
    found = find_affines(segmented.steps, program.outputs)
    return {
        names[site]: affine
        for site, affine in found.items()
        if site in alone and site in names and affine.pays and _is_plain(affine)
    }


def _is_plain(affine: Affine) -> bool:
    """False for what lies on several devices, or is wider than float32."""
    site = affine.site
    assert site.weight is not None  # it is packed
    pieces = (piece for value in (site.weight, *affine.values) for piece in slices_in(value))
    split = site.placement is not None or any(piece.shards is not None for piece in pieces)
    return not split and str(site.eqn.outvars[0].aval.dtype) in _DTYPES

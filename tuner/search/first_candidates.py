"""The first candidates of every search: what a person would try by hand, before any sampler proposes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from search_spaces import ORIGINAL, Precision, SearchSpaceError, parse_format
from tuner.errors import InputError
from tuner.policy import Policy
from tuner.program.layer import INPUT, Layer
from tuner.search.choices import ChoiceSpace, Proposal

BASELINE = "baseline"
# The hand-made ways: the whole program in another dtype. No policy gives them, so they are no trials of the search.
CASTS = ("bf16", "f16")


@dataclass(frozen=True, slots=True)
class FirstCandidate:
    """A proposal with the name people know it by."""

    label: str
    proposal: Proposal


def first_candidates(
    layers: Sequence[Layer],
    space: ChoiceSpace,
    rank: Callable[[list[Precision]], list[Precision]],
    start: Policy | None = None,
) -> list[FirstCandidate]:
    """Baseline, `start`, the same formats with the best kernels, then every uniform precision, fastest first.

    Args:
        layers: of the program.
        space: what may be proposed; a candidate that it does not contain is left out.
        rank: orders precisions, fastest first.
        start: a policy to try right after the baseline.

    Raises:
        InputError: `start` gives a layer what the space does not allow.
    """
    found = [FirstCandidate(BASELINE, space.expand({}))]
    if start is not None:
        found.append(FirstCandidate("start", start_proposal(start, space)))
    same = _same_formats(layers, space)
    found.append(FirstCandidate(label_of(space, same), same))
    ranked = rank(_uniform_precisions(layers, space))
    found.extend(FirstCandidate(str(precision), uniform(space, precision)) for precision in ranked)
    return _without_duplicates(found, space)


def start_proposal(policy: Policy, space: ChoiceSpace, where: str = "the policy to start from") -> Proposal:
    """The proposal that a policy to start from makes.

    Raises:
        InputError: it gives a layer what the space does not allow.
    """
    proposal = {name: str(precision) for name, precision in policy.precisions.items()}
    for name in space.choices:
        allowed = space.distributions[name].choices
        if proposal.get(name) not in allowed:
            raise InputError(
                f"{where} gives layer {name!r} {proposal.get(name)}, which this search space does not "
                f"allow ({', '.join(map(str, allowed))}); widen the space with --space or leave --start out"
            )
    return proposal


def label_of(space: ChoiceSpace, proposal: Mapping[str, str]) -> str:
    """A short name: `i8/i8/i32`, or `3 x i8/i8/i32, 1 x bf16/bf16/f32` with what stays original left out."""
    counts: dict[str, int] = {}
    for text in proposal.values():
        if text != str(ORIGINAL):
            counts[text] = counts.get(text, 0) + 1
    if not counts:
        return BASELINE
    if len(counts) == 1:
        (only,) = counts
        if dict(proposal) == uniform(space, Precision.parse(only)):
            return only
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} x {text}" for text, count in ordered)


def uniform(space: ChoiceSpace, precision: Precision) -> Proposal:
    """The precision in every layer that may take it, the rest original."""
    text = str(precision)
    return space.expand({name: text for name in space.free if text in space.distributions[name].choices})


def cast_label(name: str) -> str:
    """The name of a hand-made reference point: `astype(bf16)`."""
    return f"astype({name})"


def cast_key(name: str) -> str:
    """The key under which a hand-made reference point is stored."""
    return f"cast:{name}"


def cast_trial(name: str) -> int:
    """The negative number in place of a trial's: reference points are no trials."""
    return -1 - CASTS.index(name)


def _same_formats(layers: Sequence[Layer], space: ChoiceSpace) -> Proposal:
    """Every layer in the format it has already, explicitly, so that another kernel may run it."""
    wanted: dict[str, str] = {}
    for layer in layers:
        try:
            format = parse_format(layer.dtype)
            precision = str(Precision(weights=format, activations=format, accumulate=format))
        except SearchSpaceError:  # a dtype that no precision names, float64 for one
            continue
        if layer.kind != INPUT and precision in space.distributions[layer.name].choices:
            wanted[layer.name] = precision
    return space.expand(wanted)


def _uniform_precisions(layers: Sequence[Layer], space: ChoiceSpace) -> list[Precision]:
    """Every precision that some layer may take, in order of appearance; those of inputs alone are no uniform policy."""
    names = [layer.name for layer in layers if layer.kind != INPUT]
    found = {precision: None for name in names for precision in space.choices[name] if not precision.is_original}
    return list(found)


def _without_duplicates(candidates: Sequence[FirstCandidate], space: ChoiceSpace) -> list[FirstCandidate]:
    """The first of each proposal."""
    unique: dict[tuple[str, ...], FirstCandidate] = {}
    for candidate in candidates:
        unique.setdefault(space.key(candidate.proposal), candidate)
    return list(unique.values())

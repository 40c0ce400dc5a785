"""Resolution: a search space meets the layers of one program."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from search_spaces.errors import SearchSpaceError
from search_spaces.precision import ORIGINAL, Precision
from search_spaces.rules import Group, Rule, matches

if TYPE_CHECKING:  # space.py resolves itself with this module
    from search_spaces.space import SearchSpace

_SHOWN_NAMES = 8


class LayerLike(Protocol):
    """What a layer must say of itself to be given choices."""

    @property
    def name(self) -> str:
        """Unique in its program."""

    @property
    def kind(self) -> str:
        """One of `search_spaces.rules.KINDS`."""

    @property
    def searchable(self) -> bool:
        """False: the layer stays original whatever the rules say."""

    @property
    def reason(self) -> str | None:
        """Why it is not searchable."""


AnyLayer = TypeVar("AnyLayer", bound=LayerLike)


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolution:
    """What each layer of one program may take."""

    # Every layer, in program order -> its precisions; ORIGINAL first, and alone where nothing may be tried.
    choices: Mapping[str, tuple[Precision, ...]]
    # Group -> its layers that have a choice; all of them share the same choices.
    groups: Mapping[str, tuple[str, ...]]
    # Layer -> precision that its rule lists and that it cannot take -> why not.
    refused: Mapping[str, Mapping[Precision, str]]


def resolve_space(
    space: "SearchSpace",
    layers: Sequence[AnyLayer],
    supported: Callable[[AnyLayer, Precision], str | None],
) -> Resolution:
    """The choices of every layer; see `SearchSpace.resolve`."""
    _check_everything_matches(space, layers)
    choices: dict[str, tuple[Precision, ...]] = {}
    refused: dict[str, dict[Precision, str]] = {}
    for layer in layers:
        taken = [ORIGINAL]
        for precision in _listed(space, layer):
            reason = precision.unavailable or supported(layer, precision)
            if reason is None:
                taken.append(precision)
            else:
                refused.setdefault(layer.name, {})[precision] = reason
        choices[layer.name] = tuple(taken)
    groups = _tie_groups(space, choices, refused)
    return Resolution(choices=choices, groups=groups, refused=refused)


def _listed(space: "SearchSpace", layer: LayerLike) -> list[Precision]:
    """What the deciding rule lists for the layer besides original, each once; nothing for a layer that must stay."""
    if not layer.searchable or any(matches(glob, layer.name) for glob in space.freeze):
        return []
    index = _deciding_rule(space, layer)
    if index is None:
        return []
    return [precision for precision in dict.fromkeys(space.rules[index].precisions) if not precision.is_original]


def _deciding_rule(space: "SearchSpace", layer: LayerLike) -> int | None:
    """Index of the first rule that matches the layer."""
    return next((index for index, rule in enumerate(space.rules) if rule.speaks_of(layer.name, layer.kind)), None)


def _tie_groups(
    space: "SearchSpace", choices: dict[str, tuple[Precision, ...]], refused: dict[str, dict[Precision, str]]
) -> dict[str, tuple[str, ...]]:
    """The groups' layers; their choices are cut, in place, down to what all members may take."""
    owners: dict[str, Group] = {}
    groups = {}
    for group in space.groups:
        members = [name for name in choices if matches(group.layers, name)]
        for name in members:
            if name in owners:
                raise SearchSpaceError(
                    f"space {space.name!r}: layer {name!r} is in two groups, {owners[name].name!r} and "
                    f"{group.name!r}; narrow the glob of one of them"
                )
            owners[name] = group
        members = [name for name in members if len(choices[name]) > 1]
        for name, precision, other in _not_shared(members, choices):
            refused.setdefault(name, {})[precision] = (
                f"the layers of group {group.name!r} move together, and {other!r} may not take it"
            )
        for name in members:
            choices[name] = tuple(p for p in choices[name] if p not in refused.get(name, {}))
        members = [name for name in members if len(choices[name]) > 1]
        if members:
            groups[group.name] = tuple(members)
            choices.update(dict.fromkeys(members, choices[members[0]]))
    return groups


def _not_shared(
    members: list[str], choices: Mapping[str, tuple[Precision, ...]]
) -> Iterable[tuple[str, Precision, str]]:
    """Every (member, precision, other member that lacks it)."""
    for name in members:
        for precision in choices[name]:
            other = next((other for other in members if precision not in choices[other]), None)
            if other is not None:
                yield name, precision, other


def _check_everything_matches(space: "SearchSpace", layers: Sequence[LayerLike]) -> None:
    """Raises for the first rule, group or freeze without effect: it is a misspelling until someone says otherwise."""
    deciders = {_deciding_rule(space, layer) for layer in layers}
    for index, rule in enumerate(space.rules):
        if not rule.optional and index not in deciders:
            raise SearchSpaceError(f"space {space.name!r}: rule {index + 1} {_why_unused(space, rule, layers)}")
    for group in space.groups:
        if not group.optional and not any(matches(group.layers, layer.name) for layer in layers):
            raise SearchSpaceError(
                f"space {space.name!r}: group {group.name!r} (layers {group.layers!r}) matches no layer; "
                f"{_some_names(layers)}; correct the glob or write optional = true"
            )
    for glob in space.freeze:
        if not any(matches(glob, layer.name) for layer in layers):
            raise SearchSpaceError(
                f"space {space.name!r}: freeze {glob!r} matches no layer; {_some_names(layers)}; "
                "correct the glob or take it out"
            )


def _why_unused(space: "SearchSpace", rule: Rule, layers: Sequence[LayerLike]) -> str:
    what = f"(layers {rule.layers!r}, kinds {', '.join(rule.kinds)})"
    for layer in layers:
        if rule.speaks_of(layer.name, layer.kind):
            return (
                f"{what} decides for no layer: an earlier rule comes first for {layer.name!r}; "
                "move the narrower rule up or write optional = true"
            )
    named = [layer for layer in layers if matches(rule.layers, layer.name)]
    if named and rule.layers != "*":
        return f"{what} matches no layer: {named[0].name!r} is of kind {named[0].kind}; correct the kinds"
    return f"{what} matches no layer; {_some_names(layers)}; correct the glob or write optional = true"


def _some_names(layers: Sequence[LayerLike]) -> str:
    if not layers:
        return "the program has no layers"
    names = ", ".join(f"{layer.name} ({layer.kind})" for layer in layers[:_SHOWN_NAMES])
    more = len(layers) - _SHOWN_NAMES
    return f"the layers are {names}" + (f" and {more} more" if more > 0 else "")

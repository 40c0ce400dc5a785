"""Nested dicts of arrays, named as the user knows them, and the way back to what a library holds."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tuner.errors import InputError

Nested = dict[str, Any]
Path = tuple[str, ...]

# Begins the keys of what is no parameter. No library names a module so, but Haiku calls what is in no module "~".
CARRIED = "~"


def nest(paths: Sequence[Path], leaves: Iterable[Any]) -> Nested:
    """The nested dict that holds each leaf at its path; InputError where two paths need the same place."""
    nested: Nested = {}
    for path, leaf in zip(paths, leaves, strict=True):
        place = nested
        for part in path[:-1]:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise InputError(_taken(path))
        if path[-1] in place:
            raise InputError(_taken(path))
        place[path[-1]] = leaf
    return nested


def pick(nested: Nested, paths: Sequence[Path]) -> list[Any]:
    """The leaves at these paths, in this order."""
    leaves = []
    for path in paths:
        leaf: Any = nested
        for part in path:
            leaf = leaf[part]
        leaves.append(leaf)
    return leaves


def by_name(tree: Any, *, drop_last: str | None = None) -> tuple[Nested, Callable[[Nested], Any]]:
    """A pytree as a nested dict of its leaves, and the function that makes such a dict into the pytree again.

    Args:
        tree: any pytree.
        drop_last: a last path part that says nothing, such as the "value" that a wrapper keeps its array in.
    """
    import jax

    found, _ = jax.tree_util.tree_flatten_with_path(tree)
    paths = []
    for keys, _ in found:
        parts = tuple(jax.tree_util.keystr((key,), simple=True) for key in keys)
        paths.append(parts[:-1] if parts[-1] == drop_last else parts)

    # A tree and not its structure: this can be sent to another process, Equinox's structures cannot.
    hollow = jax.tree_util.tree_map(lambda leaf: 0, tree)

    def back(nested: Nested) -> Any:
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(hollow), pick(nested, paths))

    return nest(paths, [leaf for _, leaf in found]), back


def carry(params: Nested, **collections: Any) -> Nested:
    """Parameters with collections of what is no parameter beside them; empty collections are left out."""
    return {**params, **{CARRIED + name: tree for name, tree in collections.items() if tree is not None}}


def separate(nested: Nested) -> tuple[Nested, Nested]:
    """(parameters, collections by name): what `carry` put together."""
    params = {name: tree for name, tree in nested.items() if not is_carried(name)}
    return params, {name.removeprefix(CARRIED): tree for name, tree in nested.items() if is_carried(name)}


def is_carried(name: str) -> bool:
    """True for the outermost key of what is no parameter."""
    return name.startswith(CARRIED) and name != CARRIED


def _taken(path: Path) -> str:
    return f"two arrays of the model are called {'/'.join(path)}; give one of the layers another name"

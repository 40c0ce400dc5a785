"""Layer names: the path of the parameter a layer reads, as its user knows it; the same for every batch size and run."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax

# A last part that says only "the weight of this layer".
_WEIGHT_WORDS = frozenset({"kernel", "weight", "w", "W", "embedding", "embeddings"})

Path = tuple[Any, ...]


def _part(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def path_text(path: Path) -> str:
    """The parts of a pytree path joined with `/`."""
    return "/".join(_part(key) for key in path)


def _short(path: Path) -> str:
    """The path without a last part that only says "weight"; empty when nothing would be left."""
    if not path:
        return ""
    is_index = isinstance(path[-1], jax.tree_util.SequenceKey)
    return path_text(path[:-1]) if is_index or _part(path[-1]) in _WEIGHT_WORDS else path_text(path)


def _joint(paths: Sequence[Path]) -> str:
    """One name for a weight made of several parameters: their common prefix and `{q,k,v}`."""
    whole = [path_text(path).split("/") for path in paths]
    parts = [_without_word(parts, whole) for parts in whole]
    prefix: list[str] = []
    while all(len(rest) > len(prefix) + 1 for rest in parts) and len({rest[len(prefix)] for rest in parts}) == 1:
        prefix.append(parts[0][len(prefix)])
    rests = ["/".join(rest[len(prefix) :]) for rest in parts]
    return "/".join([*prefix, "{" + ",".join(dict.fromkeys(rests)) + "}"])


def _without_word(parts: list[str], all_parts: list[list[str]]) -> list[str]:
    """Parts without a last one that only says "weight", unless others lie beside it: `fc/{scale,w}`."""
    rest = parts[:-1]
    beside = sum(other[: len(rest)] == rest for other in all_parts) > 1
    return rest if rest and parts[-1] in _WEIGHT_WORDS and not beside else parts


def weight_names(weights: Sequence[frozenset[int]], paths: Sequence[Path]) -> list[str]:
    """One unique name per weight.

    Args:
        weights: for each layer the parameter leaves its weight is made of.
        paths: the pytree path of every parameter leaf.
    """
    whole = [_whole(sorted(leaves), paths) for leaves in weights]
    short = [
        _short(paths[next(iter(leaves))]) if len(leaves) == 1 else name
        for leaves, name in zip(weights, whole, strict=True)
    ]
    owners: dict[str, set[frozenset[int]]] = {}
    for leaves, name in zip(weights, short, strict=True):
        owners.setdefault(name, set()).add(leaves)
    chosen = [s if s and len(owners[s]) == 1 else w for s, w in zip(short, whole, strict=True)]
    return number_repeats(chosen)


def _whole(leaves: list[int], paths: Sequence[Path]) -> str:
    if len(leaves) == 1:
        return path_text(paths[leaves[0]]) or "params"
    return _joint([paths[leaf] for leaf in leaves])


def number_repeats(names: Sequence[str]) -> list[str]:
    """The names, with `/0`, `/1`, ... in order of appearance on those that several layers share."""
    counts, seen = Counter(names), Counter[str]()
    taken = {name for name, count in counts.items() if count == 1}
    numbered = []
    for name in names:
        if counts[name] == 1:
            numbered.append(name)
            continue
        while f"{name}/{seen[name]}" in taken:
            seen[name] += 1
        numbered.append(f"{name}/{seen[name]}")
        seen[name] += 1
    return numbered


def operation_names(scopes: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """One name per operation without a parameter: its name scope, kind and position there (`blocks/0/attn/dot_1`)."""
    seen = Counter[tuple[str, str]]()
    names = []
    for scope, kind in zip(scopes, kinds, strict=True):
        position = seen[scope, kind]
        seen[scope, kind] += 1
        names.append(f"{scope}/{kind}_{position}" if scope else f"{kind}_{position}")
    return names


def input_names(tree: Any) -> list[str]:
    """One name per input leaf: `input` when there is one, else `input/PATH`."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    if len(paths) == 1:
        return ["input"]
    return [f"input/{path_text(path)}" for path in paths]

"""Sites -> layers: operations that hold the same weight are one layer, and each layer gets its name."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import jax.numpy as jnp

from tuner import _jax_compat as compat
from tuner.adapters.nested import is_carried
from tuner.program import naming
from tuner.program.expression import share_of_sources, sources
from tuner.program.kernels import weight_axes
from tuner.program.layer import INPUT, MATMUL, Layer
from tuner.program.scan_segments import SplitScan
from tuner.program.sites import site_flops, site_shape
from tuner.program.steps import Site

_STATE = "what it reads is state that the model carries, not a parameter, and is never cast"


def input_layers(inputs: Any, avals: Sequence[Any]) -> tuple[list[Layer], tuple[int | None, ...]]:
    """One layer per floating input leaf, and for every leaf the position of its layer."""
    layers: list[Layer] = []
    positions: list[int | None] = []
    for name, aval in zip(naming.input_names(inputs), avals, strict=True):
        if not jnp.issubdtype(aval.dtype, jnp.floating):
            positions.append(None)
            continue
        positions.append(len(layers))
        shape = tuple(int(size) for size in aval.shape)
        layers.append(
            Layer(
                name=name,
                kind=INPUT,
                shape=shape,
                dtype=str(aval.dtype),
                params=0,
                flops=0,
                executions=1,
                source=None,
                searchable=True,
            )
        )
    return layers, tuple(positions)


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A layer, its operations, and which iteration of a scan it is, None for all."""

    layer: Layer
    sites: tuple[Site, ...]
    iteration: int | None = None


def weight_layers(
    found: Sequence[Site],
    paths: Sequence[naming.Path],
    leaf_avals: Sequence[Any],
    split: Mapping[int, SplitScan],
) -> list[Placed]:
    """Sites that hold the same weight make one layer, or one per iteration of a split scan; each gets its name."""
    groups: dict[tuple[Any, ...], list[Site]] = {}
    for site in found:
        groups.setdefault(site.key, []).append(site)
    grouped = list(groups.values())
    origins = [sources(sites[0].weight) if sites[0].weight is not None else frozenset[int]() for sites in grouped]
    carried = frozenset(leaf for leaf, path in enumerate(paths) if is_carried(naming.path_text(path[:1])))
    weighted = [i for i, origin in enumerate(origins) if origin]
    bare = [i for i, origin in enumerate(origins) if not origin]
    behind = [origin - carried or origin for origin in origins]
    names = dict(zip(weighted, naming.weight_names([behind[i] for i in weighted], paths), strict=True))
    scopes = [compat.scope_text(grouped[i][0].scope) for i in bare]
    names.update(zip(bare, naming.operation_names(scopes, [grouped[i][0].kind for i in bare]), strict=True))
    whole = []
    for i, sites in enumerate(grouped):
        size = sum(int(leaf_avals[leaf].size) for leaf in behind[i])
        if sites[0].weight is not None and size:
            size = max(1, round(size * share_of_sources(sites[0].weight)))
        state = _STATE if behind[i] & carried else None
        whole.append(Placed(layer=_layer(names[i], sites, size, state), sites=tuple(sites)))
    return list(_by_iteration(whole, split)) if split else whole


def _by_iteration(layers: Sequence[Placed], split: Mapping[int, SplitScan]) -> Iterator[Placed]:
    """The layers of a split scan once per iteration: all of the first iteration, then all of the next."""
    for scan, together in groupby(layers, lambda placed: _scan_of(placed.sites, split)):
        if scan is None:
            yield from together
            continue
        members = list(together)
        for iteration in range(scan.length):
            yield from (_in_iteration(placed, iteration, scan.length) for placed in members)


def _scan_of(sites: Sequence[Site], split: Mapping[int, SplitScan]) -> SplitScan | None:
    """The scan that a layer is listed by; None where some operation of it is elsewhere, or in a scan of another length."""
    scans = [split.get(id(site)) for site in sites]
    first = scans[0]
    same = all(scan is not None and first is not None and scan.length == first.length for scan in scans)
    return first if same else None


def _in_iteration(placed: Placed, iteration: int, length: int) -> Placed:
    layer = placed.layer
    share = replace(
        layer,
        name=f"{layer.name}/{iteration}",
        params=layer.params // length,
        flops=layer.flops // length,
        executions=layer.executions // length,
    )
    return Placed(layer=share, sites=placed.sites, iteration=iteration)


def _layer(name: str, sites: Sequence[Site], params: int, state: str | None) -> Layer:
    kinds = [site.kind for site in sites]
    reason = next((site.reason for site in sites if site.reason), state)
    first = sites[kinds.index(MATMUL)] if MATMUL in kinds else sites[0]
    return Layer(
        name=name,
        kind=first.kind,
        shape=site_shape(first),
        dtype=str(first.eqn.invars[first.weight_operand or 0].aval.dtype),
        params=params,
        flops=sum(site_flops(site) * site.executions for site in sites),
        executions=sum(site.executions for site in sites),
        source=compat.source_line(first.eqn),
        searchable=reason is None,
        reason=reason,
        summed=0 if reason else _summed(sites),
    )


def _summed(sites: Sequence[Site]) -> int:
    """What groups of scales must divide: the length of the axis that they run along, in every operation."""
    lengths = [
        site_shape(site)[main]
        for site in sites
        if site.weight is not None
        for main in (weight_axes(site).main,)
        if main is not None
    ]
    return math.gcd(*lengths)


def distinct_names(inputs: Sequence[Layer], layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """All layers, an input or operation renamed where a parameter already has its name."""
    together = [*inputs, *layers]
    names = naming.number_repeats([layer.name for layer in together])
    return tuple(replace(layer, name=name) for layer, name in zip(together, names, strict=True))

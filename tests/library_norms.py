"""A matrix product with every norm layer of Flax, Equinox and Haiku behind it, found in the libraries' own namespaces.

A class without an entry here is a norm that a library has grown since: `norms` lists it, and the tests ask for its entry.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.programs import normal
from tuner.adapters import equinox as from_equinox
from tuner.adapters import haiku as from_haiku
from tuner.adapters import linen as from_linen
from tuner.adapters import nnx as from_nnx

eqx = pytest.importorskip("equinox", reason="equinox is not installed")
hk = pytest.importorskip("haiku", reason="dm-haiku is not installed")
linen = pytest.importorskip("flax.linen", reason="flax is not installed")
nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")

WIDTH, CHANNELS = 6, 8
# What a model is here: apply, params, and a batch of inputs.
Model = tuple[Callable[..., Any], Any, Any]

NAMESPACES = {"linen": linen, "nnx": nnx, "equinox": eqx.nn, "haiku": hk}
# These normalize a weight, and so lie in the layer; the others normalize what the layer hands on.
OF_WEIGHTS = {"WeightNorm", "SpectralNorm"}


def norms() -> list[str]:
    """`library/Class` of every norm layer that the installed libraries offer."""
    return [
        f"{library}/{name}"
        for library, namespace in NAMESPACES.items()
        for name, value in sorted(vars(namespace).items())
        if name.endswith("Norm") and inspect.isclass(value)
    ]


def make(name: str) -> Model:
    """A bias-free layer with that norm behind it, or for a norm of weights around it."""
    library, kind = name.split("/")
    if kind == "InstanceNorm" or (library, kind) == ("equinox", "GroupNorm"):
        x = normal(4, 5, WIDTH)  # what is normalized has an axis of its own
    else:
        x = normal(4, WIDTH)
    return _MAKERS[library](getattr(NAMESPACES[library], kind), kind, x)


# How Flax's norms are made, where their defaults do not fit.
_SETTINGS: dict[str, dict[str, Any]] = {"GroupNorm": {"num_groups": 2}, "BatchNorm": {"use_running_average": True}}


def _linen(norm: Any, kind: str, x: Any) -> Model:
    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            dense = linen.Dense(CHANNELS, use_bias=False)
            if kind == "SpectralNorm":
                return norm(dense)(x, update_stats=False)
            if kind == "WeightNorm":
                return norm(dense)(x)
            return norm(**_SETTINGS.get(kind, {}))(dense(x))

    module = Network()
    return *from_linen.to_function(module, _shaken(module.init(jax.random.key(0), x))), x


def _nnx(norm: Any, kind: str, x: Any) -> Model:
    class Network(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.dense = nnx.Linear(WIDTH, CHANNELS, use_bias=False, rngs=rngs)
            if kind == "SpectralNorm":
                self.norm = norm(self.dense, rngs=rngs)
            elif kind == "WeightNorm":
                self.norm = norm(self.dense, feature_axes=-1, rngs=rngs)
            else:
                self.norm = norm(CHANNELS, **_SETTINGS.get(kind, {}), rngs=rngs)

        def __call__(self, x: Any) -> Any:
            if kind == "SpectralNorm":
                return self.norm(x, update_stats=False)
            return self.norm(x if kind == "WeightNorm" else self.dense(x))

    apply, params = from_nnx.to_function(Network(nnx.Rngs(0)))
    return apply, _shaken(params), x


def _equinox(norm: Any, kind: str, x: Any) -> Model:
    keys = jax.random.split(jax.random.key(0), 2)
    dense = eqx.nn.Linear(WIDTH, CHANNELS, use_bias=False, key=keys[0])
    if kind in ("SpectralNorm", "BatchNorm"):
        make = {
            "SpectralNorm": lambda: norm(dense, "weight", key=keys[1]),
            "BatchNorm": lambda: eqx.nn.Sequential([dense, norm(CHANNELS, "batch", mode="ema")]),
        }
        model, state = eqx.nn.make_with_state(make[kind])()
        if kind == "BatchNorm":
            batched = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
            _, state = batched(x, state)
        return *from_equinox.to_function(model, state), x
    if kind == "WeightNorm":
        return *from_equinox.to_function(norm(dense)), x
    if kind == "GroupNorm":
        model = eqx.nn.Sequential([eqx.nn.Conv1d(5, CHANNELS, 1, use_bias=False, key=keys[0]), norm(2, CHANNELS)])
    else:
        model = eqx.nn.Sequential([dense, norm(CHANNELS)])
    return *from_equinox.to_function(model), x


def _haiku(norm: Any, kind: str, x: Any) -> Model:
    settings: dict[str, dict[str, Any]] = {
        "LayerNorm": {"axis": -1, "create_scale": True, "create_offset": True},
        "InstanceNorm": {"create_scale": True, "create_offset": True},
        "GroupNorm": {"groups": 2},
        "RMSNorm": {"axis": -1},
        "BatchNorm": {"create_scale": True, "create_offset": True, "decay_rate": 0.9},
    }

    def network(x: Any, training: bool = False) -> Any:
        if kind == "SpectralNorm":
            w = hk.get_parameter("w", [WIDTH, CHANNELS], init=hk.initializers.RandomNormal())
            return x @ norm()(w, update_stats=training)
        h = hk.Linear(CHANNELS, with_bias=False)(x)
        return norm(**settings[kind])(h, is_training=training) if kind == "BatchNorm" else norm(**settings[kind])(h)

    function = hk.transform_with_state(network)
    params, state = function.init(jax.random.key(0), x, training=True)
    return *from_haiku.to_function(function, _shaken(params), state), x


_MAKERS: dict[str, Callable[[Any, str, Any], Model]] = {
    "linen": _linen,
    "nnx": _nnx,
    "equinox": _equinox,
    "haiku": _haiku,
}


def _shaken(params: Any) -> Any:
    """Scales that are not all one and offsets that are not all zero: otherwise nothing would show."""
    return jax.tree_util.tree_map(_shake, params)


def _shake(leaf: Any) -> Any:
    if not (hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)):
        return leaf
    return leaf * 1.1 + 0.1

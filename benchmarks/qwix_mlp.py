"""The network of studies.fashion_mlp in Flax, with the same weights, quantized by qwix: what it is compared with."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tuner.errors import InputError


def quantized(params: Any, inputs: tuple[Any, ...]) -> tuple[Callable[..., Any], Any]:
    """The function and the parameters of the w8a8 model: int8 weights per output channel, activations at run time.

    Raises:
        InputError: flax or qwix is not installed.
    """
    try:
        import qwix
        from flax import linen as nn
    except ImportError as error:
        raise InputError(f"{error.name} is not installed: pip install qwix flax") from error
    network = nn.Sequential([nn.Dense(512), nn.relu, nn.Dense(512), nn.relu, nn.Dense(10), nn.log_softmax])
    # Both count activations as layers; those of stax have an empty entry.
    layers = {f"layers_{i}": layer for i, layer in enumerate(params) if layer}
    weights = {
        name: dict(zip(("kernel", "bias"), map(jnp.asarray, layer), strict=True)) for name, layer in layers.items()
    }
    rule = qwix.QuantizationRule(module_path=".*", weight_qtype="int8", act_qtype="int8")
    narrow = qwix.quantize_model(network, qwix.PtqProvider([rule]))
    shapes = jax.eval_shape(narrow.init, jax.random.key(0), *inputs)["params"]
    packed = qwix.quantize_params(weights, shapes)
    return lambda packed, *inputs: narrow.apply({"params": packed}, *inputs), packed

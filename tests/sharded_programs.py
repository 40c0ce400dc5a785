"""Run with eight host devices: programs whose parameters are spread over a mesh; prints what became of them as JSON."""

import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from search_spaces import Precision
from tests.programs import normal
from tuner.program import capture, prepare, uniform_policy

MESH = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
PRECISIONS = ("original", "f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32", "i8/f32/f32")


def place(value: Any, *spec: Any) -> Any:
    return jax.device_put(value, NamedSharding(MESH, P(*spec)))


def plain(params: Any, x: Any) -> Any:
    return jax.nn.relu(x @ params["up"]["w"]) @ params["down"]["w"]


@jax.shard_map(mesh=MESH, in_specs=(P(None, "model"), P("model", None), P("data", None)), out_specs=P("data", None))
def by_hand(up: Any, down: Any, x: Any) -> Any:
    return jax.lax.psum(jax.nn.relu(x @ up) @ down, "model")


def scanned(params: Any, x: Any) -> Any:
    @jax.shard_map(mesh=MESH, in_specs=(P(None, None, "model"), P("data", None)), out_specs=P("data", None))
    def all_layers(stack: Any, x: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            return jnp.tanh(jax.lax.all_gather(h @ w.T.T, "model", axis=1, tiled=True)), None

        h, _ = jax.lax.scan(layer, jax.lax.pcast(x, ("model",), to="varying"), stack)
        return jax.lax.pmean(h, "model")

    return all_layers(params["stack"]["w"], x)


def examples() -> dict[str, tuple[Callable[..., Any], Any, Any]]:
    up, down, x = normal(8, 16), normal(16, 4), normal(8, 8)
    tensor = {"up": {"w": place(up, None, "model")}, "down": {"w": place(down, "model", None)}}
    copies = {"up": {"w": place(up)}, "down": {"w": place(down)}}
    return {
        "data parallel": (plain, copies, place(x, "data")),
        "tensor parallel": (plain, tensor, place(x, "data")),
        "shard_map": (lambda p, x: by_hand(p["up"]["w"], p["down"]["w"], x), tensor, place(x, "data")),
        "scan in shard_map": (scanned, {"stack": {"w": place(normal(3, 8, 8), None, None, "model")}}, place(x, "data")),
    }


def describe(apply: Any, params: Any, x: Any, precision: str) -> dict[str, Any]:
    program = capture(apply, params, (x,))
    model = prepare(apply, params, uniform_policy(program, Precision.parse(precision)), program=program)
    expected, found = jax.jit(apply)(params, x), jax.jit(model)(model.params, x)
    packed = {name: part["weight"] for name, part in model.params["layers"].items()}
    return {
        "layers": [layer.name for layer in program.layers if layer.searchable],
        "work": {layer.name: [*layer.shape, layer.executions, layer.flops] for layer in program.layers if layer.params},
        "error": float(jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected)),
        "same sharding": bool(found.sharding.is_equivalent_to(expected.sharding, found.ndim)),
        "devices": {name: len(weight.devices()) for name, weight in packed.items()},
        "pieces": {name: len({str(s.index) for s in weight.addressable_shards}) for name, weight in packed.items()},
        "identical": bool(np.array_equal(found, expected)),
    }


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps({name: {p: describe(*example, p) for p in PRECISIONS} for name, example in examples().items()})
    )

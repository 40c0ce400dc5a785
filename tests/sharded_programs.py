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
EXPLICIT = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit, AxisType.Explicit))
PRECISIONS = ("original", "f32/f32/f32", "bf16/bf16/f32", "bf16/bf16/f32->bf16", "i8/i8/i32", "i8/f32/f32")


def place(value: Any, *spec: Any, mesh: Any = MESH) -> Any:
    return jax.device_put(value, NamedSharding(mesh, P(*spec)))


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


def gathered(params: Any, x: Any) -> Any:
    """Weights that are spread for their size alone, and gathered where they are used, one of them transposed."""
    whole = lambda w: jax.lax.with_sharding_constraint(w, NamedSharding(MESH, P()))
    h = jax.nn.relu(x @ whole(params["up"]["w"]))
    return jax.lax.scan(lambda h, w: (h @ whole(w).T, None), h, params["stack"]["w"])[0]


def gathered_by_type(params: Any, x: Any) -> Any:
    whole = lambda w: jax.sharding.reshard(w, P(None, None))
    return jax.nn.relu(x @ whole(params["up"]["w"])) @ whole(params["down"]["w"])


def plain_by_type(params: Any, x: Any) -> Any:
    h = jax.nn.relu(x @ params["up"]["w"])
    return jnp.einsum("bi,io->bo", h, params["down"]["w"], out_sharding=P("data", None))


def look_up_by_type(params: Any, rows: Any) -> Any:
    return params["table"]["embedding"].at[rows].get(out_sharding=P("data", None))


def typed_examples() -> dict[str, tuple[Callable[..., Any], Any, Any]]:
    """On a mesh that is part of the types, as `jax.make_mesh` makes it by default."""
    there = lambda value, *spec: place(value, *spec, mesh=EXPLICIT)
    up, down, x = normal(8, 16), normal(16, 4), there(normal(8, 8), "data", None)
    tensor = {"up": {"w": there(up, None, "model")}, "down": {"w": there(down, "model", None)}}
    spread = {"up": {"w": there(up, "model", None)}, "down": {"w": there(down, "model", None)}}
    table = {"table": {"embedding": there(up, "model", None)}}
    return {
        "typed, tensor parallel": (plain_by_type, tensor, x),
        "typed, gathered": (gathered_by_type, spread, x),
        "typed, look-up": (look_up_by_type, table, there(np.arange(8), "data")),
    }


def examples() -> dict[str, tuple[Callable[..., Any], Any, Any]]:
    up, down, x = normal(8, 16), normal(16, 4), normal(8, 8)
    tensor = {"up": {"w": place(up, None, "model")}, "down": {"w": place(down, "model", None)}}
    copies = {"up": {"w": place(up)}, "down": {"w": place(down)}}
    return {
        "data parallel": (plain, copies, place(x, "data")),
        "tensor parallel": (plain, tensor, place(x, "data")),
        "gathered": (
            gathered,
            {"up": {"w": place(up, "model", None)}, "stack": {"w": place(normal(3, 16, 16), None, "model", None)}},
            place(x, "data"),
        ),
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


def report() -> dict[str, Any]:
    found = {name: {p: describe(*example, p) for p in PRECISIONS} for name, example in examples().items()}
    with jax.set_mesh(EXPLICIT):
        typed = {name: {p: describe(*example, p) for p in PRECISIONS} for name, example in typed_examples().items()}
    return found | typed


if __name__ == "__main__":
    sys.stdout.write(json.dumps(report()))

"""Run with eight host devices: a search over a model whose parameters are spread over a mesh; prints its front."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import tuner
from tests.programs import normal
from tests.sharded_programs import plain


def task() -> tuner.Task:
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    place = lambda value, *spec: jax.device_put(value, NamedSharding(mesh, P(*spec)))
    params = {"up": {"w": place(normal(8, 16), None, "model")}, "down": {"w": place(normal(16, 4), "model", None)}}
    x = normal(64, 8)
    labels = np.asarray(plain(params, x)).argmax(-1)
    return tuner.Task(name="spread", apply=plain, params=params, inputs=x, labels=labels, batch_size=8)


if __name__ == "__main__":
    study = tuner.search(task(), trials=5, storage=f"sqlite:///{Path.cwd()}/s.db", progress=False, isolation="none")
    sys.stdout.write(json.dumps([[t.label, type(t.outcome).__name__, str(t.outcome)] for t in study.trials()]))

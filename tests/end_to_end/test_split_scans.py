"""A scanned model whose iterations are tuned one by one: search in a child, export, verify, deploy."""

from pathlib import Path

import numpy as np
import pytest

import tuner
from tuner.cli import main
from tuner.study import open_study

TASK = """
import jax
import jax.numpy as jnp
import numpy as np
import tuner

def apply(params, x):
    def block(x, weights):
        return x + jnp.tanh(x @ weights["up"]) @ weights["down"], None
    return jax.lax.scan(block, x, params["blocks"])[0] @ params["head"]

def parameters():
    random = np.random.default_rng(0)
    shapes = {"up": (3, 16, 32), "down": (3, 32, 16)}
    blocks = {name: random.standard_normal(shape, np.float32) / 6 for name, shape in shapes.items()}
    return {"blocks": blocks, "head": random.standard_normal((16, 4), np.float32)}

def task():
    x = np.random.default_rng(1).standard_normal((256, 16), np.float32)
    labels = np.asarray(apply(parameters(), x)).argmax(1)
    return tuner.Task(name="scanned", apply=apply, params=parameters(), inputs=x, labels=labels, batch_size=64)
"""

SPACE = """
[[rules]]
layers = "blocks/*/1"
precisions = ["original", "i8/f32/f32"]
"""


@pytest.mark.slow
def test_one_iteration_in_another_precision_is_found_exported_and_deployed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("scanned.py").write_text(TASK)
    Path("space.toml").write_text(SPACE)
    assert main(["search", "scanned.py", "--split-scans", "--space", "space.toml", "--sampler", "exhaustive",
                 "--budget", "5m", "--trials", "4", "-q"]) == 0  # fmt: skip
    study = open_study("scanned")
    tried = [
        {n for n, p in point.policy.precisions.items() if not p.is_original} for point in study.points() if point.policy
    ]
    assert {"blocks/up/1", "blocks/down/1"} in tried
    assert main(["export", "scanned", "--minimize", "memory", "--max-drop", "50%", "-o", "policy.json"]) == 0
    assert main(["verify", "policy.json", "scanned.py", "--max-drop", "50%"]) in (0, 1)  # runs; the clock decides
    assert '"split_scans": true' in Path("policy.json").read_text()
    task = tuner.load_task("scanned.py")
    policy = tuner.load_policy("policy.json")
    model = tuner.prepare(task.apply, task.params, policy)
    x = task.search.inputs[0][:64]
    expected = task.apply(task.params, x)
    np.testing.assert_allclose(model(model.params, x), expected, rtol=0.1, atol=0.1)

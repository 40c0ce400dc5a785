"""A task that is timed with two kinds of call: search in a child, front, show, export, verify, resume."""

import json
from pathlib import Path

import pytest

from tuner.cli import main
from tuner.study import open_study

TASK = """
import jax.numpy as jnp
import numpy as np
import tuner

weight = 64

def apply(params, x):
    return jnp.tanh(x @ params["up"]).mean(1) @ params["down"]

def task():
    random = np.random.default_rng(0)
    params = {"up": random.standard_normal((32, 64), np.float32), "down": random.standard_normal((64, 5), np.float32)}
    x = random.standard_normal((96, 12, 32), np.float32)
    labels = np.asarray(apply(params, x)).argmax(1)
    shapes = {"prefill": tuner.Shape(batch_size=16), "decode": tuner.Shape(inputs=x[:1, :1], weight=weight)}
    return tuner.Task(name="seq", apply=apply, params=params, inputs=x, labels=labels, batch_size=16, shapes=shapes)
"""


@pytest.mark.slow
def test_each_kind_of_call_is_measured_shown_exported_and_verified(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("seq.py").write_text(TASK)
    search = ["search", "seq.py", "--trials", "3", "--max-drop", "50%"]
    assert main([*search, "--budget", "5m"]) == 0
    assert "Latency is that of the weighted sum 1 x prefill + 64 x decode." in capsys.readouterr().err
    assert main(["front", "seq", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert all(list(point["shapes"]) == ["prefill", "decode"] for point in points)
    assert all(point["shapes"]["decode"]["weight"] == 64 for point in points)
    trial = next(p.trial for p in open_study("seq").points() if p.policy is not None and not p.is_baseline)
    assert main(["show", "seq", str(trial)]) == 0
    shown = capsys.readouterr().out
    assert "counted once" in shown
    assert "counted 64 times" in shown
    assert main(["export", "seq", "--point", str(trial), "--unconfirmed", "-o", "policy.json"]) == 0
    capsys.readouterr()
    assert main(["verify", "policy.json", "seq.py", "--max-drop", "50%"]) in (0, 1)  # runs; the clock decides
    assert "decode x 64" in capsys.readouterr().out
    # Another weight is another objective.
    Path("seq.py").write_text(TASK.replace("weight = 64", "weight = 2"))
    assert main([*search, "--budget", "1s"]) == 2
    refusal = capsys.readouterr().err
    assert (
        "was begun with the input shapes 1 x prefill + 64 x decode and cannot go on with 1 x prefill + 2 x" in refusal
    )
    assert main(["verify", "policy.json", "seq.py", "--max-drop", "50%"]) in (0, 1)
    assert "input shapes: 1 x prefill + 64 x decode there, 1 x prefill + 2 x decode here" in capsys.readouterr().out

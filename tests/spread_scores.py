"""Run with eight host devices: evaluations spread over them and on one alone; prints what became of them as JSON."""

import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tuner
from search_spaces import Precision
from tests.programs import normal
from tests.sharded_programs import place, plain
from tuner.capturing import capture_task
from tuner.drop import Drop
from tuner.measure.evaluator import Evaluator
from tuner.measure.executable import commit, compile_baseline, compile_policy, place_of
from tuner.measure.latency import Effort
from tuner.measure.quality import Scored, Scorer
from tuner.measure.spread import Spread, Spreader
from tuner.measurement import Measurement
from tuner.program import uniform_policy

FOREVER_S = 1e9
HOME = jax.devices()[0]


def across_examples(params: Any, x: Any) -> Any:
    """What a batch's other examples change: statistics of the batch, and a shuffle of it."""
    centered = plain(params, x - jnp.mean(x, 0))
    return {"logits": jax.random.permutation(jax.random.key(0), centered), "total": jnp.sum(centered)}


def in_order(params: Any, x: Any) -> Any:
    jax.debug.print("{}", x[0, 0] * 0, ordered=True)  # cannot run on several devices
    return plain(params, x)


def slow(params: Any, x: Any) -> Any:
    square = params["square"]["w"]
    return jax.lax.fori_loop(0, 3000, lambda _, x: jnp.tanh(x @ square), x)


def make_task(apply: Callable[..., Any], params: Any, x: Any, batch_size: int) -> tuner.Task:
    score = lambda outputs, labels: jnp.sum((outputs["logits"] if isinstance(outputs, dict) else outputs) * labels, -1)
    metric = tuner.Metric(name="dot", score=score, larger_is_better=True)
    labels = normal(len(x), 4, seed=5)
    return tuner.Task(
        name="t", apply=apply, params=params, inputs=x, labels=labels, batch_size=batch_size, metric=metric, holdout=0.5
    )


def weights() -> dict[str, Any]:
    return {"up": {"w": normal(8, 16)}, "down": {"w": normal(16, 4)}}


def scores(apply: Callable[..., Any], batch_size: int, precision: str) -> dict[str, Any]:
    """Both ways to score one candidate."""
    task = make_task(apply, weights(), normal(2 * 41, 8), batch_size)
    program = capture_task(task)
    inputs = next(task.search.batches(batch_size))[0]
    baseline = compile_baseline(task.apply, task.params, inputs, HOME)
    policy = uniform_policy(program, Precision.parse(precision))
    executable = compile_policy(task.apply, task.params, program, policy, inputs, HOME)
    scorer = Scorer(task.search, batch_size, task.metric, baseline, HOME)
    spread = Spread(executable, jax.devices(), HOME, inputs)
    one, all_of_them = scorer.measure(executable), scorer.measure(spread)
    assert isinstance(one, Scored)
    return {"same": one == all_of_them, "drop": one.quality.drop}


def chosen(apply: Callable[..., Any], params: Any, scoring_s: float = FOREVER_S, batches: int = 9) -> int:
    """Over how many devices a program's candidates are spread."""
    inputs = (np.asarray(normal(4, 8)),)
    home = place_of(params)
    baseline = compile_baseline(apply, commit(params, home), inputs, home)
    return len(Spreader(baseline, params, home, inputs, batches=batches, scoring_s=scoring_s).devices)


def evaluated() -> dict[str, Any]:
    """A whole evaluator on a program that is slow to score."""
    task = make_task(slow, {"square": {"w": normal(4, 4) / 4}}, normal(400, 4), 2)
    program = capture_task(task)
    effort = Effort(width=1.0, seconds=0.01, pairs=2, least_pairs=2, sample_s=0.0)
    policy = uniform_policy(program, Precision.parse("bf16/bf16/f32"))
    with Evaluator(task, program, max_drop=Drop.parse("100%"), effort=effort) as evaluator:
        measured = evaluator.measure(policy)
        (confirmed,) = evaluator.confirm([policy])
        inputs = next(task.search.batches(2))[0]
        executable = compile_policy(task.apply, task.params, program, policy, inputs, HOME)
        alone = evaluator._scorer.measure(executable)
        timed = {str(sharding) for sharding in jax.tree_util.tree_leaves(executable.compiled.input_shardings)}
        return {
            "devices": len(evaluator._spreader.devices),
            "same": isinstance(measured, Measurement) and measured.quality == alone.quality,
            "confirmed": type(confirmed).__name__,
            "timed on": sorted(timed),
        }


def report() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, apply in (("by example", plain), ("across examples", across_examples)):
        for batch_size in (1, 3, 4):
            for precision in ("f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32"):
                found[f"{name}, batch {batch_size}, {precision}"] = scores(apply, batch_size, precision)
    split = {"up": {"w": place(normal(8, 16), None, "model")}, "down": {"w": place(normal(16, 4), "model", None)}}
    copies = jax.tree_util.tree_map(place, weights())
    return {
        "scores": found,
        "chosen": {
            "slow": chosen(plain, weights()),
            "quick": chosen(plain, weights(), scoring_s=0.0),
            "one batch": chosen(plain, weights(), batches=1),
            "in order": chosen(in_order, weights()),
            "split by the user": chosen(plain, split),
            "copied by the user": chosen(plain, copies),
        },
        "evaluated": evaluated(),
    }


if __name__ == "__main__":
    found = report()
    sys.stdout.write(json.dumps(found))

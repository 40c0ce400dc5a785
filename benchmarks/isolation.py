"""What the process of its own costs that candidates are measured in: `python -m benchmarks.isolation`."""

import sys
import time
from collections.abc import Iterator

import numpy as np

import tuner
from benchmarks import command, markdown, transformer
from search_spaces import Precision
from tuner.drop import Drop
from tuner.measure import IsolatedEvaluator
from tuner.measure.latency import median_interval
from tuner.program import uniform_policy
from tuner.task import Task

TITLE = "What isolation costs"
LAYERS, SMOKE_LAYERS = (1, 6, 24), (1,)
QUESTIONS, SMOKE_QUESTIONS = 300, 3
GOAL_MS = 5.0
_IDLE = (sys.executable, "-m", "benchmarks.idle_child")


def report(smoke: bool) -> Iterator[str]:
    """One row per size of a program."""
    rows = [_row(layers, SMOKE_QUESTIONS if smoke else QUESTIONS) for layers in (SMOKE_LAYERS if smoke else LAYERS)]
    titles = ("transformer", "layers of the policy", "start of the child, s", "one question and its answer, ms (95 %)")
    yield (
        "A child that measures nothing and answers at once: what a candidate costs more than in the search's own process. "
        f"Started once in a search. Goal: under {GOAL_MS:g} ms a candidate.\n\n" + markdown.table(titles, rows)
    )


def _row(layers: int, questions: int) -> tuple[str, ...]:
    params, x = transformer.make(layers)
    program = tuner.capture(transformer.apply, params, (x,))
    policy = uniform_policy(program, Precision.parse("i8/i8/i32"))
    inputs = np.concatenate([np.asarray(x)] * 4)
    task = Task(
        name="idle",
        apply=transformer.apply,
        params=params,
        inputs=inputs,
        labels=inputs,
        metric="mse",
        batch_size=len(x),
    )
    started = time.perf_counter()
    with IsolatedEvaluator(task, program, max_drop=Drop(0.01), command=_IDLE) as evaluator:
        ready = time.perf_counter() - started
        samples = []
        for _ in range(questions):
            began = time.perf_counter()
            evaluator.measure(policy)
            samples.append((time.perf_counter() - began) * 1000)
    median, low, high = median_interval(np.asarray(samples))
    return f"{layers} blocks", str(len(policy)), f"{ready:.2f}", f"{median:.2f} ({low:.2f}..{high:.2f})"


def main(argv: list[str] | None = None) -> int:
    """Prints the report."""
    return command.run({TITLE: report}, argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""A short search on every ready study: `python -m benchmarks.studies [--budget 2m]`; the table of studies/README.md."""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tuner
from benchmarks import markdown
from benchmarks.machine import header
from tuner.capturing import capture_task
from tuner.errors import GoalMissed, TunerError
from tuner.measurement import Confirmation
from tuner.program.layer import INPUT
from tuner.report import numbers
from tuner.report.points import drop_text
from tuner.study import Study
from tuner.task_reference import StudyModule, load_study

TITLES = (
    *("study", "model", "library", "data", "batch", "layers", "score in f32", "ms in f32"),
    *("fastest confirmed policy", "latency (95 %)", "drop (95 %)", "weights", "load and capture, s"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """A ready study and what it is, for people."""

    reference: str
    model: str
    library: str
    data: str


READY = (
    Ready(reference="digits_mlp", model="perceptron, 2 x 512", library="bare JAX", data="scikit-learn digits"),
    Ready(reference="fashion_mlp", model="perceptron, 2 x 512", library="stax", data="Fashion-MNIST"),
    Ready(reference="minilm", model="all-MiniLM-L6-v2", library="Equinox", data="VADER sentences"),
    Ready(reference="minilm:single", model="all-MiniLM-L6-v2", library="Equinox", data="VADER sentences"),
    Ready(reference="efficientnet_lite0", model="EfficientNet-Lite0", library="bare JAX", data="Fashion-MNIST"),
    Ready(
        reference="efficientnet_lite0:photographs",
        model="EfficientNet-Lite0",
        library="bare JAX",
        data="20 photographs",
    ),
    Ready(reference="glass_lm", model="Llama-style, 4 layers", library="Haiku", data="alice29.txt"),
    Ready(reference="glass_lm:single", model="Llama-style, 4 layers", library="Haiku", data="alice29.txt"),
    Ready(reference="glass_lm:decode", model="the same, token by token", library="Haiku", data="alice29.txt"),
)


def rows(budget: str, folder: Path, wanted: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """One row per study, as soon as it is searched; one that cannot be loaded says why."""
    for ready in (ready for ready in READY if not wanted or ready.reference in wanted):
        try:
            yield _row(ready, budget, f"sqlite:///{folder / 'studies.db'}")
        except TunerError as error:
            yield (ready.reference, ready.model, ready.library, ready.data, *("-",) * 4, str(error), *("-",) * 4)


def _row(ready: Ready, budget: str, storage: str) -> tuple[str, ...]:
    started = time.perf_counter()
    module = load_study(f"studies.{ready.reference}")
    layers = [layer for layer in capture_task(module.task).layers if layer.kind != INPUT]
    loaded = time.perf_counter() - started
    study = tuner.search(
        module.task, budget=budget, max_drop=module.max_drop, space=module.space, storage=storage, progress=False
    )
    baseline = study.point("baseline").measurement
    return (
        *(ready.reference, ready.model, ready.library, ready.data, str(module.task.batch_size), str(len(layers))),
        numbers.quality(baseline.quality.value),
        numbers.milliseconds(baseline.latency.milliseconds),
        *_best(study, module),
        f"{loaded:.1f}",
    )


def _best(study: Study, module: StudyModule) -> tuple[str, ...]:
    """Label, latency, drop and weights of the fastest confirmed policy inside the study's own drop, by default 1 %."""
    try:
        point = study.choose()
    except GoalMissed:
        return "none", "-", "-", "-"
    if not isinstance(point.confirmation, Confirmation):
        return point.label, "1", "0", "1"
    share = point.measurement.memory.weight_bytes / study.point("baseline").measurement.memory.weight_bytes
    confirmed = point.confirmation
    return point.label, markdown.ratio(confirmed.latency), drop_text(confirmed.quality), f"{share:.3f}"


def main(argv: list[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="2m", help="of each search (default 2m)")
    parser.add_argument("study", nargs="*", help="which ones (default all)")
    asked = parser.parse_args(argv)
    budget, wanted = asked.budget, asked.study
    print(header(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, row in enumerate(rows(budget, Path(folder), wanted)):  # each as soon as it is there: all take long
            lines = markdown.table(TITLES, [row]).splitlines()
            print("\n".join([""] * (number == 0) + lines[0 if number == 0 else 2 :]), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A search with everything real but the measuring: for tests of the loop, its bookkeeping and its resumption."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import Precision, SearchSpace
from tests.factories import make_latency, make_quality
from tuner.diagnosis import Attempt
from tuner.drop import Drop
from tuner.effect import Effect, Screening
from tuner.front import OBJECTIVES
from tuner.measure import KernelTable
from tuner.measurement import Confirmation, Failure, Measurement, Memory, Quality
from tuner.policy import Policy
from tuner.program import Program, capture
from tuner.scales import CalibratedOn, Calibration, LayerScales
from tuner.search.choices import ChoiceSpace
from tuner.search.interrupts import Interrupts
from tuner.search.loop import Loop
from tuner.search.optuna_study import quiet_optuna
from tuner.search.progress import SilentProgress
from tuner.search.settings import check_settings
from tuner.search.spaces import resolve_space
from tuner.store import CandidateRecord, Store, StudyRecord
from tuner.study import Study

SPACE = """
[[rules]]
kinds = ["matmul"]
precisions = ["f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32"]
"""
SPEED = {"original": 1.0, "f32": 0.9, "bf16": 0.5, "f16": 1.1, "i8": 0.3}
LOSS = {"original": 0.0, "f32": 0.0, "bf16": 0.001, "f16": 0.001, "i8": 0.004}


def make_program(layers: int = 3) -> Program:
    """A chain of matrix multiplications."""
    params = {f"layer_{i}": {"kernel": np.ones((8, 8), np.float32)} for i in range(layers)}

    def apply(params: dict[str, dict[str, jax.Array]], x: jax.Array) -> jax.Array:
        for name in sorted(params):
            x = jnp.tanh(x @ params[name]["kernel"])
        return x

    return capture(apply, params, (np.ones((4, 8), np.float32),))


def make_table(choices: Mapping[str, Sequence[Precision]]) -> KernelTable:
    """Times that add up to what the fake evaluator finds, for a baseline of ten milliseconds."""
    layers = [name for name in choices if not name.startswith("input")]
    return KernelTable(
        times={f"{name} {p} plain": SPEED[p.weights.name] / 1000 for name in layers for p in choices[name]},
        signatures={name: ((name, 1),) for name in layers},
        kernels={(name, p): ("plain",) for name in layers for p in choices[name]},
    )


class FakeEvaluator:
    """Numbers that follow from the policy alone; remembers what it was asked for."""

    def __init__(self, on_measure: Callable[[int], None] | None = None) -> None:
        self.measured: list[Policy] = []
        self.casts: list[str] = []
        self.confirmed: list[Policy] = []
        self.outcomes: dict[str, Failure] = {}
        self._on_measure = on_measure
        self.baseline = self._numbers([])

    def measure(self, policy: Policy) -> Measurement | Failure:
        if self._on_measure is not None:
            self._on_measure(len(self.measured))
        self.measured.append(policy)
        weights = [precision.weights.name for precision in policy.precisions.values() if not precision.is_original]
        failures = [self.outcomes[weight] for weight in weights if weight in self.outcomes]
        return failures[0] if failures else self._numbers(weights)

    def measure_cast(self, name: str) -> Measurement | Failure:
        self.casts.append(name)
        return self._numbers([])

    def confirm(self, policies: Sequence[Policy]) -> list[Confirmation | Failure]:
        self.confirmed += policies
        return [Confirmation(latency=make_latency(0.5), quality=make_quality(0.0)) for _ in policies]

    def calibrate(self, choices: Mapping[str, Sequence[Precision]]) -> Calibration:
        numbers = {name: {str(p): LayerScales(scale=(0.1,)) for p in wanted} for name, wanted in choices.items()}
        return Calibration(on=CalibratedOn(examples=8, split="search", fingerprint="abc"), numbers=numbers)

    def try_precision(self, operation: str, precision: Precision) -> Attempt:
        return Attempt(effective="as requested")

    def check(self) -> None:
        pass

    def time_kernels(self, choices, *, known, budget_s) -> KernelTable:
        return make_table(choices)

    def screen(self, choices, kernels, *, known, budget_s) -> Screening:
        effects = {
            name: {
                str(p): Effect(error=LOSS[p.weights.name], kl=LOSS[p.weights.name] ** 2, examples=8)
                for p in taken
                if p.weights.name not in ("original", "f32")
            }
            for name, taken in choices.items()
        }
        return Screening(effects=effects, seconds=0.1)

    def foresee(self, choices, kernels, ordered, allowed) -> list[Quality | None]:
        drops = [sum(LOSS[p.weights.name] for p in one.values()) for one in ordered]
        return [make_quality(drop) for drop in drops]

    def _numbers(self, weights: Sequence[str]) -> Measurement:
        ratio = 1.0 - sum(1 - SPEED[weight] for weight in weights) / 10
        drop = sum(LOSS[weight] for weight in weights)
        memory = Memory(total_bytes=int(1000 * ratio), weight_bytes=int(500 * ratio))
        return Measurement(latency=make_latency(ratio), quality=make_quality(drop), memory=memory)


class Notes(SilentProgress):
    """Remembers what a person would have read."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class Bench:
    """One study in one file, searched as often as a test likes."""

    def __init__(
        self,
        file: Path,
        *,
        layers: int = 3,
        space: str = SPACE,
        objectives: Sequence[str] = OBJECTIVES,
        name: str = "bench",
    ):
        self.name = name
        self.file = file
        self.url = f"sqlite:///{file}"
        self.program = make_program(layers)
        resolution = resolve_space(SearchSpace.parse(space, "test"), self.program).resolution
        self.space = ChoiceSpace.from_resolution(resolution)
        self.evaluator = FakeEvaluator()
        self.display = Notes()
        self.objectives = tuple(objectives)

    def search(self, *, evaluator: FakeEvaluator | None = None, rank=list, **settings: object) -> Study:
        """One run; `settings` are those of `tuner.search`."""
        checked = check_settings(study=self.name, storage=self.url, **settings)
        with Store.open(self.url) as store, quiet_optuna(), Interrupts() as interrupts:
            record = store.find_study(self.name) or self._create(store, checked.sampler)
            loop = Loop(
                store=store,
                record=record,
                program=self.program,
                space=self.space,
                larger_is_better=True,
                evaluator=evaluator or self.evaluator,
                settings=checked,
                budget=checked.budget(),
                display=self.display,
                interrupts=interrupts,
                rank=rank,
            )
            loop.run()
            loop.confirm()
        return Study(name=self.name, storage=self.url)

    def candidates(self) -> list[CandidateRecord]:
        with Store.open(self.url) as store:
            return store.candidates(store.find_or_raise_study(self.name).id)

    def _create(self, store: Store, sampler: str) -> StudyRecord:
        record = store.create_study(
            StudyRecord(
                name=self.name,
                objectives=self.objectives,
                max_drop=str(Drop(0.01)),
                sampler=sampler,
                seed=0,
                space=SPACE,
                program=self.program.signature,
                batch_size=4,
                metric="top1",
                tool_version="test",
            )
        )
        store.save_layers(record.id, self.program.layers)
        return record

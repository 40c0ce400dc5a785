"""Kernels that win alone are compared in the whole program once, and what loses is dropped, before the first candidate."""

import math
from dataclasses import replace
from typing import Any

import pytest

from search_spaces import ORIGINAL, Precision
from tests.factories import make_measurement, make_study
from tests.programs import normal
from tuner.kernel_choice import Comparison, unknown
from tuner.measure.kernel_table import KernelTable
from tuner.program import capture
from tuner.search.kernel_checks import groups_of, settle_kernels
from tuner.search.progress import SilentProgress
from tuner.store import Store, StudyCounts

F32, I8 = Precision.parse("f32/f32/f32"), Precision.parse("i8/i8/i32")
CHOICES = {"a": (ORIGINAL, F32, I8), "b": (ORIGINAL, F32)}


def at(ratio: float) -> Comparison:
    return Comparison(ratio=ratio, low=ratio - 0.01, high=ratio + 0.01)


class Evaluator:
    """Answers by the kernel that only the first policy has."""

    baseline = make_measurement()

    def __init__(self, answers: dict[str, Comparison]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def compare(self, policy: Any, against: Any) -> Comparison:
        different = [
            (str(one.precision), one.kernel)
            for (_, one), (_, other) in zip(policy.assignments, against.assignments, strict=True)
            if one != other
        ]
        ((precision, kernel),) = set(different)
        assert all(a.kernel == "plain" for n, a in against.assignments if policy[n] != a)
        self.asked.append(f"{kernel} {precision} {len(different)}")
        return self.answers[kernel]


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def program() -> Any:
    params = {"a": normal(8, 4), "b": normal(8, 4)}
    return capture(lambda p, x: (x @ p["a"], x @ p["b"]), params, (normal(1, 8),))


def table(**seconds: float) -> KernelTable:
    times = {f"s {F32} {name}": s for name, s in seconds.items()}
    kernels = ("plain", "transposed", "padded")
    return KernelTable(
        times=times,
        signatures={"a": (("s", 1),), "b": (("s", 1),)},
        kernels={("a", F32): kernels, ("b", F32): kernels, ("a", I8): kernels},
    )


@pytest.fixture
def store(tmp_path: Any) -> Any:
    with Store.open(tmp_path / "precision.db") as opened:
        yield opened


def settle(store: Any, evaluator: Any, timed: KernelTable, record: Any = None, seconds: float = 60.0) -> Any:
    record = store.create_study(make_study()) if record is None else record
    notes = Notes()
    found = settle_kernels(store, record, evaluator, program(), CHOICES, timed, seconds, notes)
    return found, store.find_or_raise_study(record.name), notes.notes


def test_what_wins_in_the_whole_program_is_kept_and_said(store: Any) -> None:
    evaluator = Evaluator({"transposed": at(0.5)})
    found, record, notes = settle(store, evaluator, table(plain=1.0, transposed=0.5, padded=0.8))
    assert evaluator.asked == ["transposed f32/f32/f32 2"]
    assert [found.best(layer, F32) for layer in "ab"] == ["transposed", "transposed"]
    assert record.kernels.chosen == {"f32/f32/f32": {"a": "transposed", "b": "transposed"}}
    assert [(check.kernel, check.layers, check.loses) for check in record.kernels.checks] == [
        ("transposed", ("a", "b"), False)
    ]
    assert len(notes) == 1
    assert "0.500 (0.490..0.510)" in notes[0]


def test_what_loses_is_dropped_and_the_next_one_compared(store: Any) -> None:
    evaluator = Evaluator({"transposed": at(1.1), "padded": at(0.9)})
    found, record, notes = settle(store, evaluator, table(plain=1.0, transposed=0.5, padded=0.8))
    assert evaluator.asked == ["transposed f32/f32/f32 2", "padded f32/f32/f32 2"]
    assert found.best("a", F32) == "padded"
    assert [check.loses for check in record.kernels.checks] == [True, False]
    assert notes[0].endswith("dropped.")


def test_what_only_may_be_slower_or_cannot_be_compared_stays(store: Any) -> None:
    unsure = Comparison(ratio=1.02, low=0.98, high=1.06)
    found, _, _ = settle(store, Evaluator({"transposed": unsure}), table(plain=1.0, transposed=0.5))
    assert found.best("a", F32) == "transposed"
    record = store.create_study(make_study(name="another"))
    found, _, _ = settle(store, Evaluator({"transposed": unknown("no room")}), table(plain=1.0, transposed=0.5), record)
    assert found.best("a", F32) == "transposed"


def test_a_kernel_that_does_not_run_in_the_program_is_dropped(store: Any) -> None:
    gone = Comparison(ratio=math.inf, low=math.inf, high=math.inf, problem="it crashes")
    found, _, _ = settle(store, Evaluator({"transposed": gone}), table(plain=1.0, transposed=0.5))
    assert found.best("a", F32) == "plain"


def test_a_study_keeps_its_kernels(store: Any) -> None:
    _, record, _ = settle(store, Evaluator({"transposed": at(0.5)}), table(plain=1.0, transposed=0.5))
    faster_now = table(plain=1.0, transposed=0.5, padded=0.1)
    found, again, notes = settle(store, Evaluator({}), faster_now, record)
    assert found.best("a", F32) == "transposed"
    assert again.kernels == record.kernels
    assert notes == []


def test_a_study_from_before_there_was_a_choice_goes_by_its_times(store: Any) -> None:
    record = replace(store.create_study(make_study()), counts=StudyCounts(measured=3))
    found, again, _ = settle(store, Evaluator({}), table(plain=1.0, transposed=0.5), record)
    assert found.best("a", F32) == "transposed"
    assert again.kernels is None


def test_without_time_nothing_is_compared_and_the_choice_is_kept_all_the_same(store: Any) -> None:
    found, record, _ = settle(store, Evaluator({}), table(plain=1.0, transposed=0.5), seconds=0.0)
    assert found.best("a", F32) == "transposed"
    assert (record.kernels.chosen, record.kernels.checks) == (
        {"f32/f32/f32": {"a": "transposed", "b": "transposed"}},
        (),
    )


def test_what_saves_next_to_nothing_is_not_worth_a_comparison(store: Any) -> None:
    tiny = 1e-5 * Evaluator.baseline.latency.milliseconds / 1000
    found, _, _ = settle(store, Evaluator({}), table(plain=tiny, transposed=tiny / 2))
    assert found.best("a", F32) == "transposed"


def test_where_the_plain_kernel_was_not_timed_there_is_nothing_to_compare_with() -> None:
    assert groups_of(table(plain=math.nan, transposed=0.5), CHOICES) == []

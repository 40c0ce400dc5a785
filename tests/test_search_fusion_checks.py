"""Each kind of fusion is compared in the whole program of one precision once, and those that pay are in every policy."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

from search_spaces import ORIGINAL, Precision
from tests.factories import make_study
from tests.programs import normal
from tests.test_search_kernel_checks import Notes, at
from tuner.kernel_choice import FusionCheck, KernelChoice, choice_from_json, choice_to_json, unknown
from tuner.measure.kernel_table import KernelTable
from tuner.program import capture, make_policy, uniform_policy
from tuner.scales import Calibration
from tuner.search.fusion_checks import settle_fusions
from tuner.search.study_policy import with_fusions
from tuner.store import Store, StudyCounts

F32, BF16 = Precision.parse("f32/f32/f32"), Precision.parse("bf16/bf16/f32")
CHOICES = {"input": (ORIGINAL,), "a": (ORIGINAL, F32, BF16), "b": (ORIGINAL, F32)}


def normed_net() -> Any:
    params = {"a": normal(8, 8), "b": normal(8, 4), "scale": normal(8), "shift": normal(8)}
    apply = lambda p, x: jnp.tanh(x @ p["a"] * p["scale"] + p["shift"]) @ p["b"]
    return capture(apply, params, (normal(2, 8),))


class Evaluator:
    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def compare(self, policy: Any, against: Any) -> Any:
        assert replace(policy, fusions=()) == against
        self.asked.append(", ".join(map(str, policy.fusions)))
        return self.answers[policy["a"].precision.weights.name]


@pytest.fixture
def store(tmp_path: Any) -> Any:
    with Store.open(tmp_path / "precision.db") as opened:
        yield opened


def settle(store: Any, evaluator: Any, record: Any = None, seconds: float = 60.0) -> Any:
    record = store.create_study(make_study()) if record is None else record
    notes = Notes()
    found = settle_fusions(
        store, record, evaluator, normed_net(), CHOICES, KernelTable(), Calibration(), seconds, notes
    )
    return found, notes.notes, store.find_or_raise_study(record.name)


def test_what_is_no_slower_is_used_in_layers_of_that_precision(store: Any) -> None:
    evaluator = Evaluator(f32=at(0.9), bf16=at(1.2))
    found, notes, _ = settle(store, evaluator)
    assert evaluator.asked == ["affine a", "affine a"]
    assert notes == [
        "Fusion affine in f32/f32/f32 (1 edge): 0.900 (0.890..0.910) of the time without it in the whole program.",
        "Fusion affine in bf16/bf16/f32 (1 edge): 1.200 (1.190..1.210) of the time without it in the whole program, dropped.",
    ]
    program = normed_net()
    fused = with_fusions(uniform_policy(program, F32), program, found)
    assert [str(fusion) for fusion in fused.fusions] == ["affine a"]
    for other in (uniform_policy(program, BF16), make_policy(program, {"b": F32})):
        assert with_fusions(other, program, found) == other


def test_what_cannot_be_compared_is_not_used(store: Any) -> None:
    found, notes, _ = settle(store, Evaluator(f32=unknown("out of memory"), bf16=at(1.0)))
    assert [check.pays for check in found] == [False, True]
    assert notes[0].endswith("could not be compared in the whole program, dropped: out of memory.")


def test_a_study_keeps_its_fusions(store: Any) -> None:
    found, _, record = settle(store, Evaluator(f32=at(0.9), bf16=at(1.2)))
    again, notes, _ = settle(store, Evaluator(), record)
    assert (again, notes) == (found, [])
    begun_before = replace(record, kernels=KernelChoice(), counts=StudyCounts(measured=3))
    assert settle(store, Evaluator(), begun_before)[0] == ()


def test_without_time_nothing_is_fused(store: Any) -> None:
    assert settle(store, Evaluator(), seconds=-1.0)[0] == ()


def test_the_choice_survives_the_store() -> None:
    checks = (FusionCheck(precision="f32/f32/f32", kind="affine", edges=2, compared=at(0.9)),)
    for choice in (KernelChoice(), KernelChoice(fusions=()), KernelChoice(fusions=checks)):
        assert choice_from_json(choice_to_json(choice)) == choice
    before = {name: value for name, value in choice_to_json(KernelChoice()).items() if name != "fusions"}
    assert choice_from_json(before).fusions is None

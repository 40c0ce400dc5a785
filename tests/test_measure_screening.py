import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import ORIGINAL, Precision
from tests.test_measure_evaluator import PARAMS, apply, make_evaluator, make_task
from tuner.capturing import capture_task
from tuner.effect import Effect
from tuner.measure import screening
from tuner.measure.screening import Screener, screen
from tuner.program import capture, make_policy, prepare
from tuner.program.switchboard import CannotSwitch

BF16, INT8 = Precision.parse("bf16/bf16/f32"), Precision.parse("i8/i8/i32")
CHOICES = {"fc1": [ORIGINAL, BF16, INT8], "fc2": [ORIGINAL, BF16, INT8]}
PAIRS = [("fc1", BF16), ("fc1", INT8), ("fc2", BF16), ("fc2", INT8)]


def make_screener(task, choices=CHOICES):
    return Screener(task, capture_task(task), choices, {}, jax.devices()[0])


def test_an_effect_is_the_error_of_that_policy_on_the_calibration_examples():
    task = make_task(batch_size=100)
    found = make_screener(task).screen(PAIRS, 60.0)
    assert list(found) == PAIRS
    program = capture_task(task)
    inputs = task.calibration.inputs
    program = capture(task.apply, task.params, inputs)
    written = np.asarray(apply(PARAMS, *inputs), np.float64)
    for (name, precision), effect in found.items():
        model = prepare(apply, PARAMS, make_policy(program, {name: precision}), program=program)
        outputs = np.asarray(model(model.params, *inputs), np.float64)
        assert effect.error == pytest.approx(np.linalg.norm(outputs - written) / np.linalg.norm(written), rel=1e-3)
        own = jax.nn.log_softmax(written)
        kl = (np.exp(own) * (own - jax.nn.log_softmax(outputs))).sum(-1).mean()
        assert effect.kl == pytest.approx(float(kl), rel=0.05, abs=1e-7)
        assert effect.examples == len(inputs[0]) == 256


def test_coarser_formats_have_larger_effects():
    found = make_screener(make_task()).screen(PAIRS, 60.0)
    assert 0 < found["fc1", BF16].error < found["fc1", INT8].error < 0.1
    both = make_screener(make_task()).effect({"fc1": INT8, "fc2": INT8})
    assert both.error > max(found["fc1", INT8].error, found["fc2", INT8].error)


def test_what_is_no_longer_finite_is_infinitely_far():
    params = {**PARAMS, "fc1": {**PARAMS["fc1"], "w": PARAMS["fc1"]["w"] * 1e6}}
    f16 = Precision.parse("f16/f16/f16")
    screener = make_screener(make_task(params=params), {"fc1": [f16]})
    assert math.isinf(screener.screen([("fc1", f16)], 60.0)["fc1", f16].error)


def test_outputs_of_one_number_have_no_divergence():
    task = make_task(apply=lambda params, x: apply(params, x)[:, 0], metric=lambda outputs, labels: -jnp.abs(outputs))
    assert make_screener(task).screen(PAIRS[:1], 60.0)["fc1", BF16].kl is None


def test_without_time_nothing_is_found_and_it_says_how_much_is_missing():
    evaluator, _ = make_evaluator(make_task())
    with evaluator:
        found = evaluator.screen(CHOICES, {}, known={}, budget_s=0.0)
    assert (found.count, found.missing, found.refusal) == (0, 4, None)


def test_what_is_known_is_not_found_again(monkeypatch):
    task = make_task()
    program = capture_task(task)
    known = {"fc1": {str(BF16): Effect(error=0.5, kl=None, examples=1)}}
    ran = []
    monkeypatch.setattr(Screener, "_add", lambda self, sums, precisions, number: ran.append(precisions))
    found = screen(program, CHOICES, lambda: make_screener(task), known, 60.0)
    assert found.effects["fc1"][str(BF16)].error == 0.5
    assert {next(iter(one.items())) for one in ran} == set(PAIRS[1:])
    everything = {name: {str(p): Effect(error=0.1, kl=None, examples=1) for p in (BF16, INT8)} for name in CHOICES}
    assert screen(program, CHOICES, lambda: pytest.fail("built"), everything, 60.0).effects == everything


def test_a_search_goes_on_without_where_there_is_none(monkeypatch):
    def refuse(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 12 bytes")

    evaluator, _ = make_evaluator(make_task())
    with evaluator:
        monkeypatch.setattr(screening, "Switchboard", refuse)
        found = evaluator.screen(CHOICES, {}, known={}, budget_s=60.0)
        assert found.refusal == "the weights of all precisions do not fit the memory side by side"
        assert (found.count, found.missing) == (0, 4)
        other, _ = make_evaluator(make_task(), baseline="alternate")
        with other:
            assert "--baseline alternate" in other.screen(CHOICES, {}, known={}, budget_s=60.0).refusal


def test_a_program_that_does_not_compile_says_so(monkeypatch):
    def refuse(*_):
        raise ValueError("no such instruction")

    monkeypatch.setattr(screening, "Switchboard", refuse)
    with pytest.raises(CannotSwitch, match=r"does not compile or run.*no such instruction"):
        make_screener(make_task())


def test_padding_does_not_count():
    whole = make_screener(make_task(batch_size=256)).screen(PAIRS[:1], 60.0)["fc1", BF16]
    padded = make_screener(make_task(batch_size=100)).screen(PAIRS[:1], 60.0)["fc1", BF16]
    assert padded.examples == whole.examples == 256
    assert padded.error == pytest.approx(whole.error, rel=1e-5)


def test_a_few_batches_are_enough():
    screener = make_screener(make_task(batch_size=32))
    assert screener.screen(PAIRS, 60.0)["fc1", BF16].examples == 32 * 4


def test_policies_are_scored_without_being_compiled():
    evaluator, program = make_evaluator(make_task())
    with evaluator:
        ordered = [{"fc1": INT8, "fc2": INT8}, {"fc1": INT8}, {"fc1": BF16}, {}]
        found = evaluator.foresee(CHOICES, {}, ordered, 1.0)
        measured = evaluator.measure(make_policy(program, ordered[0]))
        # The first keeps a drop of everything; those that say so on the way are scored, the others need not be.
        assert (found[0].value, found[0].drop) == (measured.quality.value, measured.quality.drop)
        assert found[0].fidelity == pytest.approx(measured.quality.fidelity, rel=1e-3)
        assert found[3] is None
        exact = evaluator.foresee(CHOICES, {}, ordered, -1.0)
        assert exact[3].drop == 0.0


def test_what_has_no_switchboard_is_not_scored(monkeypatch):
    monkeypatch.setattr(screening, "Switchboard", lambda *_: 1 / 0)
    evaluator, _ = make_evaluator(make_task())
    with evaluator:
        assert evaluator.foresee(CHOICES, {}, [{}, {}], 0.01) == [None, None]


def test_what_was_built_is_used_although_building_took_all_the_time(monkeypatch):
    clock, build = [0.0], screening.Switchboard

    def slowly(*given):
        clock[0] += 1.0
        return build(*given)

    monkeypatch.setattr(screening, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(screening, "Switchboard", slowly)
    evaluator, _ = make_evaluator(make_task())
    with evaluator:
        found = evaluator.screen(CHOICES, {}, known={}, budget_s=1e-6)
    assert (found.count, found.missing) == (4, 0)
    assert found.seconds == 1.0

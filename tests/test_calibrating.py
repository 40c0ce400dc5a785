"""From a task to static scales, through a search and a policy file, and back without the data."""

import json

import jax
import numpy as np
import pytest

import tuner
from search_spaces import Precision, SearchSpace
from tests import programs
from tuner.calibrating import MOST_BATCHES, calibrate, calibrate_task, calibrated_on
from tuner.capturing import capture_task
from tuner.errors import InputError, PolicyError

STATIC = "i8/i8/i32@static"
WEIGHTS = {"first": {"w": programs.normal(8, 16)}, "second": {"w": programs.normal(16, 4)}}


def apply(params, x):
    return jax.nn.relu(x @ params["first"]["w"]) @ params["second"]["w"]


def make_task(**settings):
    x = programs.normal(200, 8, seed=3)
    settings = {"inputs": x, "labels": (np.arange(200) % 4).astype(np.int32), "batch_size": 32, **settings}
    return tuner.Task(name="tiny", apply=apply, params=WEIGHTS, **settings)


def static_policy(task, text=STATIC):
    return tuner.uniform_policy(capture_task(task), text)


def test_a_policy_made_by_hand_gets_its_numbers_from_the_search_split():
    task = make_task()
    policy = calibrate(task, static_policy(task))
    examples = task.calibration.inputs[0][:96]  # three whole batches of the hundred
    assert dict(policy.scales)["first"].scale == (pytest.approx(np.abs(examples).max() / 127),)
    assert (policy.calibrated_on.examples, policy.calibrated_on.split) == (96, "search")
    assert calibrate(task, static_policy(task)) == policy


def test_nothing_of_the_holdout_split_is_looked_at():
    x = programs.normal(200, 8, seed=3)
    held = (x[100:] * 1000, np.zeros(100, np.int32))
    one = make_task(inputs=x[:100], labels=(np.arange(100) % 4).astype(np.int32), holdout=held)
    policy = calibrate(one, static_policy(one))
    assert dict(policy.scales)["first"].scale[0] * 127 <= np.abs(x[:100]).max() * 1.001


def test_examples_that_were_given_are_called_so():
    task = make_task(calibration=5 * programs.normal(64, 8, seed=9))
    on = calibrated_on(task)
    assert (on.examples, on.split) == (64, "given")
    assert on.fingerprint != calibrated_on(make_task()).fingerprint


def test_fewer_examples_than_a_batch_are_repeated():
    x = programs.normal(5, 8, seed=9)
    task = make_task(calibration=x)
    assert calibrated_on(task).examples == 5
    policy = calibrate(task, static_policy(task))
    assert dict(policy.scales)["first"].scale == (pytest.approx(np.abs(x).max() / 127),)


def test_of_many_examples_the_first_are_looked_at():
    x = programs.normal(4 * (MOST_BATCHES + 3), 8, seed=9)
    task = make_task(calibration=x, batch_size=4)
    assert calibrated_on(task).examples == 4 * MOST_BATCHES
    policy = calibrate(task, static_policy(task))
    assert dict(policy.scales)["first"].scale == (pytest.approx(np.abs(x[: 4 * MOST_BATCHES]).max() / 127),)


def test_a_layer_without_finite_activations_is_named():
    def broken(params, x):
        return (jax.nn.relu(x @ params["first"]["w"]) + np.float32(np.inf)) @ params["second"]["w"]

    task = make_task()
    object.__setattr__(task, "apply", broken)
    with pytest.raises(InputError) as caught:
        calibrate(task, static_policy(task))
    assert str(caught.value).startswith(f"layer 'second' cannot be calibrated for {STATIC}: ")
    assert "of its activations are NaN or infinite on the calibration examples; give the task other" in str(
        caught.value
    )


def test_a_policy_for_another_program_is_refused():
    other = tuner.make_policy(
        tuner.capture(lambda p, x: x @ p["w"], {"w": programs.normal(8, 3)}, (programs.normal(2, 8),)), {}
    )
    with pytest.raises(PolicyError, match="names layer 'w', which this program does not have"):
        calibrate(make_task(), other)


def test_precisions_that_need_no_numbers_cost_nothing():
    task = make_task()
    found = calibrate_task(task, capture_task(task), {"first": (Precision.parse("i8/i8/i32"),)})
    assert (dict(found.numbers), found.on) == ({}, None)


def test_a_policy_file_reproduces_a_static_point_without_the_data(tmp_path):
    task = make_task()
    policy = calibrate(task, static_policy(task, "i8/i8/i32@static,asym,bias"))
    policy.save(tmp_path / "policy.json")
    loaded = tuner.load_policy(tmp_path / "policy.json")
    assert json.loads((tmp_path / "policy.json").read_text())["format"] == 2
    assert (loaded, loaded.hash, loaded.calibrated_on) == (policy, policy.hash, policy.calibrated_on)
    x = task.holdout.inputs[0][:32]
    outputs = [tuner.prepare(apply, WEIGHTS, one) for one in (policy, loaded)]
    np.testing.assert_array_equal(*(model(model.params, x) for model in outputs))


SPACE = SearchSpace.parse(
    '[[rules]]\nkinds = ["matmul"]\nprecisions = ["i8/i8/i32@static", "i8/i8/i32@static,mse,bias", "i4/f32/f32"]\n',
    "static",
)


@pytest.mark.slow
def test_a_search_calibrates_once_and_keeps_what_it_found(tmp_path):
    storage = f"sqlite:///{tmp_path / 'precision.db'}"
    task = make_task()
    settings = {"space": SPACE, "storage": storage, "isolation": "none", "max_drop": 0.5, "progress": False}
    study = tuner.search(task, trials=4, **settings)
    measured = [point for point in study.points() if point.policy is not None and point.policy.scales]
    assert {point.label for point in measured} >= {STATIC}
    expected = calibrate(task, static_policy(task))
    for point in measured:
        assert point.policy.calibrated_on == expected.calibrated_on
        if point.label == STATIC:
            assert point.policy.scales == expected.scales
    again = tuner.search(task, trials=5, **settings)
    assert {point.policy.hash for point in again.points() if point.policy} >= {point.policy.hash for point in measured}


@pytest.mark.slow
def test_a_layer_that_cannot_be_calibrated_keeps_its_other_choices(tmp_path, capsys):
    def branching(params, x):
        return (
            jax.lax.cond(x[0, 0] > 1e9, lambda: x @ params["first"]["w"] * 2, lambda: x @ params["first"]["w"][:, ::-1])
            @ params["second"]["w"]
        )

    task = make_task()
    object.__setattr__(task, "apply", branching)
    study = tuner.search(
        task, trials=3, space=SPACE, storage=f"sqlite:///{tmp_path / 'p.db'}", isolation="none", max_drop=0.5
    )
    assert (
        "takes no precision that needs calibration: it did not run on the calibration examples"
        in capsys.readouterr().err
    )
    assert len(study.points()) >= 3

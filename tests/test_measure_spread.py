"""Batches of an evaluation over several devices, in a process with eight of them."""

import json
import os
import subprocess
import sys

import jax
import pytest

from tests.programs import normal
from tuner.measure.spread import devices_to_spread_over

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found():
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.spread_scores"], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_scores_are_those_of_one_device_whatever_the_batches(found):
    """41 examples, so that neither the last batch nor the last round of eight batches is full."""
    assert len(found["scores"]) == 18
    for name, scores in found["scores"].items():
        assert scores["same"], name
    assert any(scores["drop"] != 0 for scores in found["scores"].values())


def test_several_devices_are_taken_where_that_pays(found):
    assert found["chosen"]["slow"] == 8
    assert found["chosen"]["quick"] == found["chosen"]["one batch"] == 0


def test_what_cannot_run_on_several_devices_stays_on_one(found):
    assert found["chosen"]["in order"] == 0


def test_parameters_that_the_user_has_split_stay_as_they_are_and_copies_are_made_use_of(found):
    assert found["chosen"]["split by the user"] == 0
    assert found["chosen"]["copied by the user"] == 8


def test_a_search_scores_on_all_devices_and_times_on_one(found):
    evaluated = found["evaluated"]
    assert evaluated["devices"] == 8
    assert evaluated["same"]
    assert evaluated["confirmed"] == "Confirmation"
    assert len(evaluated["timed on"]) == 1
    assert "SingleDeviceSharding" in evaluated["timed on"][0]


def test_without_a_second_device_there_is_nothing_to_choose():
    assert devices_to_spread_over({"w": normal(2, 2)}) == tuple(jax.local_devices())

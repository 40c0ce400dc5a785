"""`tuner layers --time`."""

import json

import pytest

from tests.test_cli_search import Fake, _tiny, complains, run  # noqa: F401  _tiny is a fixture
from tuner.search import layer_times


@pytest.fixture(autouse=True)
def _timed(monkeypatch):
    monkeypatch.setattr(layer_times, "make_evaluator", Fake)
    monkeypatch.setattr(Fake, "layer_shares", lambda *_: {"first": 0.5, "second": 0.25}, raising=False)


def test_layers_timed_one_by_one(capsys):
    out, err = run(capsys, "layers", "tiny.py", "--time")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0][:2] == ["layer", "share"]
    assert rows[1] == ["first", "50.0%", "1.00", "i8/i8/i32", "plain", "0.300", "0.300", "35.0%"]
    assert "these layers take 75% of" in out
    assert "Timing the kernels" in err


def test_layer_times_as_json(capsys):
    form = json.loads(run(capsys, "layers", "tiny.py", "--time", "--json")[0])
    assert (form["layers"][0]["name"], form["layers"][0]["share"]) == ("first", 0.5)


def test_time_and_screen_exclude_each_other(capsys):
    said = complains(capsys, "layers", "tiny.py", "--time", "--screen")
    assert "give --time or --screen, not both; --screen shows the times too" in said

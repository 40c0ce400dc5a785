import json

import pytest

from tests.test_report_doctor import DIAGNOSIS, GOLDEN
from tuner.cli import main


@pytest.fixture
def asked(monkeypatch):
    calls = []

    def diagnose(storage, *, again, say, detail):
        calls.append((storage, again))
        say("Probing this device.")
        detail("trying matmul in bf16/bf16/f32")
        return DIAGNOSIS

    monkeypatch.setattr("tuner.doctor.diagnose", diagnose)
    return calls


def test_the_doctor_prints_what_it_found_and_what_next(asked, capsys):
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert out == GOLDEN
    assert err == "Probing this device.\nNext: tuner search TASK\n"
    assert asked == [("sqlite:///precision.db", False)]


def test_the_doctor_as_json(asked, capsys):
    assert main(["doctor", "--json", "--again", "--storage", "sqlite:///other.db", "-q"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["device"]["platform"] == "cpu"
    assert err == ""
    assert asked == [("sqlite:///other.db", True)]


def test_verbose_names_each_operation(asked, capsys):
    assert main(["doctor", "-v"]) == 0
    assert "trying matmul in bf16/bf16/f32\n" in capsys.readouterr().err

from pathlib import Path

import pytest

import tuner
from tests.test_files import ordinary_user
from tests.test_measure_probing import Fake
from tuner.diagnosis import PROBE_KEY, probe_from_json
from tuner.doctor import diagnose, kept_probe
from tuner.errors import TunerError
from tuner.measure import device_fingerprint
from tuner.store import Store

URL = "sqlite:///precision.db"


@pytest.fixture
def probers(monkeypatch):
    made = []

    def make():
        made.append(Fake())
        return made[-1]

    monkeypatch.setattr("tuner.measure.probing.make_prober", make)
    return made


def test_a_device_is_probed_once_and_kept(probers):
    said = []
    first = diagnose(URL, say=said.append)
    assert said == ["Probing this device: 25 seconds at most, and what it takes to try everything once."]
    assert first.probe.complete
    assert first.fingerprint == device_fingerprint()
    assert first.notes == ()
    with Store.open(URL) as store:
        kept = probe_from_json(store.find_probe(device_fingerprint(), PROBE_KEY), tuner.__version__)
    assert kept == first.probe == kept_probe(URL)
    second = diagnose(URL, say=said.append)
    assert second.probe == first.probe
    assert len(said) == 1
    assert probers[1].asked == ["closed"]
    assert diagnose(URL, again=True).probe.findings == first.probe.findings
    assert len(probers[2].asked) == len(probers[0].asked)


def test_what_the_time_did_not_reach_is_said(probers):
    found = diagnose(URL, seconds=0.0)
    assert found.notes == ("Not everything was timed in 0 s; the same command goes on.",)
    assert diagnose(URL).probe.complete


def test_a_device_in_use_is_not_timed(probers, monkeypatch):
    def refuse(timeout):
        raise TunerError("the device is measured on by process 7")

    monkeypatch.setattr("tuner.measure.device_lock", refuse)
    found = diagnose(URL)
    assert found.notes == ("Nothing was timed: the device is measured on by process 7.",)
    assert found.probe.findings
    assert not found.probe.taken


def test_where_the_database_cannot_be_written_the_doctor_still_answers(probers):
    Path.cwd().chmod(0o555)
    with ordinary_user():
        found = diagnose(URL)
    assert found.probe.complete
    check = found.checks[-1]
    assert (check.name, check.ok) == ("kept probe", False)
    assert check.text.startswith("the next search knows nothing of this one: ")


def test_without_a_database_nothing_is_known():
    assert kept_probe(URL).findings == ()
    assert not Path("precision.db").exists()
    Path("precision.db").write_text("no database")
    assert kept_probe(URL).findings == ()

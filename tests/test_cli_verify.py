"""`tuner verify`: whether a policy's numbers hold, on the machine where it was made and elsewhere."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tuner
from tests.factories import make_confirmation, make_metric
from tests.test_cli_errors import complains
from tests.test_cli_search import Fake, run
from tests.test_cli_search import _tiny as _tiny
from tuner.measurement import COMPILE_ERROR, Failure


def exported(capsys) -> None:
    run(capsys, "search", "tiny.py", "--trials", "8", "-q")
    run(capsys, "export", "tiny", "--knee", "-o", "policy.json", "-q")


def test_verify_holds_where_it_was_made(capsys):
    exported(capsys)
    out, err = run(capsys, "verify", "policy.json", "tiny.py")
    assert out.endswith("The policy holds here.\n")
    assert "tuner.load_policy" in err


@pytest.mark.parametrize(
    ("result", "field"),
    [
        (make_confirmation(5.0, 0.0), "latency_holds"),
        (make_confirmation(0.5, 0.5), "quality_holds"),
        (make_confirmation(0.5, 0.0, metrics={"agreement": make_metric(0.05, 0.01)}), "quality_holds"),
        (Failure(cause=COMPILE_ERROR, message="no"), "holds"),
    ],
)
def test_verify_is_1_when_it_does_not_hold(result, field, capsys, monkeypatch):
    exported(capsys)
    monkeypatch.setattr(Fake, "confirmation", result)
    assert "does not hold here" in run(capsys, "verify", "policy.json", "tiny.py", code=1)[0]
    form = json.loads(run(capsys, "verify", "policy.json", "tiny.py", "--json", code=1)[0])
    assert (form["holds"], form[field]) == (False, False)


def test_verify_says_what_differs(capsys):
    exported(capsys)
    policy = tuner.load_policy("policy.json")
    device = {**policy.provenance["device"], "jaxlib": "0.4.1"}
    replace(policy, provenance={**policy.provenance, "device": device}).save("old.json")
    out, _ = run(capsys, "verify", "old.json", "tiny.py")
    assert "jaxlib: 0.4.1 there" in out


def test_verify_takes_another_drop(capsys, monkeypatch):
    exported(capsys)
    monkeypatch.setattr(Fake, "confirmation", make_confirmation(0.5, 0.015))
    run(capsys, "verify", "policy.json", "tiny.py")
    run(capsys, "verify", "policy.json", "tiny.py", "--max-drop", "1%", code=1)


def test_verify_of_a_policy_that_this_version_cannot_run_is_refused(capsys):
    exported(capsys)
    form = json.loads(Path("policy.json").read_text())
    form["layers"][1]["kernel"] = "magic"
    Path("policy.json").write_text(json.dumps(form))
    sentence = complains(capsys, "verify", "policy.json", "tiny.py")
    assert sentence.startswith("policy.json: layer 'first' has no kernel 'magic' in this version; upgrade")


def test_verify_of_another_metric_is_refused(capsys):
    exported(capsys)
    policy = tuner.load_policy("policy.json")
    replace(policy, provenance={**policy.provenance, "metric": "mse"}).save("other.json")
    assert "measured with the metric 'mse'" in complains(capsys, "verify", "other.json", "tiny.py")

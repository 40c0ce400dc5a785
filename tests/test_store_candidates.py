import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.factories import NAN, make_confirmation, make_measurement, make_policy, make_study
from tuner.effect import Prediction
from tuner.errors import StoreError
from tuner.front import Point, pareto
from tuner.measurement import Failure
from tuner.store import Owner, Store
from tuner.store import candidates as candidates_module

ME = Owner.current()
GONE = replace(ME, started="at another time")


@pytest.fixture
def store():
    with Store.open() as store:
        yield store


@pytest.fixture
def study(store):
    return store.create_study(make_study())


def claim(store, study, key="k", **kwargs):
    fields = {"policy": make_policy("bf16"), "label": f"label {key}", "trial": 1, "owner": ME}
    return store.claim(study.id, key=key, **fields | kwargs)


def on_front(store, study):
    return [candidate.key for candidate in store.candidates(study.id) if candidate.on_front]


def test_what_was_predicted_is_kept(store, study):
    predicted = Prediction(latency=0.5, fidelity=0.01)
    claim(store, study, predicted=predicted)
    claim(store, study, key="other")
    assert [candidate.predicted for candidate in store.candidates(study.id)] == [predicted, None]


def test_a_claim_is_a_candidate_without_an_outcome(store, study):
    claimed = claim(store, study)
    candidate = store.find_candidate(study.id, "k")
    assert (candidate.id, candidate.trial, candidate.label, candidate.owner) == (claimed, 1, "label k", ME)
    assert candidate.policy == make_policy("bf16")
    assert (candidate.outcome, candidate.confirmation, candidate.finished) == (None, None, None)
    assert store.find_study("digits").counts.running == 1


def test_only_one_gets_the_same_candidate(store, study):
    claimed = claim(store, study)
    assert claim(store, study, trial=2, owner=GONE) is None
    store.record(claimed, make_measurement())
    assert claim(store, study, trial=3) is None
    assert store.find_candidate(study.id, "k").trial == 1


def test_only_one_of_many_at_once_gets_it(study):
    def one(trial):
        with Store.open() as store:
            return claim(store, study, trial=trial)

    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(one, range(16)))
    assert len([c for c in claimed if c is not None]) == 1


def test_another_study_may_have_the_same_candidate(store, study):
    other = store.create_study(make_study("other"))
    assert claim(store, study) != claim(store, other)
    assert [c.study_id for c in store.candidates(other.id)] == [other.id]


def test_a_reference_point_has_no_policy(store, study):
    claimed = claim(store, study, key="cast:bf16", policy=None, trial=-1)
    store.record(claimed, make_measurement(0.2, 0.1, 100))
    candidate = store.find_candidate(study.id, "cast:bf16")
    assert candidate.policy is None
    assert candidate.on_front


def test_nobody_has_what_was_never_claimed(store, study):
    assert store.find_candidate(study.id, "k") is None
    assert store.candidates(study.id) == []


def test_a_measurement_is_recorded_with_the_front(store, study):
    for key, outcome in [
        ("base", make_measurement(1.0, 0.0, 4000)),
        ("fast", make_measurement(0.5, 0.01, 2000)),
        ("worse", make_measurement(0.6, 0.02, 3000)),
        ("nan", make_measurement(0.1, NAN, 100)),
        ("failed", Failure(cause="compile error", message="no", layer="dense_1")),
        ("slow", Failure(cause="slow", message="4x")),
    ]:
        store.record(claim(store, study, key), outcome)
    assert on_front(store, study) == ["base", "fast"]
    assert store.find_candidate(study.id, "base").finished is not None
    counts = store.find_study("digits").counts
    assert (counts.measured, counts.pruned, counts.failed, counts.running, counts.on_front) == (4, 1, 1, 0, 2)
    store.record(claim(store, study, "best"), make_measurement(0.4, -0.01, 1000))
    assert on_front(store, study) == ["best"]


def test_the_front_is_that_of_the_studys_objectives(store):
    study = store.create_study(make_study(objectives=("memory",)))
    store.record(claim(store, study, "small"), make_measurement(2.0, 0.5, 100))
    store.record(claim(store, study, "fast"), make_measurement(0.1, 0.0, 200))
    assert on_front(store, study) == ["small"]


few = st.sampled_from([0.25, 0.5, 1.0, NAN])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(st.lists(st.tuples(few, few, st.sampled_from([100, 200]), st.booleans()), max_size=6))
def test_the_front_kept_is_the_front_of_everything(store, rows):
    study = store.create_study(make_study(f"study {len(store.studies())}"))
    for trial, (ratio, drop, memory, reference) in enumerate(rows):
        policy = None if reference else make_policy()
        claimed = claim(store, study, f"k{trial}", policy=policy, trial=trial)
        store.record(claimed, make_measurement(ratio, drop, memory))
    candidates = store.candidates(study.id)
    points = [Point(trial=c.trial, label=c.label, policy=c.policy, measurement=c.outcome) for c in candidates]
    front = sorted(point.trial for point in pareto(points, study.objectives))
    assert [c.trial for c in candidates if c.on_front] == front


def test_outcome_and_front_are_written_together_or_not_at_all(store, study, monkeypatch):
    claimed = claim(store, study)

    def killed(points, objectives):
        raise RuntimeError("killed here")

    monkeypatch.setattr(candidates_module, "pareto", killed)
    with pytest.raises(RuntimeError, match="killed here"):
        store.record(claimed, make_measurement())
    candidate = store.find_candidate(study.id, "k")
    assert (candidate.outcome, candidate.finished, candidate.on_front) == (None, None, False)


def test_an_outcome_is_recorded_once(store, study):
    claimed = claim(store, study)
    store.record(claimed, make_measurement(0.5))
    with pytest.raises(StoreError, match=r"candidate 1 in precision\.db has an outcome already; claim it before"):
        store.record(claimed, make_measurement(0.1))
    assert store.find_candidate(study.id, "k").outcome.latency.ratio == 0.5


def test_a_confirmation_is_kept_beside_the_measurement_and_replaced_by_a_later_one(store, study):
    claimed = claim(store, study)
    store.record(claimed, make_measurement(0.5))
    store.confirm(claimed, make_confirmation(0.6, 0.01))
    store.confirm(claimed, make_confirmation(0.7, 0.02))
    candidate = store.find_candidate(study.id, "k")
    assert candidate.outcome == make_measurement(0.5)
    assert candidate.confirmation == make_confirmation(0.7, 0.02)
    store.confirm(claimed, Failure(cause="out of memory", message="8 GiB"))
    assert store.find_candidate(study.id, "k").confirmation.cause == "out of memory"
    assert store.find_study("digits").counts.failed == 0


def test_what_is_gone_is_named(store, study):
    for write in (store.record, store.confirm):
        with pytest.raises(StoreError, match=r"candidate 7 is no longer in precision\.db: its study was removed or"):
            write(7, Failure(cause="error", message=""))
    with pytest.raises(StoreError, match=r"study 7 is no longer in precision\.db: it was removed; run `tuner search`"):
        store.claim(7, key="k", policy=None, label="", trial=1, owner=ME)


def test_a_claim_given_up_can_be_had_again(store, study):
    first = claim(store, study)
    store.release(first)
    second = claim(store, study)
    assert second not in (None, first)  # a number is never given twice
    with pytest.raises(StoreError, match="candidate 1 is no longer in"):
        store.record(first, make_measurement())
    store.record(second, make_measurement())
    store.release(second)  # it has an outcome, which stays
    assert store.find_candidate(study.id, "k").outcome is not None


def test_only_claims_of_dead_processes_without_an_outcome_are_given_up(store, study):
    other = store.create_study(make_study("other"))
    claim(store, other, "dead", owner=GONE)
    claim(store, study, "dead", owner=GONE, trial=5)
    claim(store, study, "alive", owner=ME)
    claim(store, study, "elsewhere", owner=Owner(host="elsewhere", pid=1, started=""))
    store.record(claim(store, study, "done", owner=GONE), make_measurement())
    (released,) = store.release_dead(study.id)
    assert (released.key, released.trial, released.policy) == ("dead", 5, make_policy("bf16"))
    assert [c.key for c in store.candidates(study.id)] == ["alive", "elsewhere", "done"]
    assert store.release_dead(study.id) == []
    assert len(store.candidates(other.id)) == 1


CLAIMER = """
import sys
from sqlalchemy import text
from tuner.store import Owner, Store
store = Store.open()
store.claim(1, key="claimed", policy=None, label="", trial=1, owner=Owner.current())
store.claim(1, key="half recorded", policy=None, label="", trial=2, owner=Owner.current())
with store.writing() as session:
    session.execute(text("UPDATE tuner_candidate SET finished = 'now'"))
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_process_killed_in_the_middle_of_writing_loses_its_claims_and_nothing_else(store, study):
    store.record(claim(store, study, "before"), make_measurement())
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIMER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert [c.key for c in store.release_dead(study.id)] == ["claimed", "half recorded"]
    assert [c.key for c in store.candidates(study.id)] == ["before"]
    assert claim(store, study, "claimed") is not None

import pytest

import tuner
from tests.studied import BASELINE, INT8, MIXED, NAME, URL, make_database
from tuner.errors import GoalMissed, InputError, StoreError
from tuner.study import open_study


@pytest.fixture
def study():
    make_database()
    return open_study(NAME, URL)


def test_the_front_is_fastest_first_with_what_it_is_compared_with(study):
    front = study.front()
    assert [point.trial for point in front] == [2, 3, 1]
    assert [point.label for point in front.references] == ["baseline", "astype(bf16)"]
    assert front[0].policy == INT8
    assert len(front[:2]) == 2
    assert "i8/i8/i32" in repr(front)


def test_trials_are_everything_tried_but_the_reference_points(study):
    assert [candidate.trial for candidate in study.trials()] == [0, 1, 2, 3, 4, 5]


def test_points_are_what_was_measured(study):
    assert {point.trial for point in study.points()} == {0, 1, 2, 3, -1}


def test_choose_takes_the_best_that_the_holdout_split_confirms(study):
    choice = study.decide()
    assert choice.point.policy == MIXED
    assert [point.trial for point in choice.rejected] == [2]
    assert study.choose(max_drop="3%").policy == INT8


def test_a_chosen_policy_can_be_saved_and_says_where_it_comes_from(study, tmp_path):
    study.choose(max_drop=0.01).policy.save(tmp_path / "policy.json")
    loaded = tuner.load_policy(tmp_path / "policy.json")
    assert loaded == MIXED
    assert (loaded.provenance["study"], loaded.provenance["trial"]) == (NAME, 3)
    assert loaded.provenance["max_drop"] == "1%"


def test_a_candidate_is_found_whatever_became_of_it(study):
    assert [study.candidate(wanted).label for wanted in (4, "5", "astype(bf16)")] == [
        "1 x f16/f16/f16",
        "1 x bf16/bf16/bf16",
        "astype(bf16)",
    ]
    with pytest.raises(InputError, match="study 'digits' has no trial '99'; `tuner trials digits` lists them"):
        study.candidate(99)


TASK = """
import numpy as np
import tuner

def apply(params, x):
    return (x @ params["dense_0"]["w"]) @ params["dense_1"]["w"]

def task():
    params = {"dense_0": {"w": np.full((64, 32), 1e3, np.float32)}, "dense_1": {"w": np.eye(32, 10, dtype=np.float32)}}
    inputs = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 64
    return tuner.Task(name="digits", apply=apply, params=params, inputs=inputs, labels=np.arange(64) % 10, batch_size=16)
"""


def test_a_failed_trial_can_be_looked_into(tmp_path):
    (tmp_path / "studied_task.py").write_text(TASK)
    make_database(task_reference=f"{tmp_path}/studied_task.py:task", batch_size=8)
    found = open_study(NAME, URL).stability(4)
    assert found.precisions["input"] == "f16/f16/f16"
    assert [(one.part, one.format) for one in found.watched][:1] == [("values", "f16")]
    assert found.watched[0].counts.count == 8 * 64


def test_what_cannot_be_looked_into_says_why(study):
    with pytest.raises(
        InputError, match=r"trial 'astype\(bf16\)' of study 'digits' is a hand-made cast without a policy"
    ):
        study.stability("astype(bf16)")


def test_a_live_task_is_looked_into_where_it_is():
    make_database(task_reference=None)
    with pytest.raises(
        InputError, match=r"made from a live task, which is not known here; call tuner.find_stability\("
    ):
        open_study(NAME, URL).stability(4)


def test_a_goal_that_nothing_meets_says_how_near_the_best_came(study):
    with pytest.raises(GoalMissed, match="within max drop 0"):
        study.choose(max_drop=0.0)


def test_the_knee_is_on_the_front(study):
    assert study.knee().trial in {1, 2, 3}


def test_a_point_is_found_by_trial_or_by_label(study):
    assert study.point(3).policy == MIXED
    assert study.point("3").policy == MIXED
    assert study.point("astype(bf16)").is_reference
    assert study.point("baseline").policy == BASELINE


def test_a_missing_point_names_those_there_are(study):
    with pytest.raises(InputError) as caught:
        study.point(17)
    assert str(caught.value) == (
        "study 'digits' has no point '17'; its points are 0, 1, 2, 3, 'astype(bf16)'"
    )  # fmt: skip


def test_a_failed_trial_is_no_point_and_says_why(study):
    with pytest.raises(InputError, match=r"trial 5 of study 'digits' has no measurement \(compile error: refused\)"):
        study.point(5)


def test_an_unknown_study_names_those_there_are(study):
    with pytest.raises(StoreError, match=r"no study 'mnist' in precision.db; choose one of digits"):
        open_study("mnist", URL)


def test_a_missing_database_is_not_made(tmp_path):
    with pytest.raises(StoreError, match=r"other\.db"):
        open_study(NAME, f"sqlite:///{tmp_path}/other.db")
    assert not (tmp_path / "other.db").exists()


def test_notebooks_see_tables(study):
    page = study._repr_html_()
    assert "<table>" in page
    assert "digits" in page
    assert "i8/i8/i32" in study.front()._repr_html_()


def test_a_search_of_something_else_than_a_task_says_how_to_get_one():
    with pytest.raises(
        InputError, match=r"^tuner.search takes a tuner.Task, not a str: 'studies.digits_mlp'; make one, or"
    ):
        tuner.search("studies.digits_mlp", trials=1)

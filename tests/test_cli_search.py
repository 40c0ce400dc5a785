"""`tuner search`, `layers` and `verify` with everything real but the measuring."""

import json
import sqlite3
from pathlib import Path

import pytest

import tuner
from tests.search_bench import FakeEvaluator, make_table
from tests.studied import make_database
from tests.test_cli_errors import complains
from tuner import measure
from tuner.cli import main
from tuner.diagnosis import Attempt
from tuner.effect import Screening
from tuner.errors import InputError
from tuner.measure import KernelTable
from tuner.measurement import Confirmation, Failure
from tuner.search import runner, screening, suggest
from tuner.store import Store
from tuner.study import open_study

TASK = """
import jax.numpy as jnp
import numpy as np
import tuner

trials = 5
max_drop = "2%"

def apply(params, inputs):
    return jnp.tanh(inputs @ params["first"]["kernel"]) @ params["second"]["kernel"]

def task():
    random = np.random.default_rng(0)
    inputs = random.standard_normal((64, 4), dtype=np.float32)
    params = {"first": {"kernel": np.eye(4, 8, dtype=np.float32)}, "second": {"kernel": np.eye(8, 3, dtype=np.float32)}}
    return tuner.Task(name="tiny", apply=apply, params=params, inputs=inputs, labels=np.arange(64) % 3, batch_size=16)

def without_settings():
    return task()
"""


class Fake(FakeEvaluator):
    made: list["Fake"] = []  # noqa: RUF012  # every one of the test
    behavior = staticmethod(lambda count: None)
    confirmation: Confirmation | Failure | None = None

    def __init__(self, task, program, **settings):
        super().__init__(type(self).behavior)
        self.settings = settings
        Fake.made.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def confirm(self, policies):
        usual = super().confirm(policies)
        return usual if self.confirmation is None else [self.confirmation] * len(usual)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    Path("tiny.py").write_text(TASK)
    monkeypatch.setattr(Fake, "made", [])
    monkeypatch.setattr(runner, "make_evaluator", Fake)
    monkeypatch.setattr(measure, "make_evaluator", Fake)
    monkeypatch.setattr(screening, "make_evaluator", Fake)
    monkeypatch.setattr(runner, "kernel_table", lambda *_, **__: KernelTable())


def run(capsys, *argv: str, code: int = 0) -> tuple[str, str]:
    assert main(list(argv)) == code
    return capsys.readouterr()


def test_search_then_export_then_prepare(capsys):
    out, err = run(capsys, "search", "tiny.py", "--trials", "8")
    assert out.splitlines()[0].split()[:2] == ["trial", "label"]
    assert "8/8 trials" in err
    assert "Next: tuner export tiny -o policy.json\n" in err
    run(capsys, "export", "tiny", "-o", "policy.json")
    import tiny  # the working directory is importable

    task = tiny.task()
    model = tuner.prepare(task.apply, task.params, tuner.load_policy("policy.json"))
    inputs, _, _ = next(task.holdout.batches(16))
    assert model(model.params, *inputs).shape == (16, 3)


def test_what_this_device_cannot_run_is_never_proposed_and_said(capsys, monkeypatch):
    def refuse(self, operation, precision):
        return Attempt(refusal="crash: by SIGILL" if precision.weights.name == "i8" else "")

    monkeypatch.setattr(Fake, "try_precision", refuse)
    said = "i8/i8/i32 is left out of matmul layers: this device cannot run it: crash: by SIGILL"
    out, err = run(capsys, "search", "tiny.py", "--trials", "8")
    assert f"Note: {said}\n" in err
    assert f"\n{said}.\n" in out
    assert not any("i8/i8/i32" in trial.label for trial in open_study("tiny").trials())
    monkeypatch.setattr(Fake, "try_precision", lambda *_: pytest.fail("tried again"))
    run(capsys, "search", "tiny.py", "--trials", "9")  # with the choices it began with
    assert f"\n{said}.\n" in run(capsys, "front", "tiny")[0]
    assert f"Note: {said}\n" in run(capsys, "layers", "tiny.py")[1]
    form = json.loads(run(capsys, "layers", "tiny.py", "--json")[0])
    reason = "this device cannot run it: crash: by SIGILL"
    assert form["layers"][1]["refused"] == {"i8/i8/i32": reason, "i8/i8/i32@static": reason}
    run(capsys, "search", "tiny.py", "--study", "another", "--trials", "3")
    assert open_study("another").record.refused == {"matmul": {"i8/i8/i32": "crash: by SIGILL"}}
    run(capsys, "layers", "tiny.py", "--storage", "sqlite:///none.db")
    assert not Path("none.db").exists()


def test_a_policy_to_start_from_that_cannot_run_here_begins_no_study(capsys, monkeypatch):
    run(capsys, "search", "tiny.py", "--trials", "8")
    run(capsys, "export", "tiny", "--point", "i8/i8/i32", "--unconfirmed", "-o", "policy.json")
    monkeypatch.setattr(Fake, "try_precision", lambda *_: Attempt(refusal="no"))
    url = "sqlite:///other.db"
    _, err = run(capsys, "search", "tiny.py", "--start", "policy.json", "--storage", url, code=2)
    assert "policy.json gives layer 'first' i8/i8/i32, which this search space does not allow (original)" in err
    assert not Path("other.db").exists()


def test_the_module_recommends_trials_and_drop(capsys):
    run(capsys, "search", "tiny.py", "-q")
    study = open_study("tiny")
    assert len(study.trials()) == 5
    assert study.record.max_drop == "2%"
    assert study.record.task_reference.endswith("tiny.py:task")


def test_the_user_decides_over_the_module(capsys):
    run(
        capsys,
        "search",
        "tiny.py",
        "--trials",
        "3",
        "--max-drop",
        "1%rel",
        "--study",
        "mine",
        "--batch-size",
        "8",
        "-q",
    )
    record = open_study("mine").record
    assert (record.counts.trials, record.max_drop, record.batch_size) == (3, "1%rel", 8)


def test_quiet_search_says_nothing_but_its_result(capsys):
    out, err = run(capsys, "search", "tiny.py", "--trials", "3", "-q")
    assert "baseline" in out
    assert err == ""


def test_the_same_command_resumes_and_then_has_nothing_to_do(capsys):
    run(capsys, "search", "tiny.py", "--trials", "4")
    assert "Resuming study 'tiny': " in run(capsys, "search", "tiny.py", "--trials", "6")[1]
    assert len(Fake.made) == 2
    reference = open_study("tiny").record.baseline.latency.milliseconds
    assert [fake.settings["reference_ms"] for fake in Fake.made] == [None, reference]
    assert "Study 'tiny' is complete" in run(capsys, "search", "tiny.py", "--trials", "6")[1]
    assert len(Fake.made) == 2


def test_control_c_is_130_and_says_how_to_go_on(capsys, monkeypatch):
    def press(count: int) -> None:
        if count == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Fake, "behavior", staticmethod(press))
    err = run(capsys, "search", "tiny.py", "--trials", "6", code=130)[1]
    assert "The same command goes on from here." in err
    monkeypatch.setattr(Fake, "behavior", staticmethod(lambda count: None))
    run(capsys, "search", "tiny.py", "--trials", "6")
    assert len(open_study("tiny").trials()) == 6


def test_what_was_asked_for_is_checked_before_the_task_is_loaded(capsys):
    Path("endless.py").write_text("raise AssertionError('loaded')")
    assert "the budget '0m' is zero" in complains(capsys, "search", "endless.py", "--budget", "0m")
    assert "unknown sampler 'cmaes'" in complains(capsys, "search", "endless.py", "--sampler", "cmaes")


@pytest.mark.parametrize(("problem", "code"), [(InputError("no baseline"), 2), (KeyboardInterrupt(), 130)])
def test_a_search_that_cannot_begin_leaves_nothing(capsys, monkeypatch, problem, code):
    def refuse(*_, **__):
        raise problem

    before = sorted(Path().iterdir())
    monkeypatch.setattr(runner, "make_evaluator", refuse)
    run(capsys, "search", "tiny.py", "--trials", "3", code=code)
    assert sorted(Path().iterdir()) == before


def test_a_study_stopped_before_its_first_trial_still_has_its_kernels_timed(capsys, monkeypatch):
    frozen = []

    def stop(*_, **settings):
        frozen.append(settings["frozen"])
        if len(frozen) == 1:
            raise KeyboardInterrupt
        return KernelTable()

    monkeypatch.setattr(runner, "kernel_table", stop)
    run(capsys, "search", "tiny.py", "--trials", "2", code=130)
    run(capsys, "search", "tiny.py", "--trials", "2")
    run(capsys, "search", "tiny.py", "--trials", "3")
    assert frozen == [False, False, True]


def test_a_locked_database_is_named_before_anything_is_measured(capsys, monkeypatch):
    run(capsys, "search", "tiny.py", "--trials", "2", "-q")
    monkeypatch.setattr(Store.open.__func__, "__kwdefaults__", Store.open.__func__.__kwdefaults__ | {"timeout_s": 0.05})
    blocker = sqlite3.connect("precision.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    assert "precision.db is locked by another process" in complains(capsys, "search", "tiny.py", "--trials", "3")
    blocker.close()
    assert len(Fake.made) == 1


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--objectives", "latency"], "begun with --objectives latency,quality,memory and cannot go on with latency"),
        (["--max-drop", "3%"], "begun with --max-drop 2% and cannot go on with 3%"),
        (
            ["--space", "floats"],
            "begun with another search space than 'floats' and cannot go on with it; leave --space out",
        ),
    ],
)
def test_a_study_cannot_change_on_its_way(option, words, capsys):
    run(capsys, "search", "tiny.py", "--trials", "2", "-q")
    sentence = complains(capsys, "search", "tiny.py", "--trials", "4", *option)
    assert words in sentence
    assert "--study NAME" in sentence


def test_another_batch_size_is_another_study(capsys):
    run(capsys, "search", "tiny.py", "--trials", "2", "-q")
    sentence = complains(capsys, "search", "tiny.py", "--trials", "4", "--batch-size", "8")
    assert "study 'tiny' was begun with the batch size 16 and cannot go on with 8; go back to 16" in sentence


def test_listing_scans_otherwise_is_another_study(capsys):
    run(capsys, "search", "tiny.py", "--trials", "2", "-q", "--split-scans")
    sentence = complains(capsys, "search", "tiny.py", "--trials", "4")
    assert "study 'tiny' was begun with --split-scans (split_scans of the task); give it to resume, or" in sentence


def test_another_metric_is_another_study(capsys):
    run(capsys, "search", "tiny.py", "--trials", "2", "-q")
    Path("tiny.py").write_text(TASK.replace("batch_size=16", "batch_size=16, metric='cross_entropy'"))
    sentence = complains(capsys, "search", "tiny.py", "--trials", "4")
    assert "study 'tiny' was begun with the metric top1 and cannot go on with cross_entropy" in sentence


def test_other_constraints_are_another_study(capsys):
    run(capsys, "search", "tiny.py", "--trials", "2", "-q")
    Path("tiny.py").write_text(
        TASK.replace("batch_size=16", "batch_size=16, constraints={'agreement': '1%', 'cosine': None}")
    )
    sentence = complains(capsys, "search", "tiny.py", "--trials", "4")
    assert "begun with the constraints none and cannot go on with agreement 1%, cosine any; go back to none" in sentence


def test_a_front_of_the_baseline_alone_says_so(capsys):
    out, err = run(capsys, "search", "tiny.py", "--trials", "1")
    assert "baseline" in out
    assert "Nothing measured is faster than the baseline inside the allowed drop of 2%." in err


def test_layers_lists_names_and_choices(capsys):
    out, err = run(capsys, "layers", "tiny.py")
    assert [line.split()[0] for line in out.splitlines()] == ["layer", "input", "first", "second"]
    assert err == "Next: tuner search tiny.py\n"
    form = json.loads(run(capsys, "layers", "tiny.py", "--space", "floats", "--json")[0])
    assert form["layers"][1]["name"] == "first"
    assert form["layers"][1]["precisions"][0] == "original"


def test_layers_screened_one_by_one(capsys, monkeypatch):
    out, err = run(capsys, "layers", "tiny.py", "--screen")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0][:3] == ["layer", "precision", "kernel"]
    assert ["first", "i8/i8/i32", "plain", "0.300", "0.300", "0.004", "1.6e-05"] in rows
    assert ["first", "original", "plain", "1.00", "1.000", "-", "-"] in rows
    assert "Note" not in err
    monkeypatch.setattr(Fake, "screen", lambda *_, known, **__: Screening(effects=known, refusal="no memory"))
    form = json.loads(run(capsys, "layers", "tiny.py", "--screen", "--json")[0])
    assert form["refusal"] == "no memory"
    (found,) = [row for row in form["layers"] if (row["name"], row["precision"]) == ("second", "i8/i8/i32")]
    assert (found["error"], found["seconds"], found["seconds_as_written"]) == (0.004, 0.0003, 0.001)
    said = "Note: single layers are not run alone, and nothing is predicted of the outputs: no memory.\n"
    assert said in run(capsys, "layers", "tiny.py", "--screen")[1]


def test_predict_shows_what_a_search_would_try(capsys, monkeypatch):
    out, err = run(capsys, "predict", "tiny.py", "--max-drop", "0.5%")
    rows = [line.split() for line in out.splitlines()]
    # Both in i8 would lose 0.8 %: one of them is not.
    assert {row[1] for row in rows[2:4]} == {"i8/i8/i32", "bf16/bf16/f32"}
    assert "Predicted: latency 0." in out
    assert "drop +0.0050" in out
    assert err.endswith("Next: tuner search tiny.py --max-drop 0.5%\n")
    form = json.loads(run(capsys, "predict", "tiny.py", "--json")[0])  # 2 %, as the module recommends
    assert [layer["precision"] for layer in form["layers"][1:]] == ["i8/i8/i32"] * 2
    assert form["drop"] == pytest.approx(0.008)
    monkeypatch.setattr(Fake, "screen", lambda *_, known, **__: Screening(refusal="no memory"))
    out, err = run(capsys, "predict", "tiny.py", "--storage", "sqlite:///other.db")
    assert "Note: single layers are not run alone, and nothing is predicted of the outputs: no memory." in err
    assert "drop" not in out


def test_suggest_another_budget_and_measure_it(capsys, monkeypatch):
    monkeypatch.setattr(runner, "kernel_table", lambda store, evaluator, choices, *_, **__: make_table(choices))
    monkeypatch.setattr(suggest, "time_kernels", lambda program, choices, **_: make_table(choices))
    run(capsys, "search", "tiny.py", "--trials", "4")  # the baseline and the uniform ones
    out, err = run(capsys, "suggest", "tiny", "--max-drop", "0.5%")
    assert out.startswith("Best measured: trial ")
    assert "Best predicted, not measured:\n" in out
    assert "Predicted: latency 0." in out
    assert err.endswith("Measure it with --measure.\n")
    out, _ = run(capsys, "suggest", "tiny", "--max-drop", "0.5%", "--measure")
    trial = open_study("tiny").trials()[-1]
    assert f"Measured: trial {trial.trial}, " in out
    assert trial.outcome is not None
    assert trial.predicted.fidelity < 0.1
    assert len(open_study("tiny").trials()) == 5
    out, _ = run(capsys, "suggest", "tiny", "--max-drop", "0%", "--memory", "0.99x")
    assert "Nothing measured is within this budget." in out or "Best measured" in out
    _, err = run(capsys, "suggest", "tiny", "--memory", "0.01x", code=1)
    assert "no policy of study 'tiny' is within drop<=2%,memory<=0.01x, measured or predicted; allow more" in err
    assert "the memory limit 'lots' is not a size" in run(capsys, "suggest", "tiny", "--memory", "lots", code=2)[1]


def test_a_study_of_a_live_task_has_no_suggestions(capsys):
    make_database(task_reference=None)
    assert "made from a live task" in run(capsys, "suggest", "digits", code=2)[1]


def test_a_space_that_asks_for_what_is_not_available_yet_says_so(capsys):
    Path("small.toml").write_text('[[rules]]\nlayers = "first"\nprecisions = ["tf32/tf32/f32"]\n')
    out, err = run(capsys, "layers", "tiny.py", "--space", "small.toml")
    assert "original only: tf32/tf32/f32: not available yet" in out
    assert "Note: tf32/tf32/f32 is left out of the space: not available yet" in err
    assert (
        "Note: tf32/tf32/f32 is left out"
        in run(capsys, "search", "tiny.py", "--space", "small.toml", "--trials", "1")[1]
    )

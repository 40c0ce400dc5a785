"""The commands that read a finished study: studies, front, trials, show, diff, export."""

import csv
import io
import json

import pytest

import tuner
from tests.factories import make_confirmation, make_measurement
from tests.studied import BASELINE, INT8, MIXED, SAME, make_database
from tests.test_report_stability import FOUND
from tuner.cli import main
from tuner.errors import StoreError
from tuner.store import Store
from tuner.study import Study


@pytest.fixture(autouse=True)
def _database():
    make_database()


def run(capsys, *argv: str, code: int = 0) -> tuple[str, str]:
    assert main(list(argv)) == code
    return capsys.readouterr()


def test_studies_lists_them_and_says_what_next(capsys):
    out, err = run(capsys, "studies")
    assert out.splitlines()[1].split()[:4] == ["digits", "studies.digits_mlp:task", "6", "3"]
    assert err == "Next: tuner front digits\n"


def test_studies_as_json(capsys):
    (study,) = json.loads(run(capsys, "studies", "--json")[0])["studies"]
    assert (study["name"], study["trials"], study["pruned"], study["failed"]) == ("digits", 6, 1, 1)
    outcomes = sum(study[what] for what in ("measured", "pruned", "failed", "running"))
    assert outcomes == study["trials"] + study["references"]


def test_studies_rm_removes_one_for_good(capsys):
    assert "Removed study 'digits'" in run(capsys, "studies", "rm", "digits")[1]
    with Store.open("sqlite:///precision.db") as store:
        assert store.studies() == []
    assert "No studies here yet." in run(capsys, "studies")[0]


@pytest.mark.parametrize(
    "argv",
    [
        ["studies", "rm", "digits", "--storage", "sqlite:///b.db"],
        ["studies", "--storage", "sqlite:///b.db", "rm", "digits"],
    ],
)
def test_studies_rm_takes_the_storage_on_either_side(argv, capsys):
    make_database("b.db")
    run(capsys, *argv)
    assert "No studies here yet." in run(capsys, "studies", "--storage", "sqlite:///b.db")[0]
    assert "digits" in run(capsys, "studies")[0]


def test_studies_rm_takes_optunas_optunas_study_along(capsys):
    import optuna

    with Store.open("sqlite:///precision.db") as store:
        storage = optuna.storages.RDBStorage(store.url, engine_kwargs=dict(store.engine_options))
    optuna.create_study(study_name="digits", storage=storage)
    run(capsys, "studies", "rm", "digits")
    assert optuna.get_all_study_names(storage) == []


def test_a_study_that_cannot_be_removed_whole_stays_whole(capsys, monkeypatch):
    from tuner.search import optuna_study

    def refuse(store, name):
        raise StoreError("Optuna's part is stuck")

    monkeypatch.setattr(optuna_study, "delete_optuna_study", refuse)
    assert main(["studies", "rm", "digits"]) == 2
    assert capsys.readouterr().err == "Error: Optuna's part is stuck\n"
    assert "digits" in run(capsys, "studies")[0]


def test_front_shows_points_then_references(capsys):
    out, err = run(capsys, "front", "digits")
    assert [line.split()[0] for line in out.splitlines()[1:6]] == ["2", "3", "1", "0", "-"]
    assert "no: 1 different of 2" in out
    assert "Complete, of what was tried, up to a drop of 2%" in out
    assert err.startswith("Next: tuner show digits 2\n")


def test_a_front_without_a_point_says_how_to_get_some(capsys):
    make_database("b.db", ())
    out, err = run(capsys, "front", "digits", "--storage", "sqlite:///b.db")
    assert out.endswith("\nNothing is measured yet.\n")
    assert err == "Next: tuner search studies.digits_mlp:task --study digits --storage sqlite:///b.db\n"


def test_front_as_json_and_csv(capsys):
    out, err = run(capsys, "front", "digits", "--json")
    form = json.loads(out)
    assert [point["trial"] for point in form["points"]] == [2, 3, 1]
    assert [point["label"] for point in form["references"]] == ["baseline", "astype(bf16)"]
    assert err == ""
    out, err = run(capsys, "front", "digits", "--csv")
    assert [row["trial"] for row in csv.DictReader(io.StringIO(out))] == ["2", "3", "1"]
    assert err == ""


def test_trials_show_failures_with_their_cause(capsys):
    out, _ = run(capsys, "trials", "digits")
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines[5:7]] == [["4", "pruned"], ["5", "failed"]]
    assert lines[6].endswith("compile error: refused")


def test_trials_as_csv_have_every_number(capsys):
    rows = list(csv.DictReader(io.StringIO(run(capsys, "trials", "digits", "--csv")[0])))
    assert [row["state"] for row in rows] == ["measured"] * 4 + ["pruned", "failed"]
    assert float(rows[2]["latency_ratio"]) == 0.3
    assert rows[2]["compile_cache"] == "miss"
    assert (rows[5]["cause"], rows[5]["layer"], rows[5]["latency_ratio"]) == ("compile error", "input", "")


def test_show_tells_what_each_layer_ran(capsys):
    out, err = run(capsys, "show", "digits", "2")
    assert "dense_1  i8/i8/i32  plain   no: f32" in out
    assert "holdout 0.8800, drop +0.0200" in out
    assert "tuner export digits --point 2" in err
    assert "What 2 of its layers cost and gain is not measured yet:" in err
    assert "tuner search studies.digits_mlp:task --study digits --around 2" in err


def test_show_of_the_baseline_compares_it_with_nothing(capsys):
    assert run(capsys, "show", "digits", "0")[1] == "Next: tuner export digits --point 0 -o policy.json\n"


def test_show_stability_of_a_failed_trial(capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(Study, "stability", lambda self, wanted: asked.append((self.name, wanted)) or FOUND)
    out, err = run(capsys, "show", "digits", "5", "--stability")
    assert "Layer 'b' (original) is the first that is not finite" in out
    assert err == ""
    form = json.loads(run(capsys, "show", "digits", "5", "--stability", "--json")[0])
    assert form["first_non_finite"] == "b"
    assert asked == [("digits", "5")] * 2


def test_show_takes_a_label_and_a_reference_point(capsys):
    assert "astype(bf16)" in run(capsys, "show", "digits", "astype(bf16)")[0]


def test_show_as_json(capsys):
    form = json.loads(run(capsys, "show", "digits", "3", "--json")[0])
    assert form["kernels"] == {"input": "plain", "dense_0": "plain", "dense_1": "plain"}
    assert form["confirmation"]["quality_drop"] == 0.006


def test_diff_of_points_and_files(capsys):
    INT8.save("int8.json")
    out, err = run(capsys, "diff", "digits:3", "int8.json")
    assert err == "Next: tuner verify int8.json TASK\n"
    assert out.splitlines()[1].split() == ["dense_1", "bf16/bf16/f32", "i8/i8/i32"]
    assert run(capsys, "diff", "2", "int8.json")[0].startswith("The two policies assign the same")
    out, err = run(capsys, "diff", "--study", "digits", "0", "1")
    assert "f32/f32/f32" in out
    assert err == "Next: tuner show digits 1\n"


def test_export_writes_what_the_holdout_split_confirms(capsys):
    out, err = run(capsys, "export", "digits", "--max-drop", "1%", "-o", "policy.json")
    loaded = tuner.load_policy("policy.json")
    assert loaded == MIXED
    assert loaded.provenance["device"]["kind"] == "Test CPU"
    assert "Optimism gap (search minus holdout, each against its baseline): +0.0020." in out
    assert "Rejected by the confirmation before it: 1: i8/i8/i32 (trial 2)." in out
    assert err.startswith("Next: tuner verify policy.json studies.digits_mlp:task\n")


@pytest.mark.parametrize(
    ("how", "policy"),
    [
        (["--max-drop", "3%"], INT8),
        (["--minimize", "memory"], MIXED),
        (["--minimize", "memory", "--max-drop", "3%"], INT8),
        (["--point", "1"], SAME),
        (["--point", "0"], BASELINE),
        (["--point", "f32/f32/f32"], SAME),
    ],
)
def test_export_in_every_way(how, policy, capsys):
    run(capsys, "export", "digits", *how, "-o", "policy.json")
    assert tuner.load_policy("policy.json") == policy


def test_export_of_the_knee(capsys):
    run(capsys, "export", "digits", "--knee", "-o", "policy.json")
    assert tuner.load_policy("policy.json") in (INT8, MIXED, SAME)


def test_export_records_the_drop_it_was_chosen_under(capsys):
    run(capsys, "export", "digits", "--max-drop", "3%", "-o", "policy.json")
    assert tuner.load_policy("policy.json").provenance["max_drop"] == "3%"


def test_an_unconfirmed_point_is_exported_only_when_asked_for(capsys):
    entries = (
        (0, "baseline", BASELINE, make_measurement(1.0, 0.0, 4000), None),
        (1, "i8/i8/i32", INT8, make_measurement(0.3, 0.001, 1000), None),
        (2, "mixed", MIXED, make_measurement(0.5, 0.0, 1000), make_confirmation(0.5, 0.5)),
    )
    url = make_database("other.db", entries)
    out, err = run(capsys, "export", "digits", "--storage", url, "-o", "policy.json", code=1)
    assert (out, err[:6]) == ("", "Error:")
    assert "--unconfirmed" in err
    out, err = run(capsys, "export", "digits", "--storage", url, "--point", "1", "-o", "policy.json", code=1)
    assert "trial 1 (i8/i8/i32) of study 'digits' is not confirmed" in err
    out, err = run(capsys, "export", "digits", "--storage", url, "--unconfirmed", "-o", "policy.json")
    assert "Not confirmed: its quality is known only on the examples that chose it." in out
    assert f"--storage {url}" in err


def test_export_never_overwrites_unasked(capsys):
    run(capsys, "export", "digits", "-o", "policy.json")
    err = run(capsys, "export", "digits", "--point", "0", "-o", "policy.json", code=2)[1]
    assert err.startswith("Error: policy.json exists and is not overwritten")
    assert tuner.load_policy("policy.json") == MIXED
    run(capsys, "export", "digits", "--point", "0", "-o", "policy.json", "--force")
    assert tuner.load_policy("policy.json") == BASELINE


def test_quiet_prints_results_only(capsys):
    out, err = run(capsys, "front", "digits", "-q")
    assert out
    assert err == ""


def test_spaces_lists_presets_and_prints_one_to_copy(capsys, tmp_path):
    out, _ = run(capsys, "spaces")
    assert [line.split()[0] for line in out.splitlines()] == ["cpu", "floats", "gpu", "memory", "tpu"]
    text, _ = run(capsys, "spaces", "cpu")
    assert tuner.SearchSpace.parse(text, "copy").rules == tuner.SearchSpace.load("cpu").rules

"""The list of the studies, the table of `make studies`, and what studies/README.md promises."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import studies, study_list, study_row
from benchmarks.study_list import BARE, Ready, find_studies
from tests.factories import make_confirmation, make_measurement, make_point
from tuner.errors import GoalMissed, InputError

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "studies" / "README.md"


def test_every_study_is_found_and_described():
    found = {ready.reference: ready for ready in find_studies()}
    modules = {path.stem for path in (ROOT / "studies").glob("[a-z]*.py")} - {"fetch"}
    assert {reference.partition(":")[0] for reference in found} == modules
    assert {"glass_lm", "glass_lm:decode", "efficientnet_lite0:photographs"} <= set(found)
    undescribed = [reference for reference, ready in found.items() if ready.data == "-"]
    assert undescribed == [], "say in benchmarks/study_list.py what they are"
    libraries = {name: ready.library for name, ready in found.items()}
    assert (libraries["minilm"], libraries["glass_lm"], libraries["digits_mlp"]) == ("Equinox", "Haiku", BARE)


def test_a_study_is_found_without_importing_it(tmp_path):
    tmp_path.joinpath("mine.py").write_text(
        "import no_such_library\nfrom flax import nnx\nimport tuner\n"
        "def other() -> tuner.Task: ...\ndef task() -> 'tuner.Task': ...\n"
        "def make_task(size: int) -> tuner.Task: ...\ndef _private() -> tuner.Task: ...\ndef apply(params): ...\n"
    )
    tmp_path.joinpath("helper.py").write_text("def other() -> tuner.Task: ...\n")
    assert find_studies(tmp_path) == [
        Ready(reference=name, model="mine", library="Flax NNX", data="-") for name in ("mine", "mine:other")
    ]


def test_every_study_has_a_test_of_its_score():
    for module in {ready.reference.partition(":")[0] for ready in find_studies()}:
        tree = ast.parse((ROOT / "tests" / f"test_studies_{module}.py").read_text(encoding="utf-8"))
        slow = [
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and any("slow" in ast.unparse(mark) for mark in node.decorator_list)
        ]
        assert any("score" in name for name in slow), module


def test_a_study_that_does_not_exist_is_named(capsys):
    assert studies.main(["digits"]) == 2
    assert "Error: no study 'digits'; there are digits_mlp, " in capsys.readouterr().err


def test_rows_hold_what_was_measured_or_what_is_missing(monkeypatch, capsys):
    answers = {
        "digits_mlp": {name: name for name in studies._CELLS},
        "fashion_mlp:mnist": {
            "error": "the data set mnist is not in /home/me; run `python -m studies.fetch mnist` once"
        },
        "glass_lm": {"error": "no end after 5 s"},
    }
    monkeypatch.setattr(studies, "_in_a_process", lambda reference, budget: answers[reference])
    measured, missing, hung = studies.rows("1s", list(answers))
    assert measured == ("digits_mlp", "perceptron, 2 x 512", BARE, "scikit-learn digits", *studies._CELLS)
    assert len(measured) == len(studies.TITLES)
    assert missing[studies._BEST] == "needs `python -m studies.fetch mnist`"
    assert hung[studies._BEST] == "does not run here"
    assert "/home/me" not in str(missing)
    assert "glass_lm: no end after 5 s" in capsys.readouterr().err


def test_the_table_replaces_the_one_that_was_there(tmp_path):
    document = tmp_path / "README.md"
    document.write_text(f"before\n{studies.BEGIN}\nold\n{studies.END}\nafter\n")
    for _ in range(2):
        studies.write_into(document, "| new |")
        assert document.read_text() == f"before\n{studies.BEGIN}\n\n| new |\n\n{studies.END}\nafter\n"
    document.write_text("no marks")
    with pytest.raises(InputError, match="has no lines '<!-- table: make studies -->' and"):
        studies.write_into(document, "| new |")


def test_what_was_found_is_written_while_the_others_wait(tmp_path, monkeypatch):
    document = tmp_path / "README.md"
    document.write_text(f"{studies.BEGIN}\nold\n{studies.END}\n")
    seen = []

    def measure(reference, budget):
        seen.append(document.read_text())
        return {"score": f"score of {reference}"}

    monkeypatch.setattr(studies, "_in_a_process", measure)
    assert studies.main(["--write", str(document), "digits_mlp", "glass_lm"]) == 0
    before, between = seen
    assert "old" in before
    assert "score of digits_mlp" in between
    assert re.search(r"\| glass_lm +\|", between)
    assert "score of glass_lm" not in between
    assert "score of glass_lm" in document.read_text()


class Chosen:
    """A study that chose a point, or none."""

    def __init__(self, point):
        self._point = point

    def choose(self):
        if self._point is None:
            raise GoalMissed("nothing")
        return self._point

    def point(self, label):
        return make_point(0, label=label, measurement=make_measurement(1.0, memory=2000))


def test_the_best_policy_has_its_confirmed_numbers():
    best = study_row._best(Chosen(make_point(3, label="i8", memory=1000, confirmation=make_confirmation(0.4, 0.002))))
    assert best == {
        "best": "i8",
        "ratio": "0.400 (0.390..0.410)",
        "drop": "+0.0020 (0.0000..+0.0040)",
        "weights": "0.500",
    }
    assert study_row._best(Chosen(make_point(0, label="baseline")))["best"] == "baseline"
    assert study_row._best(Chosen(None)) == {"best": "none", "ratio": "-", "drop": "-", "weights": "-"}


@pytest.mark.slow
def test_a_study_is_searched_in_a_process_of_its_own_and_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    document = tmp_path / "README.md"
    document.write_text(README.read_text(encoding="utf-8"))
    assert studies.main(["--budget", "1s", "--write", str(document), "digits_mlp"]) == 0
    row = next(line for line in document.read_text().splitlines() if line.startswith("| digits_mlp"))
    assert row in capsys.readouterr().out or "0.98" in row
    assert re.search(r"\| +3 \| +0\.9\d+ top1 \|", row)
    assert row.count("|") == len(studies.TITLES) + 1
    assert re.search(r"\d (MB|GB) \|$", row)


def test_the_readme_can_take_the_table():
    text = README.read_text(encoding="utf-8")
    assert text.index(studies.BEGIN) < text.index(studies.END)
    listed = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")][2:]
    assert set(listed) <= {ready.reference for ready in find_studies()} | set(study_list.ABOUT)


def ten_lines():
    (block,) = re.findall(
        r"## Tune your own model in ten lines\n\n```python\n(.*?)```", README.read_text("utf-8"), re.S
    )
    return block


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_tune_a_model(tmp_path):
    block = ten_lines()
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    script = tmp_path / "mine.py"
    script.write_text(f"{block}\nprint(model(model.params, task.search.inputs[0][:5]).shape)\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=280, env=environment, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "(5, 10)"
    assert (tmp_path / "policy.json").is_file()

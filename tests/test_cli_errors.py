"""Bad input: one sentence naming the thing, the value and the remedy; exit code 2; nothing written."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.factories import make_policy, make_study
from tests.studied import make_database
from tuner import load_task, uniform_policy
from tuner.capturing import capture_task
from tuner.cli import main
from tuner.store import Store

TASK = """
import numpy as np
import tuner

x = np.linspace(-1, 1, 64 * 4, dtype=np.float32).reshape(64, 4)

def apply(params, inputs):
    return inputs @ params["dense"]

def task():
    params = {"dense": np.eye(4, 3, dtype=np.float32)}
    return tuner.Task(name="tiny", apply=apply, params=params, inputs=x, labels=np.arange(64) % 3, batch_size=16)

def failing():
    return tuner.Task(name="tiny", apply=lambda p, x: x @ p["dense"].T, params={"dense": np.eye(4, 3, dtype=np.float32)},
                      inputs=x, labels=np.arange(64) % 3, batch_size=16)

def unreadable():
    return tuner.Task(name="tiny", apply=lambda p, x: (x @ p["dense"]).sum(), params={"dense": np.eye(4, 3, dtype=np.float32)},
                      inputs=x, labels=np.arange(64) % 3, batch_size=16)

def empty():
    return tuner.Task(name="tiny", apply=apply, params={"dense": np.eye(4, 3, dtype=np.float32)}, inputs=x[:0], labels=[])

def nan():
    return tuner.Task(name="tiny", apply=apply, params={"dense": np.eye(4, 3, dtype=np.float32)}, inputs=x * np.nan,
                      labels=np.arange(64) % 3)

def unequal():
    return tuner.Task(name="tiny", apply=apply, params={"dense": np.eye(4, 3, dtype=np.float32)}, inputs=x,
                      labels=np.arange(60) % 3)

def whole():
    return tuner.Task(name="tiny", apply=apply, params={"dense": np.eye(4, 3, dtype=np.int32)}, inputs=x,
                      labels=np.arange(64) % 3)

def made(apply):
    return tuner.Task(name="tiny", apply=apply, params={"dense": np.eye(4, 3, dtype=np.float32)}, inputs=x,
                      labels=np.arange(64) % 3, batch_size=16)

def branching():
    def apply(params, inputs):
        if inputs.sum() > 0:
            return inputs @ params["dense"]
        return -inputs @ params["dense"]
    return made(apply)

def labeled():
    return made(lambda params, inputs: {"logits": inputs @ params["dense"], "name": "tiny"})

stack = {"layers": {"w": np.ones((3, 4, 4), np.float32)}}

def looped(apply):
    return tuner.Task(name="tiny", apply=apply, params=stack, inputs=x, labels=np.arange(64) % 3, batch_size=16)

def scanned():
    import jax
    return looped(lambda params, h: jax.lax.scan(lambda h, w: (h @ w, None), h, params["layers"]["w"])[0])

def unrolled():
    return looped(lambda params, h: h @ params["layers"]["w"][0] @ params["layers"]["w"][1] @ params["layers"]["w"][2])

def small_batches():
    return made(lambda params, h: h @ params["dense"] if len(h) > 8 else h[:, :3] * params["dense"][0, 0])

def text():
    return "no task"
"""


@pytest.fixture(autouse=True)
def _files():
    Path("mine.py").write_text(TASK)
    Path("broken.py").write_text("import nothing_of_that_name\n")
    Path("taken.json").write_text("{}")
    Path("typo.toml").write_text('[[rules]]\nlayers = "dnse"\nprecisions = ["i8/i8/i32"]\n')
    Path("unknown.toml").write_text('[[rules]]\nprecisions = ["i9/i8/i32"]\n')
    make_database()


def files() -> dict[str, bytes]:
    """Every file and its content, but for bytecode and SQLite's lock files."""
    paths = [path for path in Path().rglob("*") if path.is_file() and path.suffix not in (".pyc", ".db-wal", ".db-shm")]
    return {str(path): path.read_bytes() for path in paths}


def complains(capsys, *argv: str, code: int = 2) -> str:
    """The one sentence that the command line prints, with nothing written and nothing on stdout."""
    before = files()
    assert main(list(argv)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert err.count("\n") == 1, err
    assert files() == before
    return err.removeprefix("Error: ").rstrip()


NEW = ("--storage", "sqlite:///new.db")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["no_such_module"], ["no module 'no_such_module'", "give module"]),
        (["missing.py"], ["no file", "missing.py", "give module"]),
        (["broken.py"], ["broken.py does not import", "nothing_of_that_name", "install"]),
        (["mine.py:nothing"], ["has no factory 'nothing'", "task", "Define nothing()"]),
        (["mine.py:text"], ["gives a str", "let it return one"]),
        (["mine.py:failing"], ["apply of task 'tiny' fails", "make apply"]),
        (["mine.py:unreadable"], ["metric 'top1'", "(examples, classes)", "let apply return"]),
        (
            ["mine.py:branching"],
            ["apply of task 'tiny' branches in Python on a value", "mine.py", "if inputs.sum() > 0:"],
        ),
        (["mine.py:labeled"], ["apply of task 'tiny' returns a str as output['name'] ('tiny')", "return arrays alone"]),
        (["mine.py:empty"], ["empty"]),
        (["mine.py:nan"], ["nan", "inputs"]),
        (["mine.py:unequal"], ["60", "64"]),
        (["mine.py:whole"], ["no floating array", "int32"]),
        (["mine.py", "--space", "nonsense"], ["unknown search space 'nonsense'", "cpu, floats"]),
        (["mine.py", "--space", "absent.toml"], ["absent.toml"]),
        (["mine.py", "--space", "unknown.toml"], ["i9", "unknown.toml"]),
        (["mine.py", "--space", "typo.toml"], ["'dnse'", "matches no layer", "dense"]),
        (["mine.py", "--sampler", "cmaes"], ["unknown sampler 'cmaes'", "nsga2, tpe, gp, random, exhaustive"]),
        (["mine.py", "--sampler", "exhaustive", "--trials", "3"], ["exhaustive", "3 trials", "--trials"]),
        (["mine.py", "--trials", "0"], ["--trials 0 is zero", "give 1 or more"]),
        (["mine.py", "--trials", "-4"], ["--trials -4 is negative", "give 1 or more"]),
        (["mine.py", "--trials", "few"], ["'few' is not a whole number", "give 1 or more"]),
        (["mine.py", "--budget", "0m"], ["the budget '0m' is zero", "5m, 90s or 1h30m"]),
        (["mine.py", "--budget", "-5m"], ["the budget '-5m' is negative", "5m, 90s or 1h30m"]),
        (["mine.py", "--budget", "soon"], ["cannot read the budget 'soon'", "5m, 90s or 1h30m"]),
        (["mine.py", "--max-drop", "-1%"], ["-1%", "such as 1%"]),
        (["mine.py", "--max-drop", "little"], ["'little'", "1% or 0.01"]),
        (["mine.py", "--objectives", "latency,speed"], ["unknown objective 'speed'", "latency, quality, memory"]),
        (["mine.py", "--batch-size", "0"], ["--batch-size 0 is zero", "give 1 or more"]),
        (["mine.py", "--seed", "-1"], ["the seed -1", "from 0"]),
        (["mine.py", "--study", " "], ["the study name ' ' is empty"]),
        (["mine.py", "--start", "absent.json"], ["absent.json does not exist"]),
        (["mine.py", "--start", "taken.json"], ["taken.json", "format"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].endswith((".py", "module")) else "",
)
def test_search(argv, words, capsys):
    sentence = complains(capsys, "search", *argv, *NEW)
    assert [word for word in words if word not in sentence] == [], sentence


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["front", "mnist"], ["no study 'mnist' in precision.db", "choose one of digits"]),
        (["trials", "mnist"], ["no study 'mnist'", "digits"]),
        (["show", "mnist", "1"], ["no study 'mnist'", "digits"]),
        (["studies", "rm", "mnist"], ["no study 'mnist'", "digits"]),
        (["export", "mnist", "-o", "new.json"], ["no study 'mnist'", "digits"]),
        (["show", "digits", "99"], ["no point '99'", "0, 1, 2, 3"]),
        (["show", "digits", "-7"], ["no point '-7'", "0, 1, 2, 3"]),
        (["show", "digits", "5"], ["trial 5", "compile error: refused", "choose a measured point"]),
        (["front", "digits", "--json", "--csv"], ["--json and --csv", "one of them"]),
        (["export", "digits", "-o", "taken.json"], ["taken.json exists", "--force"]),
        (["export", "digits", "-o", "no/such/folder/p.json"], ["no/such/folder", "make the folder"]),
        (["export", "digits", "-o", "/dev/full", "--force"], ["/dev/full", "another path"]),
        (["export", "digits", "--point", "99", "-o", "new.json"], ["no point '99'"]),
        (["export", "digits", "--point", "astype(bf16)", "-o", "new.json"], ["hand-made cast", "choose a point"]),
        (["export", "digits", "--minimize", "size", "-o", "new.json"], ["'size'", "latency or memory"]),
        (["export", "digits", "--knee", "--point", "1", "-o", "new.json"], ["--point and --knee", "one of them"]),
        (["export", "digits", "--point", "1", "--max-drop", "1%", "-o", "new.json"], ["--max-drop", "--point"]),
        (["diff", "digits:99", "digits:1"], ["no point '99'"]),
        (["diff", "absent.json", "digits:1"], ["absent.json does not exist"]),
        (["diff", "digits:astype(bf16)", "1"], ["hand-made cast"]),
        (["spaces", "nonsense"], ["unknown search space 'nonsense'", "cpu"]),
        (["layers", "mine.py", "--space", "typo.toml"], ["'dnse'", "matches no layer"]),
        (
            ["layers", "mine.py:branching"],
            ["'apply' branches in Python on a value", "if inputs.sum() > 0:", "lax.cond"],
        ),
        (["layers", "mine.py:labeled"], ["returns a str as output['name'] ('tiny')", "return arrays alone"]),
        (["verify", "absent.json", "mine.py"], ["absent.json does not exist"]),
        (["front", "digits", "--storage", "sqlite:///absent.db"], ["absent.db"]),
        (["front", "digits", "--storage", "postgresql://host/db"], ["postgresql", "sqlite:///"]),
        (["front", "digits", "--storage", "nonsense://x"], ["nonsense", "sqlite:///"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].isalpha() else "",
)
def test_reading(argv, words, capsys):
    sentence = complains(capsys, *argv)
    assert [word for word in words if word not in sentence] == [], sentence


def test_a_corrupt_database_is_named(capsys):
    Path("noise.db").write_bytes(b"not a database" * 100)
    sentence = complains(capsys, "front", "digits", "--storage", "sqlite:///noise.db")
    assert "noise.db" in sentence


def test_a_database_of_a_newer_version_is_refused(capsys):
    with sqlite3.connect("precision.db") as connection:
        connection.execute("INSERT INTO tuner_schema VALUES ('9999_from_the_future', '2030-01-01', '99.0')")
    connection.close()
    assert "newer" in complains(capsys, "search", "mine.py")


def test_a_study_of_another_task_is_refused_and_the_field_named(capsys):
    with Store.open("sqlite:///other.db") as store:
        store.create_study(make_study("tiny"))
    sentence = complains(capsys, "search", "mine.py", "--storage", "sqlite:///other.db")
    assert "study 'tiny' of task studies.digits_mlp:task in other.db was made with program aaaaaaaaaaaa" in sentence
    assert "--study" in sentence


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["policy.json is empty"]),
        ('{"format": 1, "layers": [', ["policy.json is cut off"]),
        ('{"format": 99, "layers": []}', ["policy format 99", "upgrade"]),
    ],
)
def test_verify_refuses_a_file_that_is_no_policy(content, words, capsys):
    Path("policy.json").write_text(content)
    sentence = complains(capsys, "verify", "policy.json", "mine.py")
    assert [word for word in words if word not in sentence] == [], sentence


def test_verify_refuses_a_policy_for_another_program(capsys):
    make_policy("original", "i8/i8/i32").save("policy.json")
    sentence = complains(capsys, "verify", "policy.json", "mine.py")
    assert "policy.json names layer 'dense_0', which this program does not have" in sentence


def test_starting_from_the_policy_of_another_program_names_file_and_layer(capsys):
    make_policy("original", "i8/i8/i32").save("policy.json")
    sentence = complains(capsys, "search", "mine.py", "--start", "policy.json", *NEW)
    assert "policy.json names layer 'dense_0', which this program does not have" in sentence


@pytest.mark.parametrize(
    "command", [["verify", "policy.json", "TASK"], ["search", "TASK", "--start", "policy.json", *NEW]]
)
@pytest.mark.parametrize(
    ("made_for", "given", "words"),
    [
        ("scanned", "unrolled", ["made for a scan", "'layers' stands for all", "'layers/0', 'layers/1', 'layers/2'"]),
        ("unrolled", "scanned", ["whose iterations are layers of their own", "here 'layers'", "split_scans=True"]),
        ("small_batches", "scanned", ["names layer 'dense'", "its layers: input, layers", "or search this one"]),
    ],
)
def test_a_policy_of_another_form_is_refused(command, made_for, given, words, capsys):
    task = load_task(f"mine.py:{made_for}")
    uniform_policy(capture_task(task), "bf16/bf16/f32").save("policy.json")
    sentence = complains(capsys, *(f"mine.py:{given}" if word == "TASK" else word for word in command))
    assert [word for word in ["policy.json ", *words] if word not in sentence] == [], sentence


def test_other_layers_in_small_batches_are_told_with_both_shapes(capsys):
    uniform_policy(capture_task(load_task("mine.py:small_batches")), "bf16/bf16/f32").save("policy.json")
    argv = ["search", "mine.py:small_batches", "--batch-size", "8", "--start", "policy.json", *NEW]
    sentence = complains(capsys, *argv)
    assert "names layer 'dense', which this program does not have (its layers: input)" in sentence
    assert "made with inputs float32[16,4], and these are float32[8,4]" in sentence
    assert "use shapes that lead to the same layers" in sentence


def test_starting_from_a_precision_outside_the_space_names_file_layer_and_precision(capsys):
    layers = [{"name": "input", "precision": "original"}, {"name": "dense", "precision": "f16/f16/f16"}]
    Path("policy.json").write_text(json.dumps({"format": 1, "layers": layers}))
    sentence = complains(capsys, "search", "mine.py", "--space", "cpu", "--start", "policy.json", *NEW)
    assert "policy.json gives layer 'dense' f16/f16/f16, which this search space does not allow (original, " in sentence


def test_verbose_adds_where_it_came_from(capsys):
    assert main(["front", "mnist", "-v"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.rstrip().splitlines()[-1].startswith("Error: no study 'mnist'")


def test_json_of_a_missing_study_is_no_json(capsys):
    assert main(["front", "mnist", "--json"]) == 2
    out = capsys.readouterr().out
    with pytest.raises(json.JSONDecodeError):
        json.loads(out)

import sys
import textwrap

import pytest

from tuner.errors import InputError
from tuner.task_reference import load_study, load_task

STUDY = """
    import numpy as np
    from tuner.task import Task
    from {helper} import scale

    space = "cpu"
    max_drop = "1%"
    trials = 12

    def task():
        return small()

    def small(batch_size=4):
        return Task(
            name="toy", apply=lambda params, x: x @ params, params=np.ones((2, 2), np.float32) * scale,
            inputs=np.arange(40.0, dtype=np.float32).reshape(20, 2), labels=np.arange(20) % 2, batch_size=batch_size,
        )

    def number():
        return 3

    def broken():
        raise ValueError("no such weight\\nsecond line")

    def leaving():
        raise SystemExit(3)
    """


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory to write modules into; names in it are unique to the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(folder, name, text):
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(text))
    return path


@pytest.fixture
def study(place):
    write(place, "ref_helper", "scale = 2")
    write(place, "ref_study", STUDY.format(helper="ref_helper"))
    return place


def test_a_module_of_the_working_directory_is_loaded_with_its_settings(study):
    loaded = load_study("ref_study")
    assert (loaded.space, loaded.max_drop, loaded.trials) == ("cpu", "1%", 12)
    assert loaded.task.reference == "ref_study:task"
    assert load_task("ref_study:small").reference == "ref_study:small"


def test_a_file_is_loaded_with_the_modules_beside_it_and_remembered_by_absolute_path(place, monkeypatch):
    write(place / "models", "ref_beside", "scale = 3")
    path = write(place / "models", "ref_file", STUDY.format(helper="ref_beside"))
    task = load_task("models/ref_file.py")
    assert task.params[0, 0] == 3
    assert task.reference == f"{path}:task"
    monkeypatch.chdir("/")
    assert load_task(f"{task.reference}").fingerprints() == task.fingerprints()
    assert load_task(f"{path}:small").reference == f"{path}:small"


def test_settings_are_optional(place):
    write(place, "ref_helper2", "scale = 2")
    text = STUDY.format(helper="ref_helper2")
    write(place, "ref_bare", "\n".join(line for line in text.splitlines() if " = " not in line or "(" in line))
    loaded = load_study("ref_bare")
    assert (loaded.space, loaded.max_drop, loaded.trials) == (None, None, None)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            "ref_study:other",
            r"ref_study has no factory 'other'; its public callables are: task, small, number, broken, leaving",
        ),
        ("ref_study:number", r"ref_study:number gives a int, not a tuner.Task; let it return one"),
        ("ref_study:broken", r"ref_study:broken\(\) fails: ValueError: no such weight; it is called without"),
        ("ref_study:leaving", r"ref_study:leaving\(\) fails: SystemExit: 3; it is called without"),
        ("ref_study:", r"task 'ref_study:' is not of the form module, module:factory or path/to/file.py"),
        ("ref_study:not a name", r"is not of the form module"),
        ("", r"task '' is not of the form"),
        (".", r"task '.' is not of the form"),
        ("ref_study:task:more", r"task 'ref_study:task:more' is not of the form"),
        ("ref_absent", r"no module 'ref_absent' for task 'ref_absent', neither installed nor in /"),
        ("ref_study.sub", r"no module 'ref_study.sub'"),
        ("ref_absent.py", r"no file /.*/ref_absent.py"),
        ("models/ref_study", r"task 'models/ref_study' is a path that does not end in .py"),
    ],
)
def test_a_reference_that_gives_no_task_is_refused(study, reference, message):
    with pytest.raises(InputError, match=message):
        load_task(reference)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import ref_missing_library", r"No module named 'ref_missing_library'; install ref_missing_library"),
        ("def task(:", r"does not import: SyntaxError"),
        ("raise RuntimeError('first\\nsecond')", r"does not import: RuntimeError: first; mend it"),
        ("import sys; sys.exit(5)", r"does not import: SystemExit: 5; mend it"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".py"])
def test_a_module_that_does_not_import_shows_the_cause(place, text, message, suffix):
    write(place, "ref_failing", text)
    with pytest.raises(InputError, match=message) as caught:
        load_task(f"ref_failing{suffix}")
    assert "\n" not in str(caught.value)


def test_an_error_for_the_user_passes_through_unchanged(place):
    write(
        place, "ref_user", "from tuner.errors import InputError\n\ndef task():\n    raise InputError('run make data')"
    )
    with pytest.raises(InputError, match=r"^run make data$"):
        load_task("ref_user")


def test_settings_of_the_wrong_type_are_named(study):
    path = study / "ref_study.py"
    path.write_text(path.read_text().replace("trials = 12", "trials = 'many'"))
    with pytest.raises(InputError, match=r"ref_study sets trials='many'; give int"):
        load_study("ref_study")

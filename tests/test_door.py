import ast
import importlib
import inspect
import subprocess
import sys

import pytest

import tuner

HEAVY = {"jax", "jaxlib", "optuna", "sqlalchemy", "tensorflow_datasets"}


def loaded_by(*arguments):
    """Every module that `python ARGUMENTS` imports, as Python itself reports it."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    return {line.rsplit("|", 1)[1].strip() for line in run.stderr.splitlines() if line.startswith("import time:")}


def door_imports():
    """(module, name) of the imports that type checkers see."""
    tree = ast.parse(inspect.getsource(tuner))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {(node.module, alias.name, alias.asname) for node in block.body for alias in node.names}


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["-c", "import tuner"], id="import tuner"),
        pytest.param(["-c", "import search_spaces"], id="import search_spaces"),
        pytest.param(["-m", "tuner", "--help"], id="tuner --help"),
        pytest.param(["-m", "tuner", "--version"], id="tuner --version"),
    ],
)
def test_loads_nothing_heavy(arguments):
    assert not loaded_by(*arguments) & HEAVY


def test_the_check_would_notice_a_heavy_import():
    assert "sqlalchemy" in loaded_by("-c", "import sqlalchemy")
    assert "tuner" in loaded_by("-m", "tuner", "--help")


@pytest.mark.parametrize("name", dir(tuner))
def test_every_name_at_the_door_opens(name):
    value = getattr(tuner, name)
    assert not inspect.ismodule(value)


def test_type_checkers_see_the_same_names():
    assert door_imports() == {(room, name, name) for name, room in tuner._DOOR.items()}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tuner' has no attribute 'seek'"):
        _ = tuner.seek


def test_importing_a_room_does_not_hide_the_function_of_that_name():
    importlib.import_module("tuner.search")
    assert inspect.isfunction(tuner.search)
    code = "import tuner, tuner.search, inspect; assert inspect.isfunction(tuner.search)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

import subprocess
import sys

import click
import pytest

from tuner.cli import main
from tuner.cli.group import COMMANDS, tuner

HEAVY = {"jax", "optuna", "sqlalchemy", "numpy", "rich"}


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('LOADED', *sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stdout.rpartition("LOADED")[2].split())


def test_help_loads_nothing_heavy():
    loaded = loaded_by("from tuner.cli import main\nmain(['--help'])")
    assert loaded & (HEAVY | {"search_spaces"}) == set()
    assert not any(name.startswith("tuner.cli.") and name.removeprefix("tuner.cli.") in COMMANDS for name in loaded)


def test_help_of_a_command_loads_nothing_heavy():
    assert loaded_by("from tuner.cli import main\nmain(['search', '--help'])") & HEAVY == set()


def test_the_check_of_loaded_modules_can_fail():
    assert "sqlalchemy" in loaded_by("import sqlalchemy")


def test_commands_are_listed_in_the_order_a_person_meets_them(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    positions = [text.index(f"\n  {name} ") for name in COMMANDS]
    assert positions == sorted(positions)
    expected = "doctor layers spaces predict search studies front trials show diff suggest export verify"
    assert list(COMMANDS) == expected.split()


def test_alone_it_prints_its_help(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: ")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_each_command_says_of_itself(name, capsys):
    command = tuner.get_command(click.Context(tuner), name)
    assert command.help.splitlines()[0] == COMMANDS[name]
    assert main([name, "--help"]) == 0
    assert COMMANDS[name] in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name):
    command = tuner.get_command(click.Context(tuner), name)
    silent = [param.name for param in command.params if isinstance(param, click.Option) and not param.help]
    assert silent == []


def test_version(capsys):
    import tuner as package

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"tuner {package.__version__}"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["serach"], "Error: No such command 'serach'."),
        (["front"], "Error: Missing argument 'STUDY'. See 'tuner front --help'."),
        (["front", "digits", "--jsno"], "Error: No such option '--jsno'."),
        (["search", "task.py", "--seed", "soon"], "Error: Invalid value for '--seed': 'soon' is not a valid integer."),
    ],
)
def test_a_mistyped_command_line_is_one_sentence_and_exit_code_2(argv, sentence, capsys):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(sentence)
    assert err.count("\n") == 1

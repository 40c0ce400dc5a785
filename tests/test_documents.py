"""What the documents, the Makefile and the constraints say is so."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import tuner
from tuner.cli.group import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(ROOT.glob("*.md"))


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def constraints(name):
    lines = [line for line in text(name).splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!]+", line) for line in lines), "names and versions only, no hosts"
    return {canonicalize_name(name): Version(version) for name, version in (line.split("==") for line in lines)}


def requirements():
    project = tomllib.loads(text("pyproject.toml"))
    extras = project["project"]["optional-dependencies"].values()
    everything = [*project["project"]["dependencies"], *(line for extra in extras for line in extra)]
    return [Requirement(line) for line in everything]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_names_only_what_exists(document):
    words = document.read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):", text("Makefile"), flags=re.MULTILINE)
    assert set(re.findall(r"(?:`|^|\$ )make ([a-z-]+)", words, flags=re.MULTILINE)) <= set(targets)
    assert set(re.findall(r"(?:`|\$ )tuner ([a-z]+)", words)) <= set(COMMANDS)
    paths = re.findall(r"\]\(([^):#]+)\)", words) + re.findall(r"`((?:tests|tuner|\.ci)/[\w./]*)`", words)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_readme_lists_the_whole_door():
    section = text("README.md").split("## The public door")[1]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`tuner\.(\w+)`", row)} == set(dir(tuner)) - {"__version__"}


def test_readme_has_every_command():
    missing = {command for command in COMMANDS if f"tuner {command}" not in text("README.md")}
    assert missing == set()


def test_architecture_shows_every_room():
    page = text("ARCHITECTURE.md")
    folders = {path.parent.name for path in (ROOT / "tuner").glob("*/__init__.py")}
    assert {folder for folder in folders if f"{folder}/" not in page} == set()


def test_constraints_pin_what_the_project_requires():
    pinned = constraints("constraints.txt")
    for requirement in requirements():
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


def test_minimum_constraints_are_the_lower_bounds():
    bounds = {
        canonicalize_name(requirement.name): Version(clause.version)
        for requirement in requirements()
        for clause in requirement.specifier
        if clause.operator == ">="
    }
    assert constraints("constraints-minimum.txt") == bounds


def test_ci_runs_the_checks_and_then_the_tests():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True, timeout=30)
    commands = [line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("make ")]
    assert [command.split("#")[0].strip() for command in commands] == ["make check", "make test"]

"""The search for a second Python, which continuous integration runs the conformance suite with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIND = Path(__file__).resolve().parent.parent / ".ci" / "find-python"

pytestmark = pytest.mark.skipif(not FIND.exists(), reason="a source distribution holds no .ci folder")


def find(version: str, home: Path, *folders: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"])
    environment = {"PATH": path, "HOME": str(home)}
    return subprocess.run([FIND, version], env=environment, capture_output=True, text=True, check=False)


def make(file: Path, script: str) -> Path:
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def test_a_shim_that_does_not_start_is_passed_over_for_what_the_version_manager_keeps(tmp_path):
    shim = make(tmp_path / "shims" / "python3.99", "echo 'command not found' >&2; exit 127")
    kept = make(tmp_path / ".pyenv" / "versions" / "3.99.0" / "bin" / "python3.99", "exit 0")
    found = find("3.99", tmp_path, shim.parent)
    assert (found.returncode, found.stdout) == (0, f"{kept}\n"), found.stderr


def test_where_there_is_none_it_says_so_and_fails(tmp_path):
    wrong = make(tmp_path / "bin" / "python3.99", f'exec {sys.executable} "$@"')  # the name lies
    found = find("3.99", tmp_path, wrong.parent)
    assert found.returncode == 1
    assert found.stdout == ""
    assert found.stderr.startswith("no Python 3.99 that starts was found on the PATH")

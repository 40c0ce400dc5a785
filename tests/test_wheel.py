"""What is installed is what is promised: the wheel's files, and the command line running from them alone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tuner

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"search_spaces", "studies", "tuner"}

pytestmark = pytest.mark.slow


def run(*arguments, **options):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that holds what installing the wheel would put into site-packages; built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"jax_precision_tuner-{tuner.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def installed_run(installed, *arguments):
    environment = os.environ | {"PYTHONPATH": str(installed)}
    return run("-P", *arguments, env=environment, cwd=installed.parent)


def test_holds_the_three_packages_and_nothing_else(installed):
    metadata = f"jax_precision_tuner-{tuner.__version__}.dist-info"
    assert {path.name for path in installed.iterdir()} == PACKAGES | {metadata}
    assert (
        (installed / metadata / "licenses" / "LICENSE").read_text(encoding="utf-8").strip().startswith("Apache License")
    )


def test_holds_every_module_and_every_data_file(installed):
    def files(root):
        found = {path.relative_to(root) for package in PACKAGES for path in (root / package).rglob("*")}
        return {path for path in found if path.suffix not in ("", ".pyc")}

    assert files(installed) == files(ROOT)
    presets = {path.name for path in (installed / "search_spaces" / "presets").glob("*.toml")}
    assert {"cpu.toml", "gpu.toml", "tpu.toml", "floats.toml", "memory.toml"} <= presets
    assert (installed / "tuner" / "policy.schema.json").is_file()


def test_the_command_line_runs_from_the_installed_files(installed):
    place = installed_run(installed, "-c", "import tuner; print(tuner.__file__)")
    assert Path(place.strip()).is_relative_to(installed)
    assert "search" in installed_run(installed, "-m", "tuner", "--help")
    assert tuner.__version__ in installed_run(installed, "-m", "tuner", "--version")
    assert "cpu" in installed_run(installed, "-m", "tuner", "spaces")


def test_the_console_script_is_declared(installed):
    (entry_points,) = installed.glob("*.dist-info/entry_points.txt")
    assert "tuner = tuner.cli:main" in entry_points.read_text(encoding="utf-8")

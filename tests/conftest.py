"""What every test runs under: the CPU unless told otherwise, an empty working folder, no traces outside it."""

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent

# Before anything imports JAX. An accelerator is used only when the caller asks: JAX_PLATFORMS=cuda pytest -m gpu
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Subprocesses run in the test's own folder and still find the packages.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

# Compiled programs of tests are kept until the run ends, one folder for all its workers, and not in the user's cache.
_COMPILED = None
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _COMPILED = os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="tuner-tests-")

# Compiling takes seconds at times, so no deadline per example; few examples because each one may compile.
hypothesis.settings.register_profile("tuner", deadline=None, max_examples=30)
hypothesis.settings.load_profile("tuner")


@pytest.fixture(autouse=True)
def _own_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default storage and relative outputs land here, never in the repository."""
    monkeypatch.chdir(tmp_path)


def pytest_unconfigure() -> None:
    """Removes the folder, in the process that made it: workers inherit its name and end before."""
    if _COMPILED is not None:
        shutil.rmtree(_COMPILED, ignore_errors=True)

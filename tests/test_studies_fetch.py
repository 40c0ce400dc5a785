import shutil
import subprocess
import urllib.error

import pytest

from studies import _mnist_builders, fetch
from studies._mnist_builders import is_prepared, make_builder
from tests.mnist_files import pass_off_as_official, write_files

why_unreachable = fetch._why_unreachable


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache on a machine without network, and without the package installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_mnist_builders, "INSTALLED", tmp_path / "installed")
    monkeypatch.setattr(fetch, "DEFAULT", ("fashion_mnist",))
    monkeypatch.setattr(fetch, "_why_unreachable", lambda url: "URLError: no such host")
    return tmp_path / "cache" / "jax-precision-tuner"


@pytest.fixture
def files(tmp_path, monkeypatch):
    folder = write_files(tmp_path / "files", 5)
    pass_off_as_official(folder, 5, monkeypatch)
    return folder


def test_the_debian_package_stands_in_for_the_network(files, cache, monkeypatch, capsys):
    commands = []

    def run(command, folder):
        commands.append(command[:2])
        if command[0] == "apt-get":
            if ["apt-get", "update"] not in commands:
                raise subprocess.CalledProcessError(100, command, stderr="E: Unable to locate package")
            (folder / "package.deb").touch()
        else:
            shutil.copytree(files, folder / _mnist_builders.INSTALLED.relative_to("/"))

    monkeypatch.setattr(fetch, "_run", run)
    assert fetch.main([]) == 0
    assert ["apt-get", "update"] in commands
    assert is_prepared(make_builder("fashion_mnist"))
    assert "does not answer: taking the Debian package dataset-fashion-mnist" in capsys.readouterr().err
    assert [path.name for path in cache.iterdir()] == ["tensorflow_datasets"]

    commands.clear()
    assert fetch.main(["fashion_mnist"]) == 0
    assert commands == []


def test_a_damaged_data_set_is_built_again(files, cache, monkeypatch, capsys):
    monkeypatch.setattr(_mnist_builders, "INSTALLED", files)
    fetch.fetch("fashion_mnist")
    (record,) = cache.rglob("*test.array_record*")
    whole = record.read_bytes()
    record.write_bytes(whole[:100])
    fetch.fetch("fashion_mnist")
    assert "is damaged: building it again" in capsys.readouterr().err
    assert record.read_bytes() == whole


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory: 'apt-get'"),
        subprocess.CalledProcessError(100, ["apt-get"], stderr="Reading...\nE: Unable to lock directory\n"),
    ],
)
def test_without_network_and_package_both_reasons_and_the_remedy_are_said(error, monkeypatch, capsys):
    def run(command, folder):
        raise error

    monkeypatch.setattr(fetch, "_run", run)
    assert fetch.main([]) == 2
    said = capsys.readouterr().err
    assert (
        "does not answer (URLError: no such host), and the Debian package dataset-fashion-mnist cannot be had" in said
    )
    assert "No such file" in said or "(E: Unable to lock directory)" in said
    assert "connect to a network, or install that package" in said


def test_mnist_needs_its_own_host(capsys):
    assert fetch.main(["mnist"]) == 2
    assert "mnist comes from https://storage.googleapis.com/cvdf-datasets/mnist/ only" in capsys.readouterr().err


def test_an_unknown_name_lists_the_known_ones(capsys):
    assert fetch.main(["cifar"]) == 2
    assert "unknown data set 'cifar'; use one of fashion_mnist, mnist, minilm, vader" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (urllib.error.HTTPError("http://host/", 403, "Forbidden", None, None), None),
        (
            urllib.error.HTTPError("http://host/", 503, "Unavailable", None, None),
            "HTTPError: HTTP Error 503: Unavailable",
        ),
        (TimeoutError("timed out"), "TimeoutError: timed out"),
    ],
)
def test_a_host_that_answers_is_told_from_a_proxy_that_refuses(error, reason, monkeypatch):
    def answer(request, timeout):
        raise error

    monkeypatch.setattr("urllib.request.urlopen", answer)
    assert why_unreachable("http://host/") == reason

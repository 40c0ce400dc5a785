import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.store import Owner
from tuner.store import owner as owner_module


@pytest.fixture(params=["proc", "ps"])
def way(request, monkeypatch):
    """Both ways of asking the system, where it has them."""
    if request.param == "proc" and not Path("/proc/self/stat").exists():
        pytest.skip("no /proc here")
    if request.param == "ps":
        try:
            subprocess.run(["ps", "-p", "1"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no ps here")
        monkeypatch.setattr(owner_module, "_started", owner_module._started_by_ps)
    return request.param


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_this_process_lives(way):
    me = Owner.current()
    assert me.pid == os.getpid()
    assert me.started
    assert me.alive()
    assert me == Owner.current()


def test_a_process_that_ended_is_dead(way, sleeper):
    owner = replace(Owner.current(), pid=sleeper.pid, started=owner_module._started(sleeper.pid))
    assert owner.alive()
    sleeper.kill()
    sleeper.wait()
    assert not owner.alive()


def test_a_killed_process_whose_parent_has_not_noticed_is_dead(sleeper):
    if not Path("/proc/self/stat").exists():
        pytest.skip("no /proc here")
    owner = replace(Owner.current(), pid=sleeper.pid, started=owner_module._started(sleeper.pid))
    sleeper.kill()
    while owner.alive():  # until the kernel has ended it; nobody waits for it
        pass
    assert sleeper.returncode is None


def test_a_later_process_with_the_same_number_is_not_the_owner(way):
    assert not replace(Owner.current(), started="at another time").alive()


def test_a_process_on_another_host_is_believed_alive():
    assert Owner(host="elsewhere", pid=1, started="long ago").alive()


def test_where_the_system_does_not_tell_nobody_is_declared_dead(monkeypatch):
    def no_ps(*args, **kwargs):
        raise FileNotFoundError("ps")

    monkeypatch.setattr(subprocess, "run", no_ps)
    monkeypatch.setattr(owner_module, "_started", owner_module._started_by_ps)
    me = Owner.current()
    assert me.started == ""
    assert me.alive()

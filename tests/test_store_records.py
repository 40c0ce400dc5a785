import subprocess
import sys

import pytest

import tuner.store
from tuner.store import StudyCounts

CHECK = "import sys; import {module}; print(*sorted({{'jax', 'optuna', 'sqlalchemy'}} & set(sys.modules)))"


@pytest.mark.parametrize(
    ("module", "loaded"),
    [("tuner.store.records", ""), ("tuner.store", ""), ("tuner.store.store", "sqlalchemy")],
)
def test_records_can_be_used_without_the_database_library(module, loaded):
    run = subprocess.run(
        [sys.executable, "-c", CHECK.format(module=module)], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == loaded


def test_an_unknown_name_is_no_part_of_the_room():
    with pytest.raises(AttributeError, match=r"'tuner\.store' has no attribute 'Shop'"):
        _ = tuner.store.Shop


def test_counts_add_up():
    assert StudyCounts(measured=3, pruned=2, failed=1, running=1, on_front=2).total == 7

"""Made schema_1.db: a small study as the first schema keeps it, next to Optuna's tables.

    python -m tests.assets.make_schema_1

A database of a released schema is evidence and is not made again; the next schema gets its own script and file.
"""

import sqlite3
import tempfile
from pathlib import Path

import optuna
from optuna.storages import RDBStorage

from tests.factories import DEVICE, make_confirmation, make_layers, make_measurement, make_policy, make_study
from tuner.measurement import Failure
from tuner.store import Owner, Store

TARGET = Path(__file__).with_name("schema_1.db")
OWNER = Owner(host="a-host-of-the-past", pid=4242, started="long ago")


def fill(store: Store) -> None:
    """One study with something in every table."""
    study = store.create_study(make_study("schema 1"))
    store.save_layers(study.id, make_layers())
    candidates = [
        ("baseline", make_policy(), make_measurement(1.0, 0.0, 4000)),
        ("uniform i8/i8/i32", make_policy("original", "i8/i8/i32", "i8/i8/i32"), make_measurement(0.3, 0.004, 1200)),
        ("trial 2", make_policy("original", "i8/i8/i32"), make_measurement(0.6, float("nan"), 2000)),
        ("trial 3", make_policy("bf16"), Failure(cause="non-finite", message="NaN in the outputs", layer="dense_1")),
        ("trial 4", make_policy("f16"), None),
    ]
    for trial, (label, policy, outcome) in enumerate(candidates):
        claimed = store.claim(study.id, key=policy.hash, policy=policy, label=label, trial=trial, owner=OWNER)
        if claimed is not None and outcome is not None:
            store.record(claimed, outcome)
        if claimed is not None and trial == 1:
            store.confirm(claimed, make_confirmation(0.31, 0.006))
    cast = store.claim(study.id, key="cast:bf16", policy=None, label="astype(bf16)", trial=-1, owner=OWNER)
    if cast is not None:
        store.record(cast, make_measurement(1.2, 0.001, 2000))
    store.save_probe(DEVICE, "kernel dense_0", {"plain": 0.25})
    storage = RDBStorage(store.url, engine_kwargs=store.engine_options)
    optuna.create_study(storage=storage, study_name=study.name, directions=["minimize", "maximize", "minimize"])


def main() -> None:
    """Writes the file in as few bytes as SQLite can."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "schema_1.db"
        with Store.open(file) as store:
            fill(store)
        TARGET.unlink(missing_ok=True)
        connection = sqlite3.connect(file, isolation_level=None)
        connection.execute("PRAGMA page_size=512")
        connection.execute("VACUUM INTO ?", [str(TARGET)])
        connection.close()


if __name__ == "__main__":
    main()

"""A database with one finished study in it, without measuring anything."""

from pathlib import Path

from tests.factories import make_confirmation, make_layers, make_measurement, make_policy, make_study
from tuner.measurement import COMPILE_ERROR, SLOW, Confirmation, Failure, Measurement
from tuner.policy import Policy
from tuner.store import Owner, Store

URL = "sqlite:///precision.db"
NAME = "digits"

BASELINE = make_policy()
SAME = make_policy("original", "f32/f32/f32", "f32/f32/f32")
INT8 = make_policy("original", "i8/i8/i32", "i8/i8/i32")
MIXED = make_policy("original", "i8/i8/i32", "bf16/bf16/f32")
SLOWER = make_policy("f16", "original", "original")
BROKEN = make_policy("bf16", "original", "original")
RAN = {"dense_0": "as requested", "dense_1": "different: f32"}

# trial, label, policy, outcome, confirmation: `i8` looks best and is rejected on the holdout split.
Entry = tuple[int, str, Policy | None, Measurement | Failure, Confirmation | Failure | None]
ENTRIES: tuple[Entry, ...] = (
    (0, "baseline", BASELINE, make_measurement(1.0, 0.0, 4000), None),
    (1, "f32/f32/f32", SAME, make_measurement(0.9, 0.0, 4000), make_confirmation(0.91, 0.001)),
    (2, "i8/i8/i32", INT8, make_measurement(0.3, 0.008, 1000, effective=RAN), make_confirmation(0.31, 0.02)),
    (3, "1 x bf16/bf16/f32, 1 x i8/i8/i32", MIXED, make_measurement(0.5, 0.004, 1500), make_confirmation(0.52, 0.006)),
    (4, "1 x f16/f16/f16", SLOWER, Failure(cause=SLOW, message="one call takes 4 times the baseline's"), None),
    (5, "1 x bf16/bf16/bf16", BROKEN, Failure(cause=COMPILE_ERROR, message="refused", layer="input"), None),
    (-1, "astype(bf16)", None, make_measurement(1.4, 0.001, 5000), None),
)


def make_database(file: Path | str = "precision.db", entries: tuple[Entry, ...] = ENTRIES, **study: object) -> str:
    """The database's URL."""
    url = f"sqlite:///{file}"
    with Store.open(url) as store:
        record = store.create_study(make_study(NAME, max_drop="1%", **study))
        store.save_layers(record.id, make_layers())
        for trial, label, policy, outcome, confirmation in entries:
            key = policy.hash if policy is not None else f"cast:{label}"
            candidate = store.claim(record.id, key=key, policy=policy, label=label, trial=trial, owner=Owner.current())
            store.record(candidate, outcome)
            if confirmation is not None:
                store.confirm(candidate, confirmation)
    return url

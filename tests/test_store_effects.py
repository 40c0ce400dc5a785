import math

from tuner.effect import Effect
from tuner.store import Store

HERE = {"program": "a", "device": "cpu"}
FOUND = {
    "dense_0": {"i8/i8/i32": Effect(error=0.01, kl=1e-5, examples=256)},
    "dense_1": {"f16/f16/f16": Effect(error=math.inf, kl=None, examples=256)},
}


def test_effects_come_back_as_they_were():
    with Store.open() as store:
        store.save_effects(HERE, FOUND)
    with Store.open(read_only=True) as store:
        assert store.find_effects(HERE) == FOUND
        assert store.find_effects({**HERE, "device": "gpu"}) == {}


def test_the_first_one_found_stays():
    with Store.open() as store:
        store.save_effects(HERE, FOUND)
        again = {
            "dense_0": {"i8/i8/i32": Effect(error=0.5, kl=None, examples=1), "bf16": FOUND["dense_0"]["i8/i8/i32"]}
        }
        store.save_effects(HERE, again)
        assert store.find_effects(HERE)["dense_0"] == {**FOUND["dense_0"], "bf16": FOUND["dense_0"]["i8/i8/i32"]}

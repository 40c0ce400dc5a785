import jax.numpy as jnp
import numpy as np

from search_spaces import Precision
from tuner.measure import ranking
from tuner.measure.ranking import rank_by_speed
from tuner.program import capture

PARAMS = {"small": {"w": np.ones((8, 4), np.float32)}, "large": {"w": np.ones((8, 128), np.float32)}}
PRECISIONS = [Precision.parse(text) for text in ("f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32")]


def apply(params, x):
    return (x @ params["large"]["w"]).sum() + x @ params["small"]["w"]


def program():
    return capture(apply, PARAMS, (np.ones((16, 8), np.float32),))


def test_ranks_every_precision_once():
    assert sorted(map(str, rank_by_speed(program(), PRECISIONS))) == sorted(map(str, PRECISIONS))


def test_times_the_heaviest_layer_and_puts_the_fastest_first(monkeypatch):
    seconds = dict(zip(PRECISIONS, (0.3, 0.1, 0.2), strict=True))
    timed = []

    def fake(site, precision):
        timed.append(site.eqn.invars[1].aval.shape)
        return seconds[precision]

    monkeypatch.setattr(ranking, "_time", fake)
    assert rank_by_speed(program(), PRECISIONS) == [PRECISIONS[1], PRECISIONS[2], PRECISIONS[0]]
    assert timed == [(8, 128)] * 3


def test_what_fails_cannot_run_or_has_no_time_left_comes_last_in_the_order_given(monkeypatch):
    def fake(site, precision):
        if precision == PRECISIONS[1]:
            raise RuntimeError("no such kernel")
        return 0.1

    monkeypatch.setattr(ranking, "_time", fake)
    unavailable = Precision.parse("i4/bf16/f32")
    order = rank_by_speed(program(), [unavailable, PRECISIONS[1], PRECISIONS[2], PRECISIONS[0]])
    assert order == [PRECISIONS[2], PRECISIONS[0], unavailable, PRECISIONS[1]]
    monkeypatch.setattr(ranking, "_BUDGET_S", -1.0)
    assert rank_by_speed(program(), PRECISIONS) == PRECISIONS


def test_a_program_without_products_keeps_the_order():
    empty = capture(lambda params, x: jnp.sin(x), PARAMS, (np.ones((2, 2), np.float32),))
    assert rank_by_speed(empty, PRECISIONS) == PRECISIONS


def test_convolutions_and_products_of_activations_can_be_timed():
    import jax

    conv = capture(
        lambda params, x: jax.lax.conv(x, params["w"], (1, 1), "SAME"),
        {"w": np.ones((4, 3, 3, 3), np.float32)},
        (np.ones((2, 3, 6, 6), np.float32),),
    )
    dot = capture(lambda params, x: x @ x.T * params["s"], {"s": np.float32(1)}, (np.ones((4, 6), np.float32),))
    for each in (conv, dot):
        assert set(rank_by_speed(each, [Precision.parse("original"), *PRECISIONS])) == {
            Precision.parse("original"),
            *PRECISIONS,
        }

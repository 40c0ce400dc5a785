import pytest

from tuner.constraints import Constraint, read_constraints
from tuner.drop import Drop
from tuner.errors import InputError
from tuner.metrics import Metric, find_metric

TOP1 = find_metric("top1")


def test_a_constraint_is_a_metric_and_the_drop_it_may_have():
    mine = Metric(name="mine", score=lambda outputs, labels: outputs)
    found = read_constraints({"cross_entropy": "2%rel", "top5": 0.01, mine: None}, TOP1)
    assert found == (
        Constraint(metric=find_metric("cross_entropy"), max_drop=Drop(0.02, relative=True)),
        Constraint(metric=find_metric("top5"), max_drop=Drop(0.01)),
        Constraint(metric=mine),
    )
    assert [str(constraint) for constraint in found] == ["cross_entropy 2%rel", "top5 1%", "mine"]


def test_there_need_not_be_any():
    assert read_constraints(None, TOP1) == read_constraints({}, TOP1) == ()


def test_the_fingerprint_follows_metric_and_limit():
    def digest(**given):
        return read_constraints(given, TOP1)[0].fingerprint

    assert digest(mse=0.1) == digest(mse="10%")
    assert len({digest(mse=0.1), digest(mse="10%rel"), digest(mse=None), digest(cosine=0.1)}) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["mse"], r"constraints=\['mse'\] is a list; give metrics with the drop that each may have, such as \{"),
        (
            {"top1": "1%"},
            r"constraints name 'top1', which is the metric that is optimized; its allowed drop is max_drop",
        ),
        ({"f2": 0.1}, r"unknown metric 'f2'; use one of top1,"),
        ({"mse": -1}, r"the constraint on 'mse' cannot be used: max drop -100% is negative"),
        ({"mse": "much"}, r"the constraint on 'mse' cannot be used: max drop 'much' cannot be read; write 1%"),
        ({"mse": 0.1, find_metric("mse"): 0.2}, r"constraints name 'mse' twice; give each metric a name of its own"),
    ],
)
def test_what_cannot_be_used_is_named(given, message):
    with pytest.raises(InputError, match=message):
        read_constraints(given, TOP1)

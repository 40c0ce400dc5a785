import pytest

from tuner.errors import InputError
from tuner.fingerprint import hash_text
from tuner.metrics import METRICS, Metric, find_metric, psnr
from tuner.scores import TopK


def test_a_callable_becomes_a_metric_named_after_it():
    def hits(outputs, labels):
        return outputs[:, 0] > labels

    metric = find_metric(hits)
    assert (metric.name, metric.score, metric.binary, metric.larger_is_better) == ("hits", hits, False, True)
    assert find_metric(metric) is metric


@pytest.mark.parametrize("wrong", ["accuracy", "TOP1", "top0", "topk", 3])
def test_an_unknown_metric_lists_only_names_that_are_accepted(wrong):
    with pytest.raises(InputError, match=r"or a callable\(outputs, labels\)") as caught:
        find_metric(wrong)
    assert repr(wrong) in str(caught.value)
    names = str(caught.value).split("use one of " if isinstance(wrong, str) else "give one of ")[1].split(" (or top")[0]
    assert names.split(", ") == list(METRICS)
    for name in names.split(", "):
        assert find_metric(name).name == name


def test_the_fingerprint_follows_the_code_of_a_callable():
    def make(power):
        return find_metric(lambda outputs, labels: (outputs - labels) ** power)

    assert make(2).fingerprint == make(2).fingerprint
    assert make(2).fingerprint != make(4).fingerprint
    down = Metric(name="<lambda>", score=make(2).score, larger_is_better=False)
    assert down.fingerprint != make(2).fingerprint
    assert find_metric("top1").fingerprint != find_metric("mse").fingerprint


def test_the_fingerprint_follows_the_aggregate_and_what_is_compared_with():
    def make(aggregate=None, **more):
        return Metric(name="mine", score=score, aggregate=aggregate, **more).fingerprint

    def score(outputs, labels):
        return outputs

    mean = lambda statistics: statistics.mean()
    largest = lambda statistics: statistics.max()
    assert len({make(), make(mean), make(largest), make(against="baseline")}) == 4


def test_the_fingerprint_of_a_shipped_metric_does_not_follow_our_code_but_its_settings():
    assert find_metric("psnr").fingerprint == psnr(1.0).fingerprint != psnr(255).fingerprint
    assert find_metric("top3").fingerprint != find_metric("top4").fingerprint
    assert find_metric("top1").fingerprint == hash_text("top1", "True", "True", "built in")


def test_any_k_has_a_metric():
    assert (find_metric("top5").score, find_metric("top17").score) == (TopK(5), TopK(17))
    assert find_metric("top1") is METRICS["top1"]


def test_a_metric_compares_with_labels_unless_told_otherwise():
    without_labels = {name for name, metric in METRICS.items() if metric.against == "baseline"}
    assert without_labels == {"cosine", "agreement"}
    assert {name for name, metric in METRICS.items() if not metric.larger_is_better} == {
        "cross_entropy",
        "perplexity",
        "mse",
    }


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", " ", r"name=' ' of a metric is empty or no text; give it a short name"),
        ("score", 3, r"score=3 of metric 'mine' is not callable; give a function"),
        ("aggregate", "mean", r"aggregate='mean' of metric 'mine' is not callable"),
        ("against", "outputs", r"against='outputs' of metric 'mine' is neither of labels, baseline; give baseline to"),
    ],
)
def test_a_metric_checks_its_fields(field, value, message):
    fields = {"name": "mine", "score": lambda outputs, labels: outputs}
    with pytest.raises(InputError, match=message):
        Metric(**fields | {field: value})


@pytest.mark.parametrize("peak", [0, -1.0, float("inf"), float("nan"), "255", True])
def test_the_peak_of_psnr_is_a_positive_number(peak):
    with pytest.raises(InputError, match=f"peak={peak!r} of psnr is no positive number; give 1 for images"):
        psnr(peak)

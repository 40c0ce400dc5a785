"""Metrics: how well outputs fit, one score per example so that two programs can be compared example by example."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tuner.errors import InputError
from tuner.fingerprint import hash_callable, hash_text
from tuner.scores import PsnrOf, TopK, agreement, cosine, cross_entropy, mse, perplexity_of, top1

Score = Callable[[Any, Any], Any]
Aggregate = Callable[[Any], Any]

LABELS, BASELINE = "labels", "baseline"
_TOP = re.compile(r"top([1-9][0-9]*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One score per example; the mean over examples is the quality, or what `aggregate` makes of all of them.

    Args:
        name: what reports call it.
        score: `score(outputs, labels)`, traceable by `jax.jit`, gives an array of shape (examples,); with an
            `aggregate` any pytree of arrays whose first axis counts the examples (counts, sums, whatever it needs).
        binary: True when every score is 0 or 1, which allows an exact test.
        larger_is_better: False for losses and errors.
        aggregate: for metrics that are no mean over examples (F1, BLEU): `aggregate(statistics)` gives one number from
            what `score` gave, of all examples together. Its interval comes from a bootstrap over examples, which is
            fast when JAX can trace it.
        against: "labels", or "baseline": then `score(outputs, reference)` gets the outputs of the program as written in
            place of labels.

    Raises:
        InputError: a field cannot be used; names it.
    """

    name: str
    score: Score
    binary: bool = False
    larger_is_better: bool = True
    aggregate: Aggregate | None = None
    against: str = LABELS

    def __post_init__(self) -> None:
        given: Any = self  # whoever calls may give anything
        if not isinstance(given.name, str) or not given.name.strip():
            raise InputError(f"name={self.name!r} of a metric is empty or no text; give it a short name, such as 'f1'")
        for field in ("score", "aggregate"):
            value = getattr(given, field)
            if not callable(value) and not (field == "aggregate" and value is None):
                raise InputError(f"{field}={value!r} of metric {self.name!r} is not callable; give a function")
        if self.against not in (LABELS, BASELINE):
            raise InputError(
                f"against={self.against!r} of metric {self.name!r} is neither of {LABELS}, {BASELINE}; give {BASELINE} to "
                "compare with the outputs of the program as written"
            )

    @property
    def fingerprint(self) -> str:
        """Hex digest that changes with the name, the direction, or the code of the score."""
        if shipped(self.name) == self:
            return hash_text(self.name, str(self.binary), str(self.larger_is_better), "built in")
        more = [] if self.aggregate is None else [hash_callable(self.aggregate)]
        more += [] if self.against == LABELS else [self.against]
        code = hash_callable(self.score)
        return hash_text(self.name, str(self.binary), str(self.larger_is_better), code, *more)


def psnr(peak: float = 1.0) -> Metric:
    """Peak signal-to-noise ratio in decibels, of the squared errors of all examples together.

    Args:
        peak: the largest value a signal can have: 1 for images in [0, 1], 255 for bytes.
    """
    given: Any = peak  # whoever calls may give anything
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < float("inf"):
        raise InputError(f"peak={peak!r} of psnr is no positive number; give 1 for images in [0, 1], 255 for bytes")
    return Metric(name="psnr", score=mse, aggregate=PsnrOf(float(peak)))


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "top1": Metric(name="top1", score=top1, binary=True),
        "top5": Metric(name="top5", score=TopK(5), binary=True),
        "cross_entropy": Metric(name="cross_entropy", score=cross_entropy, larger_is_better=False),
        "perplexity": Metric(name="perplexity", score=cross_entropy, larger_is_better=False, aggregate=perplexity_of),
        "mse": Metric(name="mse", score=mse, larger_is_better=False),
        "psnr": psnr(),
        "cosine": Metric(name="cosine", score=cosine, against=BASELINE),
        "agreement": Metric(name="agreement", score=agreement, against=BASELINE),
    }
)
ACCEPTED = f"{', '.join(METRICS)} (or top with any other k)"


@functools.cache
def shipped(name: str) -> Metric | None:
    """The metric that ships under this name, None when there is none."""
    found = _TOP.fullmatch(name)
    if name in METRICS or found is None:
        return METRICS.get(name)
    return Metric(name=name, score=TopK(int(found[1])), binary=True)


def find_metric(metric: str | Metric | Score) -> Metric:
    """The metric of this name, or a callable wrapped as one (larger is better unless given as a `Metric`)."""
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        found = shipped(metric)
        if found is None:
            raise InputError(
                f"unknown metric {metric!r}; use one of {ACCEPTED}, or a callable(outputs, labels) -> per-example scores"
            )
        return found
    if callable(metric):
        return Metric(name=getattr(metric, "__name__", type(metric).__name__), score=metric)
    raise InputError(
        f"metric={metric!r} is a {type(metric).__name__}; give one of {ACCEPTED}, "
        "or a callable(outputs, labels) -> per-example scores"
    )

"""Outlook: what a running search expects of a proposal before it is measured, corrected by all that it measured."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tuner.effect import Prediction
from tuner.measurement import Failure, Measurement
from tuner.search import knapsack
from tuner.search.choices import ChoiceSpace, Proposal
from tuner.search.estimates import Estimates
from tuner.search.predict import Picks, Predictor
from tuner.search.proposals import predicted_members

Outcome = Measurement | Failure
# A relative error below this is the order of additions.
_ROUNDING = 1e-7
# Measurements from which times are learned where no layer was timed alone.
_FEWEST = 3
# Measured policies whose single changes are looked at.
_AROUND = 12


class Outlook:
    """Predicts latency, drop, memory and fidelity of proposals.

    Args:
        space: what may be proposed.
        estimates: from the screening.
        baseline: the program as written.
        larger_is_better: the metric's direction.
    """

    def __init__(
        self, space: ChoiceSpace, estimates: Estimates, baseline: Measurement, *, larger_is_better: bool
    ) -> None:
        self.space = space
        self._estimates = estimates
        self._quality = baseline.quality.value
        self._sign = -1.0 if larger_is_better else 1.0
        self._options = {name: tuple(map(str, space.choices[name])) for name in space.free}
        self._learned: dict[tuple[int, ...], Measurement] = {}
        self._predictors: dict[str, Predictor] | None = None

    def learn(self, proposal: Mapping[str, str], outcome: Outcome) -> None:
        """Takes a measurement into account; failures say nothing about numbers."""
        if isinstance(outcome, Measurement):
            self._learned[self._pick(proposal)] = outcome
            self._predictors = None

    def predict(self, proposal: Mapping[str, str]) -> Prediction:
        """What is expected of a proposal."""
        return self.predict_all(np.array([self._pick(proposal)], np.int64))[0]

    def predict_all(self, picks: Picks) -> list[Prediction]:
        """What is expected of each row of option numbers of the free layers."""
        if self._predictors is None:
            self._predictors = self._fit()
        screened = "fidelity" in self._predictors or len(self._learned) >= _FEWEST
        told = {name: predictor.predict(picks)[0].tolist() for name, predictor in self._predictors.items()}
        return [
            Prediction(
                latency=told["latency"][row] if "latency" in told else None,
                memory=told["memory"][row],
                drop=self._sign * (told["quality"][row] - self._quality) if screened else None,
                fidelity=_error(told["fidelity"][row]) if "fidelity" in told else None,
            )
            for row in range(len(picks))
        ]

    def front(self, most: int) -> list[tuple[Proposal, Prediction]]:
        """Members of the predicted front of latency and loss, from the exact one to the fastest, with what is expected."""
        if self._predictors is None:
            self._predictors = self._fit()
        nothing = [np.zeros(len(choices)) for choices in self._options.values()]
        times = self._predictors["latency"].costs() if "latency" in self._predictors else nothing
        losses = self._predictors["fidelity"].costs() if "fidelity" in self._predictors else nothing
        picks = knapsack.solve(losses, times, most=most)
        return [(self._proposal(row), told) for row, told in zip(picks.tolist(), self.predict_all(picks), strict=True)]

    def members(self) -> list[tuple[Proposal, Prediction]]:
        """Members of the predicted front of latency, loss and memory, and single changes of what was measured."""
        if self._predictors is None:
            self._predictors = self._fit()
        kept = [self._predictors[name] for name in ("latency", "fidelity", "memory") if name in self._predictors]
        rows = dict.fromkeys(map(tuple, predicted_members(kept, np.ones(len(kept))).tolist()))
        fastest = sorted(self._learned, key=lambda pick: self._learned[pick].latency.ratio)[:_AROUND]
        for known in fastest:
            for place, choices in enumerate(self._options.values()):
                rows.update(
                    dict.fromkeys((*known[:place], option, *known[place + 1 :]) for option in range(len(choices)))
                )
        picks = np.array(list(rows), np.int64).reshape(len(rows), len(self._options))
        return [(self._proposal(row), told) for row, told in zip(picks.tolist(), self.predict_all(picks), strict=True)]

    def _proposal(self, row: Sequence[int]) -> Proposal:
        chosen = zip(self._options.items(), row, strict=True)
        return self.space.expand({name: choices[pick] for (name, choices), pick in chosen})

    def _pick(self, proposal: Mapping[str, str]) -> tuple[int, ...]:
        return tuple(choices.index(proposal[name]) for name, choices in self._options.items())

    def _fit(self) -> dict[str, Predictor]:
        estimates = {
            "latency": self._estimates.latency,
            "memory": self._estimates.memory,
            "quality": self._estimates.quality,
            "fidelity": self._estimates.fidelity,
        }
        if estimates["latency"] is None and len(self._learned) < _FEWEST:
            del estimates["latency"]
        picks = np.array(list(self._learned), np.int64).reshape(len(self._learned), len(self._options))
        numbers = [_numbers(one) for one in self._learned.values()]
        predictors = {}
        for name, estimate in estimates.items():
            if estimate is not None or name == "latency":
                predictors[name] = Predictor(self._options, estimate)
                rows = [row for row, one in enumerate(numbers) if math.isfinite(one[name][0])]
                if name == "fidelity":  # the logarithm of what should change nothing teaches nothing
                    changed = predictors[name].predict(picks)[0] > math.log(_ROUNDING)
                    rows = [row for row in rows if changed[row]]
                values, noise = (np.array([numbers[row][name][part] for row in rows]) for part in (0, 1))
                predictors[name].fit(picks[rows], values, noise)
        return predictors


def _error(logarithm: float) -> float:
    """The relative error; 0 where it is rounding."""
    error = math.exp(min(logarithm, 50.0))
    return error if error > _ROUNDING else 0.0


def _numbers(measured: Measurement) -> dict[str, tuple[float, float]]:
    """Value and standard deviation of what is predicted; the fidelity of what changes nothing teaches nothing."""
    latency, quality = measured.latency, measured.quality
    return {
        "latency": (latency.ratio, (latency.high - latency.low) / 3.92),
        "memory": (float(measured.memory.total_bytes), 0.0),
        "quality": (quality.value, (quality.drop_high - quality.drop_low) / 3.92),
        "fidelity": (math.log(quality.fidelity) if quality.fidelity > _ROUNDING else math.nan, 0.05),
    }

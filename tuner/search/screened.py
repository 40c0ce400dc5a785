"""ScreenedSampler: proposes what a model predicts to be best, and corrects the model with every measurement.

It is an Optuna sampler like any other. Give it, per objective, what each choice of each parameter is expected to cost
alone; it learns the rest. Of all predicted members of the front, and of all single changes around the measured front, it
proposes the one that is expected to add most hypervolume, times the chance that it works and keeps the constraints.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import InputError
from tuner.search.hypervolume import hypervolume, undominated
from tuner.search.lessons import Lessons, read_lessons, signs_of
from tuner.search.predict import Estimate, Floats, Predictor
from tuner.search.proposals import chances, expected_gains, make_pool

# What a proposal must be expected to add, as a share of the hypervolume, to be worth more than another sampler's.
_WORTH = 1e-5
_MOST_OBJECTIVES = 3


class ScreenedSampler(BaseSampler):
    """Proposes by a model of what each choice costs; for studies of categorical parameters with up to three objectives.

    Args:
        estimates: per objective, in the order and direction of the study, what is known of it beforehand; None where
            nothing is.
        seed: of everything random; equal seeds and equal trials give equal proposals.
        fallback: proposes where the model has nothing better; by default Optuna's multivariate TPE.
        reference: per objective the value from which on it is worthless; by default a little beyond the worst measured.
        options: parameter -> choices, for a first proposal before there is any trial.

    Raises:
        InputError: there are more than three estimates.
    """

    def __init__(
        self,
        estimates: Sequence[Estimate | None] | None = None,
        *,
        seed: int | None = None,
        fallback: BaseSampler | None = None,
        reference: Sequence[float] | None = None,
        options: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if estimates is not None and len(estimates) > _MOST_OBJECTIVES:
            raise InputError(f"{len(estimates)} estimates for the sampler; it works with up to three objectives")
        self._estimates = estimates
        self._seed = seed if seed is not None else int(np.random.default_rng().integers(2**32))
        self._fallback = fallback if fallback is not None else _tpe(self._seed)
        self._reference = reference
        self._options = options
        self._space = IntersectionSearchSpace()
        # Trial -> what was proposed for it already, by whoever asks twice.
        self._given: dict[int, set[tuple[int, ...]]] = {}

    def reseed_rng(self) -> None:
        """Draws differently from here on, for a copy of the sampler in another process."""
        self._seed = int(np.random.default_rng().integers(2**32))
        self._fallback.reseed_rng()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that all trials have, or those that were named beforehand."""
        found = self._space.calculate(study)
        if not found and self._options is not None:
            return {name: CategoricalDistribution(tuple(choices)) for name, choices in self._options.items()}
        return {name: distribution for name, distribution in found.items() if not distribution.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The proposal that is expected to add most; other parameters than categorical ones are the fallback's."""
        options = {n: d.choices for n, d in search_space.items() if isinstance(d, CategoricalDistribution)}
        if not options or len(study.directions) > _MOST_OBJECTIVES:
            return self._fallback.sample_relative(study, trial, search_space)
        proposed, taken, worthwhile = self._propose(study, trial, options)
        if proposed is None or not worthwhile:
            asked = self._fallback.sample_relative(study, trial, search_space)
            picks = _picks(asked, options)
            if proposed is None or (picks is not None and picks not in taken):
                return asked
        self._given.setdefault(trial.number, set()).add(proposed)
        others = {name: distribution for name, distribution in search_space.items() if name not in options}
        decided = self._fallback.sample_relative(study, trial, others) if others else {}
        return {**decided, **{name: options[name][pick] for name, pick in zip(options, proposed, strict=True)}}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """What the fallback says."""
        return self._fallback.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Passed on."""
        self._fallback.before_trial(study, trial)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Passed on."""
        self._given.pop(trial.number, None)
        self._fallback.after_trial(study, trial, state, values)

    def _propose(
        self, study: optuna.Study, trial: FrozenTrial, options: Mapping[str, Sequence[Any]]
    ) -> tuple[tuple[int, ...] | None, AbstractSet[tuple[int, ...]], bool]:
        """(option numbers or None, what was tried, whether the proposal is expected to add anything)."""
        known = read_lessons(study, options)
        taken = known.seen | self._given.get(trial.number, set())
        first = (0,) * len(options)
        if not len(known.values):
            return (None if first in taken else first), taken, True
        signs = signs_of(study)
        predictors = self._fitted(options, known, signs)
        front = undominated(known.values[known.feasible]) if known.feasible.any() else known.values[:0]
        random = np.random.default_rng((self._seed, trial.number, len(taken)))
        pool = make_pool(predictors, signs, known, front, taken, random)
        if not len(pool):
            return None, taken, False
        reference = self._beyond(known, signs)
        gains = expected_gains(predictors, signs, pool, front, reference, random) * chances(known, options, pool)
        best = int(np.argmax(gains))
        worthwhile = bool(gains[best] > _WORTH * hypervolume(front, reference))
        return tuple(int(pick) for pick in pool[best]), taken, worthwhile

    def _fitted(self, options: Mapping[str, Sequence[Any]], known: Lessons, signs: Floats) -> list[Predictor]:
        """One model per objective, in the objective's own direction."""
        predictors = []
        for number, sign in enumerate(signs):
            estimate = self._estimates[number] if self._estimates and number < len(self._estimates) else None
            predictor = Predictor(options, estimate)
            predictor.fit(known.picks, sign * known.values[:, number], known.noise[:, number])
            predictors.append(predictor)
        return predictors

    def _beyond(self, known: Lessons, signs: Floats) -> Floats:
        """The reference point; where it leaves nothing that was measured, a little beyond the worst."""
        values = known.values[known.feasible] if known.feasible.any() else known.values
        worst, span = values.max(axis=0), np.ptp(values, axis=0)
        beyond = worst + 0.1 * np.where(span > 0, span, np.abs(worst) + 1e-12)
        if self._reference is None:
            return np.asarray(beyond)
        given = signs * np.asarray(self._reference, float)
        return np.asarray(np.where(np.isfinite(given), given, beyond))


def _picks(asked: Mapping[str, Any], options: Mapping[str, Sequence[Any]]) -> tuple[int, ...] | None:
    """Option numbers of what another sampler asks for, None where it leaves something open."""
    if not options.keys() <= asked.keys():
        return None
    return tuple(list(choices).index(asked[name]) for name, choices in options.items())


def _tpe(seed: int) -> BaseSampler:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(multivariate=True, seed=seed % 2**32)

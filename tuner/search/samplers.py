"""The samplers by name, and the one wrapper that ties groups, plans first candidates and avoids duplicates."""

import importlib.util
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import InputError
from tuner.search.choices import ChoiceSpace, Proposal
from tuner.search.predict import Estimate
from tuner.search.screened import ScreenedSampler

SCREENED, NSGA2, TPE, GP, RANDOM, EXHAUSTIVE = "screened", "nsga2", "tpe", "gp", "random", "exhaustive"
SAMPLERS = (SCREENED, NSGA2, TPE, GP, RANDOM, EXHAUSTIVE)

# Small, so that a few dozen trials make several generations; the first one holds the planned candidates.
POPULATION = 10
# How often a sampler may propose what is measured already before we step aside from its proposal ourselves.
ATTEMPTS = 5


def check_sampler(name: str) -> None:
    """Raise unless a sampler of that name can be made here.

    Raises:
        InputError: the name is unknown, or an extra is not installed.
    """
    if name not in SAMPLERS:
        raise InputError(f"unknown sampler {name!r}; use one of {', '.join(SAMPLERS)}")
    missing = [module for module in ("torch", "scipy") if name == GP and importlib.util.find_spec(module) is None]
    if missing:
        raise InputError(
            f"the sampler 'gp' needs {' and '.join(missing)}, not installed here; "
            "run: pip install 'jax-precision-tuner[gp]'"
        )


def make_sampler(
    name: str,
    seed: int,
    estimates: Sequence[Estimate | None] | None = None,
    reference: Sequence[float] | None = None,
) -> BaseSampler:
    """The sampler behind a name of ours; `exhaustive` has none and gets the random one, which is never asked.

    Args:
        name: of the sampler.
        seed: of the sampler.
        estimates: what `screened` knows of each objective beforehand.
        reference: from which values on it takes an objective for worthless.
    """
    if name == SCREENED:
        return ScreenedSampler(estimates, seed=seed, reference=reference)
    with warnings.catch_warnings():
        # Multivariate TPE and GP are marked experimental; we test what we use of them.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name == NSGA2:
            return optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=seed)
        if name == TPE:
            return optuna.samplers.TPESampler(multivariate=True, seed=seed)
        if name == GP:
            return optuna.samplers.GPSampler(seed=seed)
        return optuna.samplers.RandomSampler(seed=seed)


class TiedSampler(BaseSampler):
    """Any Optuna sampler, asked about group leaders only, never twice for one proposal, after what is planned.

    Args:
        inner: decides on the free layers.
        space: what may be proposed.
        seed: of the random steps away from duplicates.
    """

    def __init__(self, inner: BaseSampler, space: ChoiceSpace, seed: int) -> None:
        self._inner = inner
        self._space = space
        self._random = np.random.default_rng(seed)
        self._planned: deque[Proposal] = deque()
        self._seen: set[tuple[str, ...]] = set()

    def plan(self, proposals: Iterable[Proposal]) -> None:
        """Propose these first, in order, unless they are seen by then."""
        self._planned.extend(proposals)

    def mark_seen(self, proposal: Mapping[str, str]) -> None:
        """Never propose this again while anything else is left."""
        self._seen.add(self._space.key(proposal))

    def is_seen(self, proposal: Mapping[str, str]) -> bool:
        """True when this was measured, or is in hand elsewhere."""
        return self._space.key(proposal) in self._seen

    @property
    def has_plan(self) -> bool:
        """True while a planned proposal is still to come."""
        while self._planned and self.is_seen(self._planned[0]):
            self._planned.popleft()
        return bool(self._planned)

    @property
    def seen(self) -> int:
        """How many proposals of the space were measured, or are in hand elsewhere."""
        return len(self._seen)

    @property
    def exhausted(self) -> bool:
        """True when every proposal of the space was seen."""
        return self.seen >= self._space.size

    def reseed_rng(self) -> None:
        """Draw differently from here on, for a copy of the sampler in another process."""
        self._inner.reseed_rng()
        self._random = np.random.default_rng()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Every layer with a choice."""
        return {name: kept for name, kept in self._space.distributions.items() if not kept.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next planned proposal, else the inner sampler's."""
        if self.has_plan and isinstance(self._inner, ScreenedSampler):  # which thinks before it answers
            return {name: self._planned[0][name] for name in search_space}
        # The inner sampler is asked even for a planned one: NSGA-II counts the trial to a generation in doing so.
        proposal = self._space.expand(self._ask_inner(study, trial))
        proposal = self._planned[0] if self.has_plan else self._unseen(study, trial, proposal)
        return {name: proposal[name] for name in search_space}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """What the inner sampler says, for a parameter that is not a layer of ours."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Passed on."""
        self._inner.before_trial(study, trial)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Passed on."""
        self._inner.after_trial(study, trial, state, values)

    def _ask_inner(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, str]:
        """The inner sampler's decision for every free layer."""
        # Our trials all have the same parameters; there is no need to let the sampler find that out every time.
        asked: dict[str, BaseDistribution] = {name: self._space.distributions[name] for name in self._space.free}
        decided = self._inner.sample_relative(study, trial, asked) if asked else {}
        for name in self._space.free:
            if name not in decided:
                distribution = self._space.distributions[name]
                decided[name] = self._inner.sample_independent(study, trial, name, distribution)
        return decided

    def _unseen(self, study: optuna.Study, trial: FrozenTrial, proposal: Proposal) -> Proposal:
        """The proposal, or another draw, or one near it that was not seen; a seen one when nothing else is left."""
        for _ in range(ATTEMPTS):
            if not self.is_seen(proposal) or self.exhausted:
                return proposal
            proposal = self._space.expand(self._ask_inner(study, trial))
        return self._step_aside(proposal)

    def _step_aside(self, proposal: Proposal) -> Proposal:
        """A short random walk from the proposal, one free layer a step, and at last the first unseen of all."""
        walker = dict(proposal)
        for _ in range(20 * len(self._space.free)):
            if not self.is_seen(walker):
                return walker
            name = self._space.free[self._random.integers(len(self._space.free))]
            choices = self._space.distributions[name].choices
            decided = {leader: walker[leader] for leader in self._space.free}
            decided[name] = str(choices[self._random.integers(len(choices))])
            walker = self._space.expand(decided)
        return next((other for other in self._space.all() if not self.is_seen(other)), proposal)

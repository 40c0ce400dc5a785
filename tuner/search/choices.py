"""ChoiceSpace: the proposals a search may make, with groups tied, in the texts that Optuna stores."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from optuna.distributions import CategoricalDistribution

from search_spaces import Precision, Resolution

# Layer name -> precision as text, for every layer.
Proposal = dict[str, str]


@dataclass(frozen=True)
class ChoiceSpace:
    """What each layer may take and which layers move together.

    Attributes:
        choices: layer name -> precisions, in program order, `original` first.
        groups: layers that share one choice.
    """

    choices: Mapping[str, tuple[Precision, ...]]
    groups: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def from_resolution(cls, resolution: Resolution) -> "ChoiceSpace":
        """The space that a search space gives on one program."""
        return cls(choices=dict(resolution.choices), groups=tuple(tuple(g) for g in resolution.groups.values()))

    @cached_property
    def distributions(self) -> dict[str, CategoricalDistribution]:
        """One categorical Optuna parameter per layer."""
        return {name: CategoricalDistribution(tuple(map(str, taken))) for name, taken in self.choices.items()}

    @cached_property
    def leader(self) -> dict[str, str]:
        """Layer name -> the layer whose proposal it takes: the first of its group, or itself."""
        leaders = {member: group[0] for group in self.groups for member in group}
        return {name: leaders.get(name, name) for name in self.choices}

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The layers that a sampler decides on: leaders with more than one choice."""
        return tuple(name for name, taken in self.choices.items() if self.leader[name] == name and len(taken) > 1)

    @cached_property
    def size(self) -> int:
        """How many different proposals there are."""
        return math.prod(len(self.choices[name]) for name in self.free)

    def expand(self, decided: Mapping[str, str]) -> Proposal:
        """A proposal for every layer from one for the free layers; what is left open stays `original`."""
        return {
            name: decided.get(self.leader[name], str(taken[0])) if len(taken) > 1 else str(taken[0])
            for name, taken in self.choices.items()
        }

    def key(self, proposal: Mapping[str, str]) -> tuple[str, ...]:
        """The proposal as a hashable value."""
        return tuple(proposal[name] for name in self.choices)

    def precisions(self, proposal: Mapping[str, str]) -> dict[str, Precision]:
        """Layer name -> precision for one proposal."""
        return {name: Precision.parse(proposal[name]) for name in self.choices}

    def contains(self, proposal: Mapping[str, str]) -> bool:
        """True when every layer may take what the proposal gives it."""
        return proposal.keys() == self.choices.keys() and all(
            proposal[name] in self.distributions[name].choices for name in self.choices
        )

    def all(self) -> Iterator[Proposal]:
        """Every proposal, the last free layer varying fastest."""
        for taken in itertools.product(*(self.choices[name] for name in self.free)):
            yield self.expand({name: str(precision) for name, precision in zip(self.free, taken, strict=True)})

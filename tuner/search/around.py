"""Around a point: the policies that differ from a measured one in a single layer, which they leave as written."""

from collections.abc import Iterable

from search_spaces import ORIGINAL
from tuner.errors import InputError
from tuner.search.choices import ChoiceSpace
from tuner.search.first_candidates import FirstCandidate, label_of
from tuner.search.resume import proposal_of
from tuner.store import CandidateRecord


def neighbors(trial: int, candidates: Iterable[CandidateRecord], space: ChoiceSpace) -> list[FirstCandidate]:
    """One candidate per layer of a trial's policy that is not original: that layer back to original, the rest as it is.

    Layers of one group go back together.

    Raises:
        InputError: the study has no such trial with a policy, or this space does not contain it.
    """
    record = next((one for one in candidates if one.trial == trial and one.policy is not None), None)
    if record is None or record.policy is None:
        raise InputError(
            f"the study has no trial {trial} with a policy to look around; `tuner trials` lists those it has"
        )
    proposal = proposal_of(record.policy)
    if not space.contains(proposal):
        raise InputError(
            f"trial {trial} has precisions that this search space does not allow; leave --space out to go on with its own"
        )
    original = str(ORIGINAL)
    changed = [{**proposal, name: original} for name in space.free if proposal[name] != original]
    found = [space.expand({name: one[name] for name in space.free}) for one in changed]
    return [FirstCandidate(label_of(space, one), one) for one in found]

"""Effects: what screening found, kept per program, parameters, data and device, for every study of them."""

import hashlib
import json
import math
from collections.abc import Mapping

from sqlalchemy import select

from tuner.effect import Effect
from tuner.store.convert import now
from tuner.store.engine import Sessions
from tuner.store.models import EffectRow

Found = Mapping[str, Mapping[str, Effect]]


class Effects(Sessions):
    """The part of the store that keeps what single layers do."""

    def save_effects(self, fingerprints: Mapping[str, str], effects: Found) -> None:
        """Keeps effects that are not kept yet.

        Args:
            fingerprints: of everything that effects depend on.
            effects: layer -> precision -> effect.
        """
        digest = _digest(fingerprints)
        with self.writing() as session:
            query = select(EffectRow.layer, EffectRow.precision).where(EffectRow.screened == digest)
            known = {tuple(pair) for pair in session.execute(query)}
            session.add_all(
                EffectRow(
                    screened=digest,
                    layer=layer,
                    precision=precision,
                    error=effect.error if math.isfinite(effect.error) else None,
                    divergence=effect.kl,
                    examples=effect.examples,
                    taken=now(),
                )
                for layer, found in effects.items()
                for precision, effect in found.items()
                if (layer, precision) not in known
            )

    def find_effects(self, fingerprints: Mapping[str, str]) -> dict[str, dict[str, Effect]]:
        """The effects that were found with exactly these fingerprints."""
        found: dict[str, dict[str, Effect]] = {}
        with self.reading() as session:
            for row in session.scalars(select(EffectRow).where(EffectRow.screened == _digest(fingerprints))):
                error = math.inf if row.error is None else row.error
                effect = Effect(error=error, kl=row.divergence, examples=row.examples)
                found.setdefault(row.layer, {})[row.precision] = effect
        return found


def _digest(fingerprints: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(fingerprints), sort_keys=True).encode()).hexdigest()

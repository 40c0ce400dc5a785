"""What comes out of the database: frozen values that know nothing of rows. Loads no SQLAlchemy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType

from tuner.effect import Prediction
from tuner.kernel_choice import KernelChoice
from tuner.measurement import Confirmation, Failure, Measurement
from tuner.policy import Policy, ProgramSignature
from tuner.store.owner import Owner

Outcome = Measurement | Failure


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyCounts:
    """How far a study has come, in candidates."""

    measured: int = 0
    pruned: int = 0  # ran and certainly lose
    failed: int = 0
    running: int = 0  # claimed, without an outcome
    on_front: int = 0
    # Of all these, hand-made reference points: they are candidates, but no trials.
    references: int = 0

    @property
    def total(self) -> int:
        """All candidates."""
        return self.measured + self.pruned + self.failed + self.running

    @property
    def trials(self) -> int:
        """Candidates that a search proposed."""
        return self.total - self.references


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyRecord:
    """One task x one search space x one device. `id`, `baseline` and `counts` are the store's to fill in."""

    id: int = 0
    name: str
    # "module:factory" or a path with a factory; None for a task that only lived in a process.
    task_reference: str | None = None
    objectives: tuple[str, ...]
    # As `Drop` prints it.
    max_drop: str
    sampler: str
    seed: int
    # Name of a preset, or TOML text.
    space: str
    # "program", "parameters", "data", "metric", "batch_size": hex digests or values. A resume must find the same.
    fingerprints: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # As `tuner.measure.device_fingerprint` gives it. A resume must find the same.
    device: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    program: ProgramSignature
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    batch_size: int
    metric: str
    # Further metrics and the drop each may have, as `Drop` prints it; None where it is only shown.
    constraints: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    tool_version: str
    # Layer kind -> precision -> why this device cannot run it. A study keeps what it began with.
    refused: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    # The kernels it runs with; None before they are chosen, and of a study that began before there was such a thing.
    kernels: KernelChoice | None = None
    # The measurement of the candidate labelled "baseline".
    baseline: Measurement | None = None
    counts: StudyCounts = StudyCounts()


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateRecord:
    """One policy under test, and what came of it."""

    id: int
    study_id: int
    trial: int
    label: str
    # The policy's hash, or "cast:bf16" for a reference point without a policy.
    key: str
    policy: Policy | None
    # None while it is being measured.
    outcome: Outcome | None = None
    confirmation: Confirmation | Failure | None = None
    on_front: bool = False
    owner: Owner
    started: datetime
    finished: datetime | None = None
    # What was expected of it before it was measured, where anything was.
    predicted: Prediction | None = None

"""The tables, as SQLAlchemy rows. Times are ISO 8601 texts in UTC; a change here needs a migration."""

from typing import Any

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

SEARCH = "search"
CONFIRMATION = "confirmation"


class Base(DeclarativeBase):
    """Owner of the metadata of our tables, and of ours only: Optuna's stand next to them."""

    type_annotation_map = {  # noqa: RUF012  # SQLAlchemy's own name
        dict[str, Any]: JSON(),
        list[Any]: JSON(),
    }


class SchemaRow(Base):
    """The ledger: one row per migration that this database has seen."""

    __tablename__ = "tuner_schema"

    name: Mapped[str] = mapped_column(String(100), primary_key=True, comment="Name of the migration.")
    applied: Mapped[str] = mapped_column(String(32), comment="When it was applied.")
    tool_version: Mapped[str] = mapped_column(String(50), comment="Version of jax-precision-tuner that applied it.")


class StudyRow(Base):
    """One task x one search space x one device."""

    __tablename__ = "tuner_study"

    id: Mapped[int] = mapped_column(primary_key=True, comment="Number of the study.")
    name: Mapped[str] = mapped_column(String(500), unique=True, comment="What the user calls it.")
    task_reference: Mapped[str | None] = mapped_column(comment="module:factory or path:factory; null for a live task.")
    objectives: Mapped[list[Any]] = mapped_column(comment="Names of the objectives, in order.")
    max_drop: Mapped[str] = mapped_column(String(50), comment="Allowed loss of quality: 1% or 1%rel.")
    sampler: Mapped[str] = mapped_column(String(50), comment="Name of the sampler.")
    seed: Mapped[int] = mapped_column(BigInteger, comment="Seed of the sampler.")
    space: Mapped[str] = mapped_column(comment="Search space: name of a preset, or TOML text.")
    fingerprints: Mapped[dict[str, Any]] = mapped_column(comment="Digests of what a resume must find unchanged.")
    device: Mapped[dict[str, Any]] = mapped_column(comment="Fingerprint of the device it measures on.")
    program: Mapped[dict[str, Any]] = mapped_column(comment="Signature: layers (name, kind, shape) and inputs.")
    created: Mapped[str] = mapped_column(String(32), comment="When it was created.")
    batch_size: Mapped[int] = mapped_column(comment="Examples per call.")
    metric: Mapped[str] = mapped_column(String(200), comment="Name of the metric that quality is in.")
    tool_version: Mapped[str] = mapped_column(String(50), comment="Version of jax-precision-tuner that created it.")
    refused: Mapped[dict[str, Any] | None] = mapped_column(
        JSON(none_as_null=True), comment="Kind -> precision -> why this device cannot run it; null when not probed."
    )
    constraints: Mapped[dict[str, Any] | None] = mapped_column(
        JSON(none_as_null=True), comment="Further metrics -> allowed drop, null for any; null when there are none."
    )
    kernels: Mapped[dict[str, Any] | None] = mapped_column(
        JSON(none_as_null=True), comment="The kernels it runs with, and how they did; null before they were chosen."
    )


class LayerRow(Base):
    """One layer of a study's program."""

    __tablename__ = "tuner_layer"
    __table_args__ = (UniqueConstraint("study_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True, comment="Number of the layer.")
    study_id: Mapped[int] = mapped_column(
        ForeignKey("tuner_study.id", ondelete="CASCADE"), index=True, comment="Its study."
    )
    position: Mapped[int] = mapped_column(comment="Place in program order, from 0.")
    name: Mapped[str] = mapped_column(comment="Name by its parameter's path.")
    kind: Mapped[str] = mapped_column(String(20), comment="matmul, conv, dot, embedding or input.")
    shape: Mapped[list[Any]] = mapped_column(comment="Shape of the weight (dot: left operand, input: leaf).")
    dtype: Mapped[str] = mapped_column(String(30), comment="Dtype the user's program holds it in.")
    params: Mapped[int] = mapped_column(BigInteger, comment="Elements of its parameters.")
    flops: Mapped[int] = mapped_column(BigInteger, comment="Multiply-adds counted as two, per call.")
    executions: Mapped[int] = mapped_column(BigInteger, comment="How often its operations run per call.")
    source: Mapped[str | None] = mapped_column(comment="file:line of the user's code.")
    searchable: Mapped[bool] = mapped_column(comment="Whether a search may change it.")
    reason: Mapped[str | None] = mapped_column(comment="Why not, else null.")


class CandidateRow(Base):
    """One policy under test; inserting the row claims it."""

    __tablename__ = "tuner_candidate"
    # Numbers are never given twice: a process that was wrongly believed dead must not meet another one's candidate.
    __table_args__ = (UniqueConstraint("study_id", "key"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(primary_key=True, comment="Number of the candidate.")
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_study.id", ondelete="CASCADE"), comment="Its study.")
    key: Mapped[str] = mapped_column(String(200), comment="Hash of the policy, or cast:FORMAT for a reference point.")
    label: Mapped[str] = mapped_column(String(500), comment="What made it: baseline, a uniform precision, a trial.")
    trial: Mapped[int] = mapped_column(comment="Number of the trial that claimed it.")
    policy: Mapped[dict[str, Any] | None] = mapped_column(
        JSON(none_as_null=True), comment="The policy as in a policy file; null for a reference point."
    )
    owner_host: Mapped[str] = mapped_column(String(255), comment="Host of the process that measures it.")
    owner_pid: Mapped[int] = mapped_column(BigInteger, comment="Number of that process.")
    owner_started: Mapped[str] = mapped_column(String(100), comment="When that process started.")
    started: Mapped[str] = mapped_column(String(32), comment="When it was claimed.")
    finished: Mapped[str | None] = mapped_column(String(32), comment="When its outcome was recorded, else null.")
    predicted: Mapped[dict[str, Any] | None] = mapped_column(
        JSON(none_as_null=True), comment="What was predicted before it was measured; null where nothing was."
    )

    outcomes: Mapped[list["OutcomeRow"]] = relationship(lazy="selectin", passive_deletes=True)
    membership: Mapped["FrontRow | None"] = relationship(lazy="selectin", passive_deletes=True)


class OutcomeRow(Base):
    """What came of one candidate: a measurement (failure_cause is null) or a failure (the numbers are null).

    A number of a measurement is null where it was NaN.
    """

    __tablename__ = "tuner_measurement"
    __table_args__ = (
        UniqueConstraint("candidate_id", "kind"),
        CheckConstraint(f"kind IN ('{SEARCH}', '{CONFIRMATION}')", name="tuner_measurement_kind"),
        CheckConstraint("(failure_cause IS NULL) = (latency_pairs IS NOT NULL)", name="tuner_measurement_or_failure"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, comment="Number of the measurement.")
    candidate_id: Mapped[int] = mapped_column(
        ForeignKey("tuner_candidate.id", ondelete="CASCADE"), comment="Its candidate."
    )
    kind: Mapped[str] = mapped_column(String(20), comment="search (search split) or confirmation (holdout split).")
    taken: Mapped[str] = mapped_column(String(32), comment="When it was recorded.")
    latency_ratio: Mapped[float | None] = mapped_column(comment="Median of paired candidate / baseline times.")
    latency_low: Mapped[float | None] = mapped_column(comment="Lower end of its 95 % interval.")
    latency_high: Mapped[float | None] = mapped_column(comment="Upper end of its 95 % interval.")
    latency_ms: Mapped[float | None] = mapped_column(comment="Ratio x the study's reference baseline.")
    baseline_spread: Mapped[float | None] = mapped_column(comment="(p90 - p10) / median of the baseline's times.")
    latency_pairs: Mapped[int | None] = mapped_column(comment="Timed pairs.")
    quality: Mapped[float | None] = mapped_column(comment="The metric.")
    quality_drop: Mapped[float | None] = mapped_column(comment="How much worse than the baseline.")
    drop_low: Mapped[float | None] = mapped_column(comment="Lower end of its 95 % interval.")
    drop_high: Mapped[float | None] = mapped_column(comment="Upper end of its 95 % interval.")
    examples: Mapped[int | None] = mapped_column(comment="Examples scored.")
    method: Mapped[str | None] = mapped_column(String(50), comment="How the drop's interval was obtained.")
    fidelity: Mapped[float | None] = mapped_column(comment="Relative error to the baseline's outputs.")
    memory_bytes: Mapped[int | None] = mapped_column(
        BigInteger, comment="Of the executable without its inputs; null for a confirmation."
    )
    weight_bytes: Mapped[int | None] = mapped_column(
        BigInteger, comment="Of the packed weights; null for a confirmation."
    )
    costs: Mapped[dict[str, Any]] = mapped_column(comment="Seconds by stage, and the compilation cache.")
    effective: Mapped[dict[str, Any]] = mapped_column(comment="Layer -> what the compiled program ran.")
    failure_cause: Mapped[str | None] = mapped_column(String(50), comment="Why there is no measurement, else null.")
    failure_message: Mapped[str | None] = mapped_column(comment="The failure in words.")
    failure_layer: Mapped[str | None] = mapped_column(comment="The layer that caused it, where known.")
    latency_p95_ms: Mapped[float | None] = mapped_column(comment="95th percentile of single calls.")
    latency_p99_ms: Mapped[float | None] = mapped_column(comment="99th percentile of single calls.")
    throughput: Mapped[float | None] = mapped_column(comment="Examples per second.")
    latency_calls: Mapped[int | None] = mapped_column(comment="Timed calls of the candidate.")
    latency_baseline: Mapped[str | None] = mapped_column(
        String(20), comment="resident: call by call beside it; alternate: blocks of calls, weights moved in between."
    )
    contended: Mapped[str | None] = mapped_column(comment="What disturbed the timing; empty where nothing did.")
    metrics: Mapped[dict[str, Any] | None] = mapped_column(
        JSON(none_as_null=True), comment="Further metrics -> value, drop, interval, allowed drop; null without any."
    )
    shapes: Mapped[dict[str, Any] | None] = mapped_column(
        JSON(none_as_null=True), comment="Kinds of call -> latency and weight, latency_* being their sum; null for one."
    )


class FrontRow(Base):
    """Membership of the front: the candidates of a study that none dominates."""

    __tablename__ = "tuner_front"

    candidate_id: Mapped[int] = mapped_column(
        ForeignKey("tuner_candidate.id", ondelete="CASCADE"), primary_key=True, comment="The candidate."
    )
    study_id: Mapped[int] = mapped_column(
        ForeignKey("tuner_study.id", ondelete="CASCADE"), index=True, comment="Its study."
    )


class ProbeRow(Base):
    """One fact about a device that is expensive to find out, such as which kernel is fastest for a shape."""

    __tablename__ = "tuner_probe"
    __table_args__ = (UniqueConstraint("device_hash", "key"),)

    id: Mapped[int] = mapped_column(primary_key=True, comment="Number of the fact.")
    device_hash: Mapped[str] = mapped_column(String(64), comment="SHA-256 of the device's fingerprint.")
    device: Mapped[dict[str, Any]] = mapped_column(comment="The device's fingerprint.")
    key: Mapped[str] = mapped_column(String(500), comment="What was asked.")
    value: Mapped[Any] = mapped_column(JSON(), comment="The answer.")
    taken: Mapped[str] = mapped_column(String(32), comment="When it was found out.")


class EffectRow(Base):
    """What one precision of one layer alone does to a program's outputs on its calibration examples."""

    __tablename__ = "tuner_effect"
    __table_args__ = (UniqueConstraint("screened", "layer", "precision"),)

    id: Mapped[int] = mapped_column(primary_key=True, comment="Number of the effect.")
    screened: Mapped[str] = mapped_column(
        String(64), comment="SHA-256 of the fingerprints of program, data and device."
    )
    layer: Mapped[str] = mapped_column(comment="Name of the layer.")
    precision: Mapped[str] = mapped_column(String(100), comment="The precision, as the grammar prints it.")
    error: Mapped[float | None] = mapped_column(comment="Relative error of the outputs; null where not finite.")
    divergence: Mapped[float | None] = mapped_column(comment="From the baseline's softmax; null where there is none.")
    examples: Mapped[int] = mapped_column(comment="Calibration examples it was found on.")
    taken: Mapped[str] = mapped_column(String(32), comment="When it was found.")

"""Diagnosis: what one device was found to run, how fast, and what measuring on it has to do without. Plain values."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from search_spaces import Precision

# What is probed, and the kinds of layers that it stands for.
MATMUL, CONVOLUTION, GATHER = "matmul", "convolution", "gather"
KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {MATMUL: ("matmul", "dot"), CONVOLUTION: ("conv",), GATHER: ("embedding",)}
)
OPERATION_OF: Mapping[str, str] = MappingProxyType({kind: name for name, kinds in KINDS.items() for kind in kinds})
BATCH_1 = "batch 1"
SHAPES = ("small", "medium", BATCH_1)
# Under which name a probe is kept.
PROBE_KEY = "precisions"
# How reasons begin that are the device's.
REFUSED = "this device cannot run it"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One operation compiled and run once in one precision."""

    refusal: str = ""  # why it cannot run, empty where it can
    effective: str = ""  # "as requested", "different: <what ran>" or "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """The time of one operation at one shape, as a ratio to the same operation as written in float32."""

    ratio: float
    low: float  # 95 % interval
    high: float
    kernel: str  # the fastest of those that were tried
    effective: str
    milliseconds: float  # of the operation as written


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What is known of one operation in one precision."""

    operation: str
    precision: str
    attempt: Attempt
    speeds: Mapping[str, Speed] = field(default_factory=lambda: MappingProxyType({}))  # by shape, as far as timed
    failures: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # shape -> why it fails at that


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """Everything found out about a device with one version of this tool."""

    tool_version: str
    findings: tuple[Finding, ...] = ()
    taken: str = ""  # when it was timed, empty where only support was asked for

    def find(self, operation: str, precision: Precision) -> Finding | None:
        """What is known of that operation in that precision; what a layer hands on makes no difference."""
        text = plain_text(precision)
        return next((f for f in self.findings if (f.operation, f.precision) == (operation, text)), None)

    @property
    def complete(self) -> bool:
        """True when all that runs was timed at every shape."""
        runs = [finding for finding in self.findings if not finding.attempt.refusal]
        return bool(runs) and all({*finding.speeds, *finding.failures} == {*SHAPES} for finding in runs)

    def refused(self) -> dict[str, dict[str, str]]:
        """Layer kind -> precision -> why the device cannot run it."""
        found: dict[str, dict[str, str]] = {}
        for finding in self.findings:
            for kind in KINDS[finding.operation] if finding.attempt.refusal else ():
                found.setdefault(kind, {})[finding.precision] = finding.attempt.refusal
        return found

    def merged(self, findings: Iterable[Finding]) -> "Probe":
        """With further findings, which replace what was found of the same before."""
        known = {(finding.operation, finding.precision): finding for finding in (*self.findings, *findings)}
        return dataclasses.replace(self, findings=tuple(known.values()))


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that measuring needs of the system."""

    name: str
    ok: bool
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """A device and its surroundings."""

    name: str
    fingerprint: Mapping[str, str]
    probe: Probe
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()


def plain_text(precision: Precision) -> str:
    """The precision as far as a device matters: it can cast to any output format, and take any number for a scale."""
    if precision.output is None and not precision.is_calibrated:
        return str(precision)
    plain = dataclasses.replace(precision, output=None, scaling="dynamic", observer="max", bias_correction=False)
    return str(plain)


def probe_to_json(probe: Probe) -> dict[str, Any]:
    """The probe as it is kept; null for NaN."""
    findings = [
        {
            "operation": finding.operation,
            "precision": finding.precision,
            **dataclasses.asdict(finding.attempt),
            "speeds": {shape: speed_to_json(speed) for shape, speed in finding.speeds.items()},
            "failures": dict(finding.failures),
        }
        for finding in probe.findings
    ]
    return {"format": _FORMAT, "tool_version": probe.tool_version, "taken": probe.taken, "findings": findings}


def speed_to_json(speed: Speed) -> dict[str, Any]:
    """The fields of a speed; null for NaN."""
    fields = dataclasses.asdict(speed)
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in fields.items()}


def probe_from_json(value: Any, tool_version: str) -> Probe:
    """What `probe_to_json` wrote; nothing where there is none, or another version probed: it may run other things."""
    if not isinstance(value, dict) or (value.get("format"), value.get("tool_version")) != (_FORMAT, tool_version):
        return Probe(tool_version=tool_version)
    findings = tuple(
        Finding(
            operation=entry["operation"],
            precision=entry["precision"],
            attempt=Attempt(refusal=entry["refusal"], effective=entry["effective"]),
            speeds=MappingProxyType({shape: _speed(fields) for shape, fields in entry["speeds"].items()}),
            failures=MappingProxyType(dict(entry["failures"])),
        )
        for entry in value["findings"]
    )
    return Probe(tool_version=tool_version, findings=findings, taken=value["taken"])


def _speed(fields: Mapping[str, Any]) -> Speed:
    values: dict[str, Any] = {name: math.nan if value is None else value for name, value in fields.items()}
    return Speed(**values)

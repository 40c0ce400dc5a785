"""A diagnosis as text and JSON."""

from collections.abc import Mapping
from typing import Any, TextIO

from tuner.diagnosis import SHAPES, Diagnosis, Finding, speed_to_json
from tuner.report import numbers
from tuner.report.policies import ran_text
from tuner.report.table import DIM, RED, YELLOW, Column, Row, write_table

FORMAT = 1
_COLUMNS = (
    Column("operation"),
    Column("precision"),
    Column("ran as requested"),
    *(Column(shape, right=True) for shape in SHAPES),
)
_FINGERPRINT = {
    "platform": "platform",
    "kind": "kind",
    "jaxlib": "jaxlib",
    "threads": "threads",
    "x64": "x64",
    "matmul_precision": "matmul precision",
    "promotion": "dtype promotion",
    "xla_flags": "XLA flags",
}


def write_diagnosis(diagnosis: Diagnosis, file: TextIO, *, width: int | None = None) -> None:
    """The device, what it runs and how fast, what it cannot run and why, and what measuring has to do without."""
    file.write(f"{diagnosis.name}\n")
    for field, title in _FINGERPRINT.items():
        file.write(f"  {title:<18}{diagnosis.fingerprint.get(field) or 'none'}\n")
    findings = diagnosis.probe.findings
    runs = [finding for finding in findings if not finding.attempt.refusal]
    file.write(f"\n{_explain(diagnosis)}\n\n")
    write_table(_COLUMNS, [_row(finding) for finding in runs], file, width=width)
    failed = [(f, shape, why) for f in runs for shape, why in f.failures.items()]
    refused = [finding for finding in findings if finding.attempt.refusal]
    if refused or failed:
        file.write("\nDoes not run here, and no search proposes it:\n" if refused else "")
        for finding in refused:
            file.write(f"  {finding.operation} in {finding.precision}: {finding.attempt.refusal}\n")
        file.write("\nFailed when it was timed:\n" if failed else "")
        for finding, shape, why in failed:
            file.write(f"  {finding.operation} in {finding.precision}, {shape}: {why}\n")
    file.write("\n")
    rows = [Row((c.name, "yes" if c.ok else "no", c.text), "" if c.ok else YELLOW) for c in diagnosis.checks]
    write_table((Column("measuring needs"), Column("here"), Column("")), rows, file)
    for note in diagnosis.notes:
        file.write(f"\n{note}\n")


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The versioned JSON form of `tuner doctor --json`."""
    probe = diagnosis.probe
    return {
        "format": FORMAT,
        "device": {"name": diagnosis.name, **diagnosis.fingerprint},
        "probed": probe.taken or None,
        "tool_version": probe.tool_version,
        "precisions": [_finding_json(finding) for finding in probe.findings],
        "checks": [{"name": check.name, "ok": check.ok, "text": check.text} for check in diagnosis.checks],
        "notes": list(diagnosis.notes),
    }


def _explain(diagnosis: Diagnosis) -> str:
    if not diagnosis.probe.taken:
        return "What runs here; nothing is timed."
    return (
        "Time of one operation as a ratio to it as written in float32: with its plain kernel, a single row with the fastest."
        f"\nIn brackets what ran, where that is not what ran on the smallest example. Probed {diagnosis.probe.taken}."
    )


def _row(finding: Finding) -> Row:
    effective = finding.attempt.effective
    ran = ran_text(effective)
    cells = (finding.operation, finding.precision, ran, *(_cell(finding, shape) for shape in SHAPES))
    return Row(cells, "" if ran == "yes" else DIM if ran == "unknown" else RED)


def _cell(finding: Finding, shape: str) -> str:
    if shape in finding.failures:
        return "failed"
    speed = finding.speeds.get(shape)
    if speed is None:
        return numbers.MISSING
    other = "" if speed.effective == finding.attempt.effective else f" ({_ran(speed.effective)})"
    return f"{numbers.ratio(speed.ratio)}{other}"


def _ran(effective: str) -> str:
    """What ran, as short as that can be said."""
    return effective.removeprefix("different: ").partition(" -> ")[0]


def _finding_json(finding: Finding) -> dict[str, Any]:
    speeds: Mapping[str, Any] = {shape: speed_to_json(speed) for shape, speed in finding.speeds.items()}
    return {
        "operation": finding.operation,
        "precision": finding.precision,
        "refusal": finding.attempt.refusal or None,
        "effective": finding.attempt.effective or None,
        "ratios": speeds,
        "failures": dict(finding.failures),
    }

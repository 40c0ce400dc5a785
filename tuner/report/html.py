"""HTML for notebooks: study, front and policy. Every text is escaped; no scripts, no styles from elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from tuner.front import Point
from tuner.policy import Policy
from tuner.report import numbers
from tuner.report.front import explain_front, front_columns, limits_of, point_cells
from tuner.report.studies import constraints_text, device_text

if TYPE_CHECKING:
    from tuner.store import StudyRecord

_RIGHT = ' style="text-align: right"'


def table_html(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """A plain table; numbers to the right where `right` says so."""
    sides = [_RIGHT if side else "" for side in right] or [""] * len(titles)
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    lines = [
        "<tr>" + "".join(f"<td{side}>{escape(cell)}</td>" for cell, side in zip(row, sides, strict=True)) + "</tr>"
        for row in rows
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def front_html(
    study: str, points: Sequence[Point], references: Sequence[Point], ties: Mapping[int, Point] | None = None
) -> str:
    """The front as a table, with what it beats below."""
    shown = [*points, *references]
    columns = front_columns(shown)
    titles = [column.title for column in columns]
    right = [column.right for column in columns]
    rows = [point_cells(point, shown) for point in points]
    parts = [f"<p>Front of study <b>{escape(study)}</b></p>", table_html(titles, rows, right)]
    if references:
        parts.append("<p>For comparison, not on the front:</p>")
        parts.append(table_html(titles, [point_cells(point, shown) for point in references], right))
    parts += [f"<p>{escape(sentence)}</p>" for sentence in explain_front(points, ties or {})]
    return "\n".join(parts)


def study_html(record: "StudyRecord", points: Sequence[Point], references: Sequence[Point]) -> str:
    """What the study is, and its front."""
    counts = record.counts
    facts = [
        ("task", record.task_reference or "live"),
        ("trials", str(counts.trials)),
        ("failed", str(counts.failed)),
        ("max drop", record.max_drop),
        ("objectives", ", ".join(record.objectives)),
        ("metric", record.metric),
        *([("constraints", constraints_text(record))] if record.constraints else []),
        ("device", device_text(record)),
    ]
    parts = [table_html(("study", record.name), facts), front_html(record.name, points, references)]
    return "\n".join([*parts, *(f"<p>{escape(sentence)}</p>" for sentence in limits_of(record))])


def policy_html(policy: Policy) -> str:
    """One row per layer, and where the policy was measured."""
    effective = _effective(policy)
    rows = [
        (name, str(assignment.precision), assignment.kernel, effective.get(name, numbers.MISSING))
        for name, assignment in policy.assignments
    ]
    table = table_html(("layer", "precision", "kernel", "ran"), rows)
    provenance = policy.provenance or {}
    if "study" not in provenance:
        return table
    origin = f"Trial {provenance.get('trial', numbers.MISSING)} of study {provenance['study']}"
    return f"{table}\n<p>{escape(origin)}</p>"


def _effective(policy: Policy) -> dict[str, str]:
    measured = (policy.provenance or {}).get("measured") or {}
    return {str(name): str(text) for name, text in dict(measured.get("effective") or {}).items()}

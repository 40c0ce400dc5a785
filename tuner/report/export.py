"""What a user should know about the point that was exported."""

from tuner.measurement import Confirmation
from tuner.report import numbers
from tuner.report.metrics import drop_cell
from tuner.report.points import drop_text, latency_text
from tuner.shapes import weights_text
from tuner.study import Choice


def explain_choice(choice: Choice) -> list[str]:
    """What it gains, whether it was confirmed, how optimistic the search was, and what was rejected."""
    point = choice.point
    measured = point.measurement
    said = [
        f"Latency {latency_text(measured.latency)} of the baseline, drop {drop_text(measured.quality)}, "
        f"weights {numbers.size(measured.memory.weight_bytes)}."
    ]
    if measured.shapes:
        each = ", ".join(f"{name} {latency_text(shape.latency)}" for name, shape in measured.shapes.items())
        said.append(f"That is the weighted sum {weights_text(measured.shapes)}: {each}.")
    if measured.latency.contended:
        said.append(f"Contended while it was timed: {measured.latency.contended}.")
    if isinstance(point.confirmation, Confirmation):
        again, held = point.confirmation.latency, point.confirmation.quality
        said.append(
            f"Confirmed on {held.examples} examples that the search never saw: latency {latency_text(again)}, "
            f"drop {drop_text(held)}."
        )
        said += [f"There {name} drops by {drop_cell(metric)}." for name, metric in point.confirmation.metrics.items()]
        if again.contended:
            said.append(f"Contended while it was confirmed: {again.contended}.")
        gap = held.drop - measured.quality.drop
        said.append(f"Optimism gap (search minus holdout, each against its baseline): {numbers.signed(gap)}.")
    elif not point.is_baseline:
        said.append("Not confirmed: its quality is known only on the examples that chose it.")
    rejected = len(choice.rejected)
    if rejected:
        names = ", ".join(f"{other.label} (trial {other.trial})" for other in choice.rejected)
        said.append(f"Rejected by the confirmation before it: {rejected}: {names}.")
    else:
        said.append("Rejected by the confirmation before it: 0.")
    return said

"""A policy that nobody measured, with what is predicted of it."""

from typing import Any, TextIO

from tuner.effect import Prediction
from tuner.measurement import Quality
from tuner.policy import Policy
from tuner.report import numbers
from tuner.report.points import drop_text
from tuner.report.table import DIM, Column, Row, write_table

FORMAT = 1

_LAYERS = (Column("layer"), Column("precision"), Column("kernel", spare=1))


def prediction_text(prediction: Prediction, quality: Quality | None, baseline_bytes: int) -> str:
    """What is predicted, in one line."""
    parts = []
    if prediction.latency is not None:
        parts.append(f"latency {numbers.ratio(prediction.latency)} of the baseline")
    if quality is not None:
        parts.append(f"drop {drop_text(quality)} on {quality.examples} search examples")
    elif prediction.drop is not None:
        parts.append(f"drop {numbers.signed(prediction.drop)}")
    if prediction.memory is not None:
        share = prediction.memory / baseline_bytes
        parts.append(f"memory {numbers.size(round(prediction.memory))} ({share:.2f} of the baseline)")
    if prediction.fidelity is not None:
        parts.append(f"relative error {prediction.fidelity:.2g}")
    return f"Predicted: {', '.join(parts)}."


def write_prediction(
    policy: Policy, prediction: Prediction, quality: Quality | None, baseline_bytes: int, file: TextIO
) -> None:
    """One line per layer, then what is predicted."""
    rows = [
        Row((name, str(a.precision), a.kernel), DIM if a.precision.is_original else "")
        for name, a in policy.assignments
    ]
    write_table(_LAYERS, rows, file)
    file.write(f"\n{prediction_text(prediction, quality, baseline_bytes)}\n")


def prediction_json(policy: Policy, prediction: Prediction, quality: Quality | None) -> dict[str, Any]:
    """The versioned JSON form."""
    return {
        "format": FORMAT,
        "latency": prediction.latency,
        "drop": prediction.drop,
        "drop_interval": None if quality is None else [quality.drop_low, quality.drop_high],
        "memory_bytes": prediction.memory,
        "relative_error": prediction.fidelity,
        "layers": [{"name": name, "precision": str(a.precision), "kernel": a.kernel} for name, a in policy.assignments],
    }

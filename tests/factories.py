"""Small records for tests that are about something else."""

import math
from datetime import UTC, datetime

from search_spaces import Precision
from tuner.front import Point
from tuner.measurement import Confirmation, Costs, FurtherMetric, Latency, Measurement, Memory, Quality
from tuner.policy import Assignment, Policy, ProgramSignature
from tuner.store.records import StudyRecord

INPUTS = '{"tuple":[{"shape":[8,64],"dtype":"float32"}]}'
SIGNATURE = ProgramSignature(
    layers=(("input", "input", ()), ("dense_0", "matmul", (64, 32)), ("dense_1", "matmul", (32, 10))), inputs=INPUTS
)
DEVICE = {"platform": "cpu", "kind": "Test CPU", "jaxlib": "0.10.2", "threads": "2"}


def make_policy(*precisions: str, program: ProgramSignature | None = SIGNATURE, **kwargs) -> Policy:
    """A policy for SIGNATURE; layers that are not given stay original."""
    texts = [*precisions, *["original"] * (len(SIGNATURE.layers) - len(precisions))]
    names = [name for name, _, _ in SIGNATURE.layers]
    assignments = tuple(
        (name, Assignment(precision=Precision.parse(text))) for name, text in zip(names, texts, strict=True)
    )
    return Policy(assignments=assignments, program=program, **kwargs)


def make_latency(ratio: float = 0.5, width: float = 0.02) -> Latency:
    return Latency(
        ratio=ratio,
        low=ratio - width / 2,
        high=ratio + width / 2,
        milliseconds=ratio * 4,
        baseline_spread=0.05,
        pairs=12,
    )


def make_quality(drop: float = 0.0, width: float = 0.004, baseline: float = 0.9) -> Quality:
    return Quality(
        value=baseline - drop,
        drop=drop,
        drop_low=drop - width / 2,
        drop_high=drop + width / 2,
        examples=5000,
        method="mcnemar",
        fidelity=0.01,
    )


def make_metric(drop: float = 0.0, allowed: float = 0.01, width: float = 0.002, value: float = 0.4) -> FurtherMetric:
    return FurtherMetric(
        value=value,
        drop=drop,
        drop_low=drop - width / 2,
        drop_high=drop + width / 2,
        method="paired bootstrap",
        allowed=allowed,
    )


def make_measurement(ratio: float = 0.5, drop: float = 0.0, memory: int = 1000, **kwargs) -> Measurement:
    return Measurement(
        latency=make_latency(ratio),
        quality=make_quality(drop),
        memory=Memory(total_bytes=memory, weight_bytes=memory // 2),
        costs=Costs(compile_s=0.25, compile_cache="miss"),
        **kwargs,
    )


def make_confirmation(ratio: float = 0.5, drop: float = 0.0, **kwargs) -> Confirmation:
    return Confirmation(latency=make_latency(ratio), quality=make_quality(drop), **kwargs)


def make_point(trial: int = 1, ratio: float = 0.5, drop: float = 0.0, memory: int = 1000, **kwargs) -> Point:
    fields = {"label": f"trial {trial}", "policy": make_policy(), "measurement": make_measurement(ratio, drop, memory)}
    return Point(trial=trial, **fields | kwargs)


def make_study(name: str = "digits", **kwargs) -> StudyRecord:
    fields = {
        "task_reference": "studies.digits_mlp:task",
        "objectives": ("latency", "quality", "memory"),
        "max_drop": "1%",
        "sampler": "nsga2",
        "seed": 0,
        "space": "cpu",
        "fingerprints": {"program": "a" * 64, "parameters": "b" * 64, "batch_size": "256"},
        "device": DEVICE,
        "program": SIGNATURE,
        "created": datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC),
        "batch_size": 256,
        "metric": "top1",
        "tool_version": "0.1.0",
    }
    return StudyRecord(name=name, **fields | kwargs)


def make_layers():
    from tuner.program.layer import Layer  # its room loads JAX, which most of these tests do without

    common = {"dtype": "float32", "executions": 1, "searchable": True}
    return (
        Layer(name="input", kind="input", shape=(8, 64), params=0, flops=0, source=None, **common),
        Layer(name="dense_0", kind="matmul", shape=(64, 32), params=2048, flops=2**40, source="model.py:3", **common),
        Layer(
            name="dense_1",
            kind="matmul",
            shape=(32, 10),
            dtype="float32",
            params=320,
            flops=5120,
            executions=7,
            source="model.py:4",
            searchable=False,
            reason="inside scan",
        ),
    )


NAN, INFINITY = math.nan, math.inf

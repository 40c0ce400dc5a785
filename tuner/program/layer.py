"""Layer: one or more operations that carry precision and share one assignment."""

from dataclasses import dataclass, field

MATMUL = "matmul"
CONV = "conv"
DOT = "dot"
EMBEDDING = "embedding"
INPUT = "input"
KINDS = (MATMUL, CONV, DOT, EMBEDDING, INPUT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """What a user may know about one layer without running anything."""

    name: str
    # matmul and conv have a weight, dot multiplies two activations, embedding looks rows up, input is an input leaf.
    kind: str
    # The weight as the operation reads it; for a dot the left operand, for an input the leaf, both with the batch.
    shape: tuple[int, ...]
    # The dtype the user's program holds the weight (or left operand, or input) in, as numpy prints it.
    dtype: str
    # Elements of the parameters behind the layer, each counted once; 0 for dot and input.
    params: int
    # Multiply-adds counted as two, over all `executions`.
    flops: int
    # How often the layer's operations run in one call: a scan's body counts its trips, a `while` body one, since its trips
    # are not known, and every branch of a `cond` one. Inside `shard_map`, shape, flops and executions are those of each
    # device, which is what its time depends on; params are always the whole parameters.
    executions: int
    # "file.py:12" of the user's line, or None where the trace kept none.
    source: str | None
    searchable: bool
    # Why it is not searchable, else None.
    reason: str | None = None
    # How many numbers lie along the axis of the weight that groups of scales run along (of several such lengths what
    # divides them all); 0 where there is none, or where that is not known.
    summed: int = field(default=0, compare=False)

"""JSON as all reports write it."""

import json
import math
from typing import Any, TextIO


def write_json(value: Any, file: TextIO) -> None:
    """JSON for people and programs: indented, one newline at the end, never NaN."""
    json.dump(value, file, indent=2, allow_nan=False)
    file.write("\n")


def finite(value: float) -> float | None:
    """The value, or None where JSON could not hold it."""
    return value if math.isfinite(value) else None

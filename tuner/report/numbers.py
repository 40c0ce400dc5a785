"""How numbers are written, the same in every table and page."""

MISSING = "-"


def ratio(value: float) -> str:
    """A latency ratio: 0.312."""
    return f"{value:.3f}"


def ratio_interval(value: float, low: float, high: float) -> str:
    """A ratio with its 95 % interval: 0.312 (0.305..0.321)."""
    return f"{value:.3f} ({low:.3f}..{high:.3f})"


def signed_interval(value: float, low: float, high: float) -> str:
    """A difference with its 95 % interval: +0.0011 (-0.0010..+0.0032)."""
    return f"{signed(value)} ({signed(low)}..{signed(high)})"


def signed(value: float) -> str:
    """A difference: +0.0011, and 0.0000 for none."""
    return "0.0000" if round(value, 4) == 0 else f"{value:+.4f}"


def quality(value: float) -> str:
    """A metric's value: 0.9701."""
    return f"{value:.4f}"


def milliseconds(value: float) -> str:
    """A time in milliseconds with three significant digits: 0.380, 12.4, 1230."""
    return (
        f"{value:.3f}"
        if value < 1
        else f"{value:.2f}"
        if value < 10
        else f"{value:.1f}"
        if value < 100
        else f"{value:.0f}"
    )


def seconds(value: float) -> str:
    """A duration: 12s, 4m05s, 1h02m."""
    whole = max(0, round(value))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def size(count: int) -> str:
    """A number of bytes: 980 B, 1.23 MB (decimal units)."""
    return f"{count} B" if count < 1000 else _scaled(count, (" kB", " MB", " GB", " TB"))


def amount(count: int) -> str:
    """A large count: 950, 1.2k, 3.4M, 5.6G."""
    return str(count) if count < 1000 else _scaled(count, ("k", "M", "G", "T"))


def _scaled(count: int, units: tuple[str, ...]) -> str:
    """Three significant digits in the unit that keeps the number under a thousand."""
    value = count / 1000
    for unit in units[:-1]:
        if value < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}{units[-1]}"

"""Times as pages show them: relative to now, with the exact time beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worldprotocol.api.proposal_summary import moment

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["relative", "span_between"]

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def relative(at_ms: int | None, now_ms: int) -> Markup:
    """Return a time relative to now as an HTML element, whose title is the exact time; None is empty.

    Args:
        at_ms: the time, ms since 1970.
        now_ms: now, ms since 1970.
    """
    from markupsafe import Markup

    text = moment(at_ms)
    if at_ms is None or not text.endswith("Z"):
        return Markup("{}").format(text)
    exact = text.replace("T", " ").replace("Z", " UTC")
    return Markup('<time datetime="{}" title="{}" data-ms="{}">{}</time>').format(
        text, exact, at_ms, _words(at_ms - now_ms)
    )


def _words(ms: int) -> str:
    """Return a span from now on, such as ``in 2 h``, ``5 min ago`` or ``now``."""
    for size, unit in _UNITS:
        if abs(ms) >= size:
            words = f"{abs(ms) // size} {unit}"
            return f"in {words}" if ms > 0 else f"{words} ago"
    return "now"


def span_between(begin_ms: int | None, end_ms: int | None) -> str:
    """Return the time between two times in short, such as ``+0.12 s`` or ``+4 min 10 s``; empty without both.

    Args:
        begin_ms: ms since 1970.
        end_ms: ms since 1970.
    """
    if begin_ms is None or end_ms is None:
        return ""
    ms = max(0, end_ms - begin_ms)
    if ms < 60_000:
        return f"+{ms / 1_000:.2f} s"
    minutes, seconds = divmod(ms // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"+{days} d {hours} h"
    return f"+{hours} h {minutes} min" if hours else f"+{minutes} min {seconds} s"

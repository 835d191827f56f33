"""The page: a report as one HTML file that loads nothing, runs nothing, and shows every word as what it is.

Its templates are rendered by jinja2 with autoescape. Its Content-Security-Policy allows the one style sheet that stands
in it, by hash, and nothing else: no script, no image, no font, no connection. Equal logs give equal pages: no clock is
read.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from world.extras import missing_extra
from worldprotocol.api.proposal_summary import moment
from worldprotocol.duration_text import duration
from worldprotocol.report.gathering import RealmReport
from worldprotocol.report.picture import HEIGHT, LEFT, PLOT, WIDTH, chart, sheets
from worldprotocol.terminal_text import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["render"]

MAX_WORDS: Final = 160
"""Characters of one value that are shown; of a longer one the beginning and the end."""

BRIEF: Final = 12
"""Characters of an id that are shown where it is one of many."""

MAX_TITLE: Final = 2_000
"""Characters of a value that was cut that can still be seen under the pointer."""

_PLANE_ENDS: Final = "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
_NO_CHARACTER: Final = re.compile(f"[\ufdd0-\ufdef{_PLANE_ENDS}]")


def render(report: RealmReport) -> Iterator[str]:
    """Yield the page piece by piece.

    Args:
        report: what was gathered.

    Raises:
        RefusedError: ``NOT_LOADED`` where jinja2 is not installed.
    """
    template = _environment().get_template("report.html.j2")
    style = _style()
    stream = template.stream(
        report=report.to_wire(),
        proposals=report.rows(),
        sheets=sheets(report.lineage),
        chart=chart(report.leases.course),
        course=report.leases.course,
        style=style,
        style_hash=b64encode(sha256(style.encode()).digest()).decode(),
        size={"width": WIDTH, "height": HEIGHT, "plot": PLOT, "left": LEFT},
    )
    stream.enable_buffering(64)
    yield from stream


@cache
def _style() -> Markup:
    from markupsafe import Markup

    return Markup(files(__package__).joinpath("templates", "report.css").read_text("utf-8"))


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise missing_extra("Reports", "jinja2", "report") from None
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "word": _word,
        "cut": _cut,
        "brief": _brief,
        "when": _when,
        "span": duration,
        "number": _number,
        "stamp": _stamp,
        "exact": _exact,
    }
    return made


def _plain(value: Any) -> str:
    r"""Return a value as text in which nothing steers, and which HTML can hold."""
    return _NO_CHARACTER.sub(lambda found: f"\\u{ord(found[0]):04x}", visible(str(value)))


def _cut(value: Any, most: int = MAX_WORDS) -> str:
    """Return a value as text of at most so many characters, or a few more that say what is left out."""
    words = _plain(value)
    if len(words) <= most:
        return words
    end = most // 4
    return f"{words[: most - end - 1]}…{words[len(words) - end :]}"


def _brief(value: Any) -> str:
    """Return the beginning of an id or a hash, as ids are shown and named everywhere."""
    return _plain(value)[:BRIEF]


def _word(value: Any, most: int = MAX_WORDS) -> Markup:
    """Return what others wrote, kept apart from the words around it whatever way it is read; None is empty."""
    from markupsafe import Markup

    if value is None:
        return Markup("")
    whole, shown = _plain(value), _cut(value, most)
    if shown == whole:
        return Markup("<bdi>{}</bdi>").format(shown)
    title = f"{whole[:MAX_TITLE]} ({len(whole):,} characters)"
    return Markup('<bdi title="{}">{}</bdi>').format(title, shown)


def _when(at_ms: int | None) -> Markup:
    """Return a time to the second, as HTML has them; None is empty."""
    from markupsafe import Markup

    told = moment(at_ms)
    if not told.endswith("Z"):
        return Markup("{}").format(told)
    return Markup('<time datetime="{}">{}</time>').format(told, told.replace("T", " ").replace("Z", " UTC"))


def _exact(at_ms: int) -> Markup:
    """Return a time to the millisecond where it falls between two seconds."""
    told = _when(at_ms)
    return told if at_ms % 1_000 == 0 else told + f" +{at_ms % 1_000} ms"


def _stamp(at_ms: int, line: int) -> str:
    """Return one of the two lines of a time below an axis: the day, or the time of day."""
    day, _, clock = moment(at_ms).rstrip("Z").partition("T")
    return clock if line else day


def _number(value: int) -> str:
    """Return a number with its thousands set apart."""
    return f"{value:,}"

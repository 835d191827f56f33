"""Template environment of HTML pages: all values escaped, and filters that show untrusted text safely."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from worldprotocol.api.proposal_summary import moment
from worldprotocol.duration_text import duration
from worldprotocol.terminal_text import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["base_style", "environment"]

MAX_WORDS: Final = 160
"""Maximum number of characters shown of a value; longer ones are shortened in the middle."""

BRIEF: Final = 12
"""Characters shown of an id in lists."""

MAX_TITLE: Final = 2_000
"""Maximum number of characters in the tooltip of a shortened value."""

_PLANE_ENDS: Final = "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
_NO_CHARACTER: Final = re.compile(f"[\ufdd0-\ufdef{_PLANE_ENDS}]")


@cache
def base_style() -> str:
    """Return the style sheet that all pages begin with: colours in light, dark and print, text and tables."""
    return files(__package__).joinpath("templates", "base.css").read_text("utf-8")


def environment(package: str) -> Environment:
    """Return the environment of the templates in the folder ``templates`` of a package.

    Args:
        package: name of the package.

    Raises:
        ImportError: jinja2 is not installed.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "plain": _plain,
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
    r"""Return a value as text without control characters and characters invalid in HTML."""
    return _NO_CHARACTER.sub(lambda found: f"\\u{ord(found[0]):04x}", visible(str(value)))


def _cut(value: Any, most: int = MAX_WORDS) -> str:
    """Return a value as text, shortened to at most ``most`` characters."""
    words = _plain(value)
    if len(words) <= most:
        return words
    end = most // 4
    return f"{words[: most - end - 1]}…{words[len(words) - end :]}"


def _brief(value: Any) -> str:
    """Return the first characters of an id or a hash."""
    return _plain(value)[:BRIEF]


def _word(value: Any, most: int = MAX_WORDS) -> Markup:
    """Return a value isolated from the text direction around it; None is empty."""
    from markupsafe import Markup

    if value is None:
        return Markup("")
    whole, shown = _plain(value), _cut(value, most)
    if shown == whole:
        return Markup("<bdi>{}</bdi>").format(shown)
    title = f"{whole[:MAX_TITLE]} ({len(whole):,} characters)"
    return Markup('<bdi title="{}">{}</bdi>').format(title, shown)


def _when(at_ms: int | None) -> Markup:
    """Return a time to the second as an HTML element; None is empty."""
    from markupsafe import Markup

    text = moment(at_ms)
    if not text.endswith("Z"):
        return Markup("{}").format(text)
    return Markup('<time datetime="{}">{}</time>').format(text, text.replace("T", " ").replace("Z", " UTC"))


def _exact(at_ms: int) -> Markup:
    """Return a time, with milliseconds unless they are zero."""
    element = _when(at_ms)
    return element if at_ms % 1_000 == 0 else element + f" +{at_ms % 1_000} ms"


def _stamp(at_ms: int, line: int) -> str:
    """Return a line of an axis label: the day (0) or the time of day (1)."""
    day, _, clock = moment(at_ms).rstrip("Z").partition("T")
    return clock if line else day


def _number(value: int) -> str:
    """Return a number with separators of thousands."""
    return f"{value:,}"

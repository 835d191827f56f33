"""HTML page of a report: self-contained, without scripts, all values escaped.

Its templates are rendered by jinja2 with autoescape. Its Content-Security-Policy allows its one embedded style sheet,
by hash, and nothing else: no script, image, font or connection. Equal logs give equal pages, since no clock is read.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from world.extras import missing_extra
from worldprotocol.html_pages.environment import base_style, environment
from worldprotocol.report.gathering import RealmReport
from worldprotocol.report.picture import HEIGHT, LEFT, PLOT, WIDTH, chart, sheets

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["render"]


def render(report: RealmReport) -> Iterator[str]:
    """Yield the page piece by piece.

    Args:
        report: the collected figures.

    Raises:
        RefusedError: ``NOT_LOADED`` if jinja2 is not installed.
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

    own = files(__package__).joinpath("templates", "report.css").read_text("utf-8")
    return Markup(base_style() + own)


@cache
def _environment() -> Environment:
    try:
        return environment(__package__)
    except ImportError:
        raise missing_extra("Reports", "jinja2", "report") from None

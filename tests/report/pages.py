"""Logs to report on, and pages read as any HTML5 parser reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import html5lib

from tests.report.words import events_with
from world.events.base import Event
from world.events.codec import encode_event
from world.log import NewEvent, open_log
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import import_log
from worldprotocol.export.redaction import Redaction
from worldprotocol.report.gathering import RealmReport, Window, gather
from worldprotocol.report.page import render

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def golden(name: str, folder: Path) -> str:
    """Import a golden log and return its address."""
    address = str(folder / f"{name}.db")
    with (GOLDEN / f"{name}.jsonl").open("rb") as source:
        import_log(source, address)
    return address


def written(address: str, events: Iterable[Event]) -> str:
    """Write events to a new log, as they are, and return its address."""
    with open_log(address, create=True) as log, log.write() as transaction:
        transaction.append(NewEvent("s", type(event).TOPIC, 1, encode_event(event)) for event in events)
    return address


def hostile(folder: Path, words: str) -> str:
    """Return the address of a log in which everything that others name is named like this."""
    return written(str(folder / "hostile.db"), events_with(words))


def reported(address: str, *, rules: tuple[str, ...] = (), every: bool = False) -> tuple[RealmReport, str]:
    """Return what is gathered from a whole log, and the page."""
    with Realm.open_read_only(address) as world:
        window = Window(0, world.log.head().size)
        made = gather(world.archive, window, redaction=Redaction(rules), every=every)
        return made, "".join(render(made))


def parsed(page: str) -> Element:
    """Return the document; a parser that knows no mercy has to take it."""
    parser = html5lib.HTMLParser(html5lib.getTreeBuilder("etree"), strict=True, namespaceHTMLElements=False)
    root = parser.parse(page)
    assert isinstance(root, Element)
    return root


def named(element: Element) -> str:
    """Return the name of an element, without its namespace."""
    return str(element.tag).rpartition("}")[2]


def every(root: Element, name: str) -> list[Element]:
    """Return all elements of a name, in order."""
    return [one for one in root.iter() if isinstance(one.tag, str) and named(one) == name]


def text(element: Element) -> str:
    """Return all that stands in an element, with single spaces."""
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip()


def table(root: Element, title: str) -> list[dict[str, str]]:
    """Return the rows of the table whose caption begins like this, by their heads."""
    for one in every(root, "table"):
        if text(every(one, "caption")[0]).startswith(title):
            heads = [text(cell) for cell in every(every(one, "thead")[0], "th")]
            rows = every(every(one, "tbody")[0], "tr")
            return [dict(zip(heads, map(text, row), strict=True)) for row in rows]
    raise AssertionError(f"there is no table {title!r}")


def skeleton(root: Element) -> list[Any]:
    """Return all elements with the names of their attributes, without what is there for long words only."""
    return [
        (named(one), sorted(name for name in one.attrib if name != "title"))
        for one in root.iter()
        if isinstance(one.tag, str)
    ]

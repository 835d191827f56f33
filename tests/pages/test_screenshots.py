"""The screenshots of the documentation: one of each page in both schemes, small, and those that the documents show."""

from __future__ import annotations

import re
import struct

from tests.cli.realm import ROOT
from tests.pages.screenshots import HEIGHT, SHOTS, TARGET
from worldprotocol.server.pages.page_table import PAGES

MAX_BYTES = 2_000_000


def test_each_page_of_the_navigation_has_a_picture() -> None:
    paths = {one.path.partition("?")[0].partition("/")[2] for one in SHOTS}
    titled = {one.path.partition("{realm}/")[2] for one in PAGES.values() if one.title}
    assert titled <= paths


def test_the_pictures_are_those_of_the_table_and_small() -> None:
    wanted = {
        f"{one.name}-{scheme}{'' if width == 1280 else f'-{width}'}.png": width
        for one in SHOTS
        for scheme in ("light", "dark")
        for width in one.widths
    }
    found = {path.name: path.read_bytes() for path in TARGET.glob("*.png")}
    assert found.keys() == wanted.keys()
    assert sum(map(len, found.values())) < MAX_BYTES
    for name, data in found.items():
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">II", data[16:24]) == (wanted[name], HEIGHT)


def test_the_documents_show_pictures_that_exist() -> None:
    shown = {
        (ROOT / name).parent / link
        for name in ("README.md", "docs/server.md")
        for link in re.findall(r"!\[[^\]]+\]\(([^)]+\.png)\)", (ROOT / name).read_text(encoding="utf-8"))
    }
    assert len(shown) >= 4
    assert all(path.is_file() for path in shown)

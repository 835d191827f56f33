"""What a call of a tool does with contents of files, as its words say."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worldprotocol.agents.call_values import content_of

__all__ = ["FileUse", "carries_context", "scan_key"]


@dataclass(frozen=True, slots=True)
class FileUse:
    """The contents that a call reads or writes.

    Args:
        paths: single files, as paths from the root of the project.
        whole: those of them that are read or written whole. An edit that carries its context, the text that it
            replaces, is none.
        scan: name of a search, whose files are not known beforehand; empty where it is none.
    """

    paths: tuple[str, ...] = ()
    whole: frozenset[str] = frozenset()
    scan: str = ""


def scan_key(*words: Any) -> str:
    """Return the name of what a search reads: equal for equal words.

    Args:
        *words: JSON, such as the tool, the folder and the patterns.
    """
    return f"scan-{hashlib.sha256(content_of(list(words))).hexdigest()[:32]}"


def carries_context(given: Mapping[str, Any]) -> bool:
    """Return whether an edit names the text that it replaces, so that it fails where that text is no longer there.

    Args:
        given: the input of the tool: ``old_string``, or a list ``edits`` of such.
    """
    edits = given.get("edits")
    each = edits if isinstance(edits, list) and edits else [given]
    old = [one.get("old_string") if isinstance(one, Mapping) else None for one in each]
    return all(isinstance(one, str) and one for one in old)

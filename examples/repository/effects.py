"""The two effects of this domain: a line in the maintainer's outbox, and a mail to the mailing list.

Files stand for the mail servers. The outbox's line carries the effect's idempotency key, and a key that is there
already is not written again; so the handler may promise to be idempotent, and an effect that was cut off by a crash is
made again without anybody getting the same mail twice. The mailing list knows no keys: every call sends a mail to all
readers, so its handler is not idempotent, and a call that was cut off by a crash is in doubt until a person looks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from host import Answer, EffectCallInfo, EffectFailure, EffectHandler, EffectResult, handler

OUTBOX_NAME: Final = "outbox.jsonl"
"""The outbox's file, in the folder of the world."""

MAILING_LIST_NAME: Final = "mailing_list.jsonl"
"""The mailing list's file, in the folder of the world."""

DEMO: Final = Path(__file__).parents[2] / "build" / "demo"
"""Where the demo keeps its world and its outbox."""


def outbox(folder: Path) -> EffectHandler:
    """Return the handler of ``notify.maintainer`` that writes into a folder's outbox."""
    file = folder / OUTBOX_NAME

    @handler("notify.maintainer", time_limit_ms=10_000, idempotent=True, touches=[("MUTATES", f"FILE:/{OUTBOX_NAME}")])
    def notify(params: Mapping[str, Any], call: EffectCallInfo) -> Answer:
        """Append the message, unless it is there already."""
        try:
            number = _append_once(file, call.idempotency_key, params)
        except OSError as error:
            return EffectFailure("OUTBOX_UNWRITABLE", f"The outbox cannot be written: {error.strerror}.")
        return EffectResult({"message": number})

    return notify


def mailing_list(folder: Path, *, sent: Callable[[], None] | None = None) -> EffectHandler:
    """Return the handler of ``mail.send`` that writes into a folder's mailing list.

    Args:
        folder: holds the file of the list.
        sent: called after a mail was sent and before its result is returned.
    """
    file = folder / MAILING_LIST_NAME

    @handler("mail.send", time_limit_ms=10_000, idempotent=False, touches=[("MUTATES", f"FILE:/{MAILING_LIST_NAME}")])
    def send(params: Mapping[str, Any], call: EffectCallInfo) -> Answer:
        """Send the mail, however often it was sent before."""
        with file.open("a", encoding="utf-8") as written:
            written.write(json.dumps(dict(params)) + "\n")
        if sent is not None:
            sent()
        return EffectResult({"message": len(messages(folder, MAILING_LIST_NAME))})

    return send


def messages(folder: Path, name: str = OUTBOX_NAME) -> list[dict[str, Any]]:
    """Return the messages in a folder's outbox, or in its mailing list, oldest first."""
    try:
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def _append_once(file: Path, key: str, params: Mapping[str, Any]) -> int:
    """Return the message's number in the outbox, from 1; a crash leaves the outbox with all of it or none."""
    known = messages(file.parent)
    for number, message in enumerate(known, 1):
        if message["key"] == key:
            return number
    whole = "".join(json.dumps(message) + "\n" for message in [*known, {"key": key, **params}])
    fresh = file.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as written:
        written.write(whole)
        written.flush()
        os.fsync(written.fileno())
    fresh.replace(file)
    return len(known) + 1


handlers = [outbox(DEMO), mailing_list(DEMO)]
"""What ``world.toml`` names."""

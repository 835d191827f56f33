"""Proof: the receipt of an id, a hash or a position; receipts are checked by the script of the page, in the browser."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from fastapi import Query, Request, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations.proofs import find_receipt, read_receipt
from worldprotocol.server.call import Call
from worldprotocol.server.pages.page_call import HEADERS, PageCall, open_page
from worldprotocol.server.pages.page_table import shows

KINDS: Final = ("world", "proposal", "intent", "verdict", "decision")
"""Kinds of subjects in the order in which an id is looked up; that of a decision reads all decisions."""

RECENT: Final = 20_000
"""Events at the end of the log that are searched for a leaf hash."""

_HASH_DIGITS: Final = 64

Of = Annotated[str, Query(max_length=1_000)]


@shows("proof")
async def proof(request: Request, of: Of = "") -> Response:
    """Show the receipt of what the address names, and the form that checks receipts."""
    opened = await open_page(request, "receipts.read")
    call, wanted = opened.call, of.strip()
    values: dict[str, Any] = {"receipt": "", "about": None, "position": 0, "topic": "", "refusal": ""}
    status = 200
    if wanted:
        try:
            found = await _receipt(opened, wanted)
        except RefusedError as refused:
            values["refusal"] = refused.message
            status = ErrorCode(refused.code).http_status
        else:
            wire = orjson.loads(found)
            event = wire["event"]
            topic = orjson.loads(event["content"])["topic"]
            values |= {"receipt": found.decode().rstrip("\n"), "about": wire["about"]}
            values |= {"position": event["position"], "topic": topic}
    checkpoint = await call.run(lambda: call.hosted.checkpoint(None))
    keys = await call.run(call.hosted.verifier_keys)
    own = {"own_origin": checkpoint.origin, "own_key": keys[0] if keys else ""}
    return await opened.show("proof", {"title": "Proof", "of": wanted, **values, **own}, status)


@shows("receipt")
async def receipt(request: Request, of: Of) -> Response:
    """Return the receipt of what the address names as a file."""
    opened = await open_page(request, "receipts.read")
    headers = {**HEADERS, "Content-Disposition": 'attachment; filename="receipt.json"'}
    return Response(await _receipt(opened, of.strip()), 200, headers, "application/json")


async def _receipt(opened: PageCall, of: str) -> bytes:
    """Return the receipt of an event by its position or leaf hash, or of something by its id.

    Raises:
        RefusedError: ``NOT_FOUND``, ``NO_SUCH_EVENT``, ``RIGHT_MISSING``.
    """
    if of.isascii() and of.isdecimal() and len(of) < 16:
        return (await opened.ask(read_receipt, {"position": int(of)})).data
    for kind in KINDS:
        try:
            return (await opened.ask(find_receipt, {"kind": kind, "subjectId": of})).data
        except RefusedError as refused:
            if refused.code not in (ErrorCode.NOT_FOUND, ErrorCode.UNKNOWN_WORLD):
                raise
    if len(of) == _HASH_DIGITS:
        call = opened.call
        position = await call.run(lambda: _position_of(call, of))
        if position is not None:
            return (await opened.ask(read_receipt, {"position": position})).data
    raise RefusedError(
        ErrorCode.NOT_FOUND,
        f"The log has no world, proposal, intent, verdict or decision {of[:80]!r}, and its newest {RECENT:,} events "
        "have no such leaf hash.",
    )


def _position_of(call: Call, leaf: str) -> int | None:
    """Return the position of a recent event by its leaf hash."""
    log = call.hosted.realm.log
    size = log.head().size
    return next((one.position for one in log.read(max(0, size - RECENT), size) if one.leaf.hex() == leaf), None)

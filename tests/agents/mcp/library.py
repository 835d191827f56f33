"""The realm that tests of the MCP server use: a library whose policy approves, refuses and asks a person."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from worldprotocol import (
    ActionContext,
    Approve,
    Domain,
    Escalate,
    Policy,
    Reject,
    effect,
    external,
    handler,
    rule,
    set_,
)

GATE = "LIBRARY_GATE"
"""Environment variable with a file; the effect ``press.bind`` ends once it exists."""


class Library(BaseModel):
    books: dict[str, str] = {}
    is_open: bool = True
    count: int = 0


class Book(BaseModel):
    title: str
    shelf: str = "a"


library = Domain("urn:test:library", version="1.0.0", state=Library)


@library.action("book.add", version="1", description="Put a book on a shelf.")
def add(ctx: ActionContext, input: Book) -> Any:  # noqa: A002
    return [set_(f"books.{input.shelf}", input.title), set_("count", ctx.data["count"] + 1)]


@library.action("book.buy", version="1", description="Buy a book, which a person decides.")
def buy(ctx: ActionContext, input: Book) -> Any:  # noqa: A002
    return [set_(f"books.{input.shelf}", input.title)]


@library.action("book.burn", version="1", description="Burn a book.")
def burn(ctx: ActionContext, input: Book) -> Any:  # noqa: A002
    return [set_(f"books.{input.shelf}", "")]


@library.action("book.lend", version="1", available={"kind": "get", "path": "is_open"}, description="Lend a book.")
def lend(ctx: ActionContext, input: Book) -> Any:  # noqa: A002
    if input.title not in ctx.data["books"].values():
        ctx.fail("NO_SUCH_BOOK", f"the library has no book {input.title}")
    return [set_("count", ctx.data["count"] - 1)]


@library.action("book.bind", version="1", description="Have a book bound, which takes a while.")
def bind(ctx: ActionContext, input: Book) -> Any:  # noqa: A002
    bound = yield effect("press.bind", title=input.title)
    return [set_(f"books.{input.shelf}", bound)]


@library.action("book.print", version="1", description="Have a book printed elsewhere.")
def printed(ctx: ActionContext, input: Book) -> Any:  # noqa: A002
    made = yield effect("press.print", title=input.title)
    return [set_(f"books.{input.shelf}", made)]


@library.action("library.close", version="1", description="Close the library.")
def close(ctx: ActionContext) -> Any:
    return [set_("is_open", False)]


@library.action("library.open_all", version="1", description="Open the library.")
def open_all(ctx: ActionContext) -> Any:
    return [set_("is_open", True)]


@handler("press.bind", idempotent=True, time_limit_ms=60_000)
def press(params: Any, call: Any) -> Any:
    gate = Path(os.environ[GATE])
    with gate.with_suffix(".bound").open("a") as bound:
        bound.write(f"{call.idempotency_key}\n")
    while not gate.exists():
        time.sleep(0.01)
    return f"{params['title']}, bound"


handlers = [press, external("press.print", time_limit_ms=60_000)]


@rule
def people_buy(case: Any) -> Any:
    return Escalate("ann", "money is spent") if case.intent.body.type == "book.buy" else None


@rule
def books_do_not_burn(case: Any) -> Any:
    return Reject("books are not burned; ask for a new shelf") if case.intent.body.type == "book.burn" else None


@rule
def all_else_is_fine(case: Any) -> Any:
    return Approve("house rules") if case.intent.body.type not in ("book.buy", "book.burn") else None


house = Policy("house", [people_buy, books_do_not_burn, all_else_is_fine])

"""A library that lends books: what is tested here."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from host import handler
from worldprotocol import ActionContext, Domain, effect, set_, unset

DAY_MS = 24 * 3_600_000


class Shelf(BaseModel):
    """Which books there are, and who has them."""

    books: list[str] = ["Emma", "Ulysses", "Walden"]
    loans: dict[str, dict[str, Any]] = {}


class Book(BaseModel):
    """A book by its title."""

    title: str


class Loan(Book):
    """A book, and who takes it."""

    reader: str


library = Domain("urn:example:library", version="1.0.0", state=Shelf)


@library.action("borrow", version="1")
def borrow(ctx: ActionContext, input: Loan) -> Any:  # noqa: A002
    """Lend a book for two weeks."""
    if input.title not in ctx.data["books"]:
        ctx.fail("NO_SUCH_BOOK", f"there is no {input.title}")
    if input.title in ctx.data["loans"]:
        ctx.fail("LENT", f"{input.title} is lent", until=ctx.data["loans"][input.title]["until"])
    return [set_(f"loans.{input.title}", {"by": input.reader, "until": ctx.now + 14 * DAY_MS})]


@library.action("return", version="1")
def give_back(ctx: ActionContext, input: Book) -> Any:  # noqa: A002
    """Take a book back, and send a bill where it is late."""
    loan = ctx.data["loans"].get(input.title)
    if loan is None:
        ctx.fail("NOT_LENT", f"{input.title} is not lent")
    days = (ctx.now - loan["until"]) // DAY_MS
    if days > 0:
        yield effect("mail.send", to=loan["by"], text=f"{input.title} is late, by {days} d")
    return [unset(f"loans.{input.title}")]


@handler("mail.send")
def send(params: Any, call: Any) -> Any:
    """Send a mail: here would be the code that does."""
    return {"id": call.idempotency_key[-8:]}

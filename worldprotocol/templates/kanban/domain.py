"""A board of cards in columns, on which people and agents work."""

from typing import Literal

from pydantic import BaseModel, Field

from worldprotocol import ActionContext, Domain, Patch, set_, unset

Column = Literal["todo", "doing", "review", "done"]


class Card(BaseModel):
    """A card of the board."""

    title: str
    column: Column = "todo"
    assignee: str | None = None


class Board(BaseModel):
    """The board: cards by id."""

    cards: dict[str, Card] = {}


class NewCard(BaseModel):
    """A card to add."""

    id: str = Field(pattern=r"^[a-z0-9-]{1,40}$")
    title: str = Field(min_length=1, max_length=200)


class CardMove(BaseModel):
    """Where a card goes."""

    id: str
    column: Column
    assignee: str | None = None


class CardName(BaseModel):
    """Which card."""

    id: str


kanban: Domain[Board] = Domain("urn:worldprotocol:kanban", version="1.0.0", state=Board)


@kanban.action("card.add", version="1", description="Add a card to the column todo.")
def add(ctx: ActionContext[Board], input: NewCard) -> list[Patch]:  # noqa: A002
    """Add a card to the column todo."""
    if input.id in ctx.state.cards:
        ctx.fail("CARD_EXISTS", f"there is a card {input.id} already")
    return [set_(f"cards.{input.id}", Card(title=input.title).model_dump())]


@kanban.action("card.move", version="1", description="Move a card to another column.")
def move(ctx: ActionContext[Board], input: CardMove) -> list[Patch]:  # noqa: A002
    """Move a card to another column."""
    card = ctx.state.cards.get(input.id)
    if card is None:
        ctx.fail("NO_CARD", f"there is no card {input.id}")
    assignee = input.assignee if input.assignee is not None else card.assignee
    if input.column == "doing" and assignee is None:
        ctx.fail("NO_ASSIGNEE", "a card in doing has an assignee")
    return [set_(f"cards.{input.id}.column", input.column), set_(f"cards.{input.id}.assignee", assignee)]


@kanban.action("card.remove", version="1", description="Remove a card.")
def remove(ctx: ActionContext[Board], input: CardName) -> list[Patch]:  # noqa: A002
    """Remove a card."""
    if input.id not in ctx.state.cards:
        ctx.fail("NO_CARD", f"there is no card {input.id}")
    return [unset(f"cards.{input.id}")]

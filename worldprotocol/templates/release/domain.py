"""Releases of a product: a version is proposed, published by an effect, and can be withdrawn."""

from typing import Any

from pydantic import BaseModel, Field

from worldprotocol import ActionContext, ActionSteps, Domain, Patch, effect, handler, set_


class Product(BaseModel):
    """The versions of a product."""

    live: str | None = None
    published: list[str] = []
    receipts: dict[str, str] = {}


class NewVersion(BaseModel):
    """A version to publish."""

    version: str = Field(pattern=r"^[0-9]+-[0-9]+-[0-9]+$", description="Such as 1-2-0.")
    notes: str = Field(min_length=1)


class WithdrawnVersion(BaseModel):
    """Why the live version is withdrawn."""

    reason: str = Field(min_length=1)


release: Domain[Product] = Domain("urn:worldprotocol:release", version="1.0.0", state=Product)


@release.action("publish", version="1", description="Publish a version and make it the live one.")
def publish(ctx: ActionContext[Product], input: NewVersion) -> ActionSteps:  # noqa: A002
    """Publish a version and make it the live one."""
    if input.version in ctx.state.published:
        ctx.fail("PUBLISHED", f"{input.version} was published before")
    receipt = yield effect("release.publish", version=input.version, notes=input.notes)
    return [
        set_("live", input.version),
        set_("published", [*ctx.state.published, input.version]),
        set_(f"receipts.{input.version}", str(receipt)),
    ]


@release.action("withdraw", version="1", description="Take the live version back to the one before it.")
def withdraw(ctx: ActionContext[Product], input: WithdrawnVersion) -> list[Patch]:  # noqa: A002
    """Make the version before the live one the live one."""
    if ctx.state.live is None:
        ctx.fail("NOTHING_LIVE", "there is no live version")
    earlier = ctx.state.published[: ctx.state.published.index(ctx.state.live)]
    return [set_("live", earlier[-1] if earlier else None)]


@handler("release.publish", idempotent=True, time_limit_ms=60_000)
def publishing(params: Any, call: Any) -> str:
    """Publish a version; put your own commands here. It may run again with the same key after a crash."""
    return f"receipt of {params['version']}"

"""An account: deposits, and payments as far as the balance goes."""

from pydantic import BaseModel, Field

from worldprotocol import ActionContext, Domain, Patch, set_


class Account(BaseModel):
    """An account: what it has, and what was paid to whom."""

    balance: int = Field(default=0, ge=0)
    paid: dict[str, int] = {}


class Deposit(BaseModel):
    """What is added."""

    amount: int = Field(gt=0)


class Payment(BaseModel):
    """Who is paid how much."""

    to: str = Field(min_length=1)
    amount: int = Field(gt=0)


ledger: Domain[Account] = Domain("urn:worldprotocol:ledger", version="1.0.0", state=Account)


@ledger.action("deposit", version="1", description="Add to the balance.")
def deposit(ctx: ActionContext[Account], input: Deposit) -> list[Patch]:  # noqa: A002
    """Add to the balance."""
    return [set_("balance", ctx.state.balance + input.amount)]


@ledger.action("pay", version="1", description="Pay someone from the balance.")
def pay(ctx: ActionContext[Account], input: Payment) -> list[Patch]:  # noqa: A002
    """Pay as far as the balance goes."""
    if input.amount > ctx.state.balance:
        ctx.fail("NOT_COVERED", f"{input.amount} of {ctx.state.balance}")
    paid = ctx.state.paid.get(input.to, 0) + input.amount
    return [set_("balance", ctx.state.balance - input.amount), set_("paid", {**ctx.state.paid, input.to: paid})]

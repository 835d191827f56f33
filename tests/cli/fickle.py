"""A domain whose every step takes something from elsewhere than its record: what a varied recheck has to find."""

from __future__ import annotations

import locale
import random
import time
from typing import Any

from pydantic import BaseModel

from worldprotocol import ActionContext, Approve, Domain, Policy, rule, set_


class Notes(BaseModel):
    said: str = ""


class Nothing(BaseModel):
    about: str = ""


notes = Domain("urn:test:fickle", version="1.0.0", state=Notes)


@notes.action("hour", version="1")
def hour(ctx: ActionContext, input: Nothing) -> Any:  # noqa: A002
    return [set_("said", f"at {time.localtime(0).tm_hour}:{time.localtime(0).tm_min}")]


@notes.action("tongue", version="1")
def tongue(ctx: ActionContext, input: Nothing) -> Any:  # noqa: A002
    return [set_("said", f"in {locale.setlocale(locale.LC_TIME)}")]


@notes.action("dice", version="1")
def dice(ctx: ActionContext, input: Nothing) -> Any:  # noqa: A002
    return [set_("said", str(random.random()))]


@notes.action("keep", version="1")
def keep(ctx: ActionContext, input: Nothing) -> Any:  # noqa: A002
    return [set_("said", input.about)]


TAKEN: list[str] = []


@notes.action("take", version="1")
def take(ctx: ActionContext, input: Nothing) -> Any:  # noqa: A002
    TAKEN.append(ctx.intent_id)
    return [set_("said", f"number {len(TAKEN)}")]


@rule
def first_of_a_set(case: Any) -> Any:
    return Approve(f"first of all {next(iter({'ann', 'bob', 'cid', 'dan', 'eve', 'fay', 'gus'}))}")


sets = Policy("sets", [first_of_a_set])

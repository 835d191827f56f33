"""Policies: those in force and their history, one version with its use, and the backtest of a draft."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from authority.policies.policy_file import policy_from_text
from world.errors import RefusedError
from worldprotocol.operations.jobs import start_backtest
from worldprotocol.operations.policies import list_policies, read_policy
from worldprotocol.server.pages.page_call import PageCall, form_fault, job_shown, job_started, open_form, open_page
from worldprotocol.server.pages.page_table import shows

EXAMPLE: Final = """\
name = "draft"

[[rules]]
id = "small_orders"
verdict = "approve"
when = "intent.input.amount <= 20"

[[rules]]
id = "everything_else"
verdict = "escalate"
"""
"""The draft that the form shows first."""

MAX_LINES: Final = 200
"""Flips and undecided cases that the page lists, the newest ones."""

Hash = Annotated[str, Query(max_length=64)]


@shows("policies")
async def policies(request: Request) -> Response:
    """Show the policies in force, and all adoptions and retirements."""
    opened = await open_page(request, "policies.list")
    found = await opened.shown(list_policies)
    values = {"title": "Policies", **found, "may_test": opened.may("backtest.start")}
    return await opened.show("policies", values)


@shows("policy")
async def policy(request: Request, policy_hash: str, against: Hash = "") -> Response:
    """Show one version of a policy; the address holds the version that it is compared with."""
    opened = await open_page(request, "policies.read")
    found = await opened.shown(read_policy, {"named": policy_hash, "against": against or None})
    versions = [one for one in found["history"] if one["event"] != "retired"]
    values = {"title": f"Policy {found['name']}", "one": found, "versions": versions}
    return await opened.show("policy", values)


@shows("draft")
async def draft(request: Request, job: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Show the form for a draft, and the backtest of one that the address names."""
    opened = await open_page(request, "backtest.start")
    found, refusal = await job_shown(
        opened, job, lambda one: one["kind"] == "backtest" and one["options"]["policyText"] is not None
    )
    if found is None:
        return await _shown(opened, {"text": EXAMPLE, "format": "toml", "last": "200"}, refusal=refusal)
    options = found["options"]
    form = {"text": options["policyText"], "format": options["policyFormat"], "last": str(options["last"] or "")}
    return await _shown(opened, form, found)


@shows("backtest")
async def backtest(request: Request) -> Response:
    """Judge the newest cases by the draft of a form, and show what it would change."""
    opened, given = await open_form(request, "backtest.start")
    text = given.get("text", "").replace("\r\n", "\n")
    form = {"text": text, "format": given.get("format", ""), "last": given.get("last", "")}
    try:
        last = int(form["last"]) if form["last"].isascii() and form["last"].isdecimal() else 0
        members = {"policyText": text, "policyFormat": form["format"], "last": last}
        job_id = await job_started(opened, start_backtest, members)
    except RefusedError as error:
        words, status = form_fault(error)
        return await _shown(opened, form, refusal=words, status=status)
    return opened.redirect(f"policies/backtest?job={job_id}")


async def _shown(
    opened: PageCall, form: dict[str, str], job: Any = None, *, refusal: str = "", status: int = 200
) -> Response:
    values: dict[str, Any] = {"title": "Backtest of a draft", "draft": form, "job": job, "refusal": refusal}
    if job is not None:
        policy = policy_from_text(form["text"], f"draft.{form['format']}")
        values["policy"] = {"name": policy.name, "hash": policy.description["hash"]}
        result = job["result"] or {"lines": [], "moreLines": 0}
        values["lines"] = result["lines"][::-1][:MAX_LINES]
        values["has_more"] = len(result["lines"]) > MAX_LINES or result["moreLines"] > 0
    return await opened.show("backtest", values, status)

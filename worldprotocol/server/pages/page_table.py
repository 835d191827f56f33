"""Table of pages: method, path, and the API operation whose rights the page needs.

A page exists only in this table, and shows what operations return, so that it needs no rights of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from worldprotocol.server.operation_table import Handlers

__all__ = ["PAGES", "SHOWN", "Page", "shows"]


@dataclass(frozen=True, slots=True)
class Page:
    """One page.

    Args:
        name: its name.
        method: HTTP method.
        path: path below ``/realms``.
        operation: name of the operation whose rights it needs; empty for sign-in and sign-out, which show nothing.
        title: its title in the navigation; empty where it is not there.
    """

    name: str
    method: str
    path: str
    operation: str
    title: str = ""


_ALL: Final = (
    Page("sign_in", "GET", "/{realm}/sign-in", ""),
    Page("go_to_issuer", "GET", "/{realm}/sign-in/{issuer}", ""),
    Page("come_back", "GET", "/{realm}/sign-in/{issuer}/back", ""),
    Page("begin_session", "POST", "/{realm}/sign-in", ""),
    Page("end_session", "POST", "/{realm}/sign-out", ""),
    Page("home", "GET", "/{realm}", ""),
    Page("inbox", "GET", "/{realm}/inbox", "proposals.answer", "Inbox"),
    Page("inbox_stream", "GET", "/{realm}/inbox/stream", "proposals.answer"),
    Page("answer", "POST", "/{realm}/inbox/{proposal_id}", "proposals.answer"),
    Page("proposals", "GET", "/{realm}/proposals", "proposals.list", "Proposals"),
    Page("proposal", "GET", "/{realm}/proposals/{proposal_id}", "proposals.read"),
    Page("settle", "POST", "/{realm}/proposals/{proposal_id}/settle", "proposals.settle"),
    Page("cancel", "POST", "/{realm}/proposals/{proposal_id}/cancel", "proposals.cancel"),
    Page("recheck_proposal", "POST", "/{realm}/proposals/{proposal_id}/recheck", "recheck.start"),
    Page("what_if_proposal", "POST", "/{realm}/proposals/{proposal_id}/whatif", "whatif.start"),
    Page("cancel_job", "POST", "/{realm}/jobs/{job_id}/cancel", "jobs.cancel"),
    Page("worlds", "GET", "/{realm}/worlds", "worlds.list", "Worlds"),
    Page("world", "GET", "/{realm}/worlds/{world_id}", "worlds.read"),
    Page("leases", "GET", "/{realm}/leases", "leases.list", "Leases"),
    Page("revoke", "POST", "/{realm}/leases/revoke", "leases.revoke"),
    Page("policies", "GET", "/{realm}/policies", "policies.list", "Policies"),
    Page("draft", "GET", "/{realm}/policies/backtest", "backtest.start"),
    Page("backtest", "POST", "/{realm}/policies/backtest", "backtest.start"),
    Page("policy", "GET", "/{realm}/policies/{policy_hash}", "policies.read"),
    Page("runs", "GET", "/{realm}/runs", "runs.list", "Runs"),
    Page("run", "GET", "/{realm}/runs/{run_id}", "runs.read"),
    Page("proof", "GET", "/{realm}/proof", "receipts.read", "Proof"),
    Page("receipt", "GET", "/{realm}/proof/receipt.json", "receipts.read"),
    Page("log", "GET", "/{realm}/log", "log.read", "Log"),
    Page("log_stream", "GET", "/{realm}/log/stream", "log.stream"),
)
PAGES: Final = {one.name: one for one in _ALL}
"""All pages, by name."""

SHOWN: Final = Handlers(PAGES)
"""The handlers of the pages."""

shows: Final = SHOWN.declare
"""Declares the handler of a page."""

"""Links of the API description (OpenAPI): which operations take what an answer names."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["links_of"]

_PROPOSAL: Final = {
    "proposals.read": ("proposal_id", "/proposalId"),
    "proposals.preview": ("proposal_id", "/proposalId"),
    "proposals.answer": ("proposal_id", "/proposalId"),
    "proposals.cancel": ("proposal_id", "/proposalId"),
}
_OF_LIST: Final = {name: (parameter, f"/proposals/0{place}") for name, (parameter, place) in _PROPOSAL.items()}
_JOB: Final = {"jobs.read": ("job_id", "/jobId"), "jobs.cancel": ("job_id", "/jobId")}

_LINKS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "intents.submit": _PROPOSAL,
    "events.project": {name: (parameter, f"/proposal{place}") for name, (parameter, place) in _PROPOSAL.items()},
    "proposals.list": _OF_LIST,
    "proposals.answer": {"proposals.read": ("proposal_id", "/proposalId")},
    "worlds.list": dict.fromkeys(
        ("worlds.read", "worlds.state", "worlds.computed", "worlds.diff", "worlds.blame"),
        ("world_id", "/worlds/0/worldId"),
    ),
    "worlds.read": {"worlds.state": ("world_id", "/worldId")},
    "leases.acquire": {
        "leases.request": ("request_id", "/requestId"),
        "leases.withdraw": ("request_id", "/requestId"),
    },
    "verify.start": _JOB,
    "recheck.start": _JOB,
    "whatif.start": _JOB,
    "backtest.start": _JOB,
    "jobs.list": {name: (parameter, "/jobs/0/jobId") for name, (parameter, _) in _JOB.items()},
    "policies.list": {"policies.read": ("named", "/policies/0/policyHash")},
    "actors.list": {"actors.read": ("actor_id", "/actors/0/actorId")},
    "runs.list": {"runs.read": ("run_id", "/runs/0/runId")},
    "log.read": {"receipts.read": ("position", "/events/0/position")},
}
"""By operation: the operations that its answer leads to, with a parameter and where the answer has its value."""


def links_of(operation: str) -> dict[str, Any]:
    """Return the links of the answers of an operation, as OpenAPI has them."""
    return {
        name: {
            "operationId": name,
            "parameters": {"realm": "$request.path.realm", parameter: f"$response.body#{place}"},
        }
        for name, (parameter, place) in _LINKS.get(operation, {}).items()
    }

"""``worldctl explain PROPOSAL``: every rule in order, which one decided, what people and leases had to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from worldprotocol.cli.support.command_context import CommandContext

if TYPE_CHECKING:
    from authority import Policy
    from world.core import Domain
    from worldprotocol.policy_tools.proposal_explanation import LoadedCode


def loaded_code(desk: CommandContext) -> LoadedCode:
    """Return what loads the domain and the policies that the configuration names."""
    from worldprotocol.api.bootstrap import load_any_domain
    from worldprotocol.cli.support.opening import composed
    from worldprotocol.policy_tools.hypothetical import policy_named
    from worldprotocol.policy_tools.proposal_explanation import LoadedCode

    def domain() -> Domain:
        config = composed(desk)
        return load_any_domain(config.domain or "", base=config.folder, oldest_rules=1)

    def policy(name: str) -> Policy:
        config = composed(desk)
        return policy_named(name, config.policies, config.folder)

    return LoadedCode(domain, policy)


def without_words(rendered: Any) -> Any:
    """Return the explanation without scopes, and without texts and values of foreign origin."""
    if isinstance(rendered, Mapping):
        return {name: HIDDEN if name in _WORDS and value else without_words(value) for name, value in rendered.items()}
    return [without_words(one) for one in rendered] if isinstance(rendered, (list, tuple)) else rendered


HIDDEN: Final = "(hidden)"
"""Placeholder of words that are not shown."""

_WORDS: Final = frozenset(
    {"input", "reason", "because", "outside", "description", "when", "scope", "approvedScope", "allowedPaths"}
    | {"message", "context"}
)


def proposal_lines(wire: Mapping[str, Any], lease: Callable[[Mapping[str, Any]], Iterator[str]]) -> Iterator[str]:
    """Yield the explanation for people; ``lease`` gives the lines of a verdict."""
    from worldprotocol.policy_tools.explain import trace_lines
    from worldprotocol.terminal_text import visible

    ended = "" if wire["endedReason"] is None else f" ({wire['endedReason']})"
    yield f"proposal {wire['proposalId']}: {wire['status']}{ended}"
    yield from ruling_lines(wire)
    yield from trace_lines(wire)
    if wire["note"] is not None:
        yield f"  note      {wire['note']}"
    for answer in wire["answers"]:
        reason = f": {answer['reason']}" if answer.get("reason") else ""
        to = f" to {answer['to']}" if "to" in answer else ""
        yield visible(f"  answer    {answer['choice']}{to} by {answer['by']['actorId']}{reason}")
    if wire["error"] is not None:
        yield visible(f"  error     {wire['error']['code']}: {wire['error']['message']}")
    if wire["leases"] is not None:
        yield "  leases"
        yield from (f"    {line}" for line in lease(wire["leases"]))


def ruling_lines(wire: Mapping[str, Any]) -> Iterator[str]:
    """Yield the proposal, its outcome and the texts of others about it."""
    from worldprotocol.terminal_text import visible

    yield from map(visible, _ruling(wire))


def _ruling(wire: Mapping[str, Any]) -> Iterator[str]:
    from worldprotocol.api.proposal_summary import moment
    from worldprotocol.json_text import as_text

    yield f"  who       {wire['actor']['actorId']} ({wire['actor']['kind']})"
    yield f"  what      {wire['action']} {'' if wire['input'] is None else as_text(wire['input'])}".rstrip()
    yield f"  when      {moment(wire['submittedAt'])}, on {wire['branch']} at {wire['baseWorld'][:12]}"
    if wire["verdict"] is None:
        yield "  ruling    none was given"
        return
    yield f"  ruling    {wire['verdict']} by {wire['authority']}: {wire['reason']}"
    if wire["approvedScope"] is not None:
        yield f"  within    {as_text(wire['approvedScope'])}"
    policy = wire["policy"]
    if policy is not None:
        place = "" if policy["position"] is None else f", adopted by event {policy['position']}"
        yield f"  policy    {policy['name']} {policy['hash'][:12]}{place}"

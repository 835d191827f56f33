"""The rules of a till, as a file says them, with what cases and coverage of cases are about."""

from __future__ import annotations

from authority import Policy
from authority.policies.policy_file import policy_from_text

RULES = """
name = "till"

[[rules]]
id = "small_sales_pass"
verdict = "approve"
actions = ["sell"]
when = "intent.input.count <= 5 && intent.input.item != 'rum'"

[[rules]]
id = "not_too_often"
verdict = "reject"
when = "history.count({'actorId': actor.actorId, 'outcome': 'completed', 'since': nowMs - 20}) >= 4"

[[rules]]
id = "not_too_much"
verdict = "reject"
when = "history.sum('count', {'action': 'sell', 'decision': 'approved'}) > 60.0"

[[rules]]
id = "charges_go_to_people"
verdict = "escalate"
actions = ["charge"]
to = ["ann"]
"""


def till() -> Policy:
    return policy_from_text(RULES, "rules.toml")

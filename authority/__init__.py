"""Authority: judges proposals by rules, policies and people, each with a reason.

A policy author needs ``rule`` and the opinions::

    from authority import Approve, Escalate, Narrow, Reject, rule


    @rule
    def small_changes(case):
        if case.actor.kind == "agent" and case.intent.body.type == "todo.add":
            return Narrow("data.todos.*", "agents may add to the list")
        return None  # no opinion

offered as an entry point of the group ``worldprotocol.rules``, or named by reference
(``rules.py:small_changes``). Rules can also be written in a file, with conditions in CEL (``rules.toml``).
This package writes no log, performs no effect and reads no clock. Sources:
WP-bind, WP-decision, CARD-policy, INT-13; design section 6.
"""

from authority.authority import StandardAuthority
from authority.bindings.auto_approve import AutoApproveBinding
from authority.bindings.binding import Binding, JudgingContext
from authority.bindings.hitl import HitlBinding
from authority.bindings.policy_rules import PolicyRulesBinding
from authority.bindings.registry import BindingRegistry, read_binding
from authority.bindings.tribunal import TribunalBinding
from authority.people.answers import QuestionSettings
from authority.policies.combine import COMBINATION, combine
from authority.policies.loading import policy_from_file
from authority.policies.opinions import Approve, Escalate, Narrow, Opinion, Reject
from authority.policies.policy import Policy
from authority.policies.policy_text import is_policy_file
from authority.policies.rebuilding import rebuilt_policy, rebuilt_rules
from authority.policies.registry import ENTRY_POINTS, PolicyRegistry
from authority.policies.rule_composition import AllOf, AnyOf, UnsafeApproveAll
from authority.policies.rules import PythonRule, Rule, rule
from authority.policies.source_hash import RuleSource, source_of
from authority.recheck import recheck_ruling
from authority.scope import intersection, is_within, restrict

__all__ = [
    "COMBINATION",
    "ENTRY_POINTS",
    "AllOf",
    "AnyOf",
    "Approve",
    "AutoApproveBinding",
    "Binding",
    "BindingRegistry",
    "Escalate",
    "HitlBinding",
    "JudgingContext",
    "Narrow",
    "Opinion",
    "Policy",
    "PolicyRegistry",
    "PolicyRulesBinding",
    "PythonRule",
    "QuestionSettings",
    "Reject",
    "Rule",
    "RuleSource",
    "StandardAuthority",
    "TribunalBinding",
    "UnsafeApproveAll",
    "combine",
    "intersection",
    "is_policy_file",
    "is_within",
    "policy_from_file",
    "read_binding",
    "rebuilt_policy",
    "rebuilt_rules",
    "recheck_ruling",
    "restrict",
    "rule",
    "source_of",
]

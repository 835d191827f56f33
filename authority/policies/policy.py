"""Policies: named rules and what they come to.

Every rule is asked, in order, whatever the ones before said, so that the trace tells everything; what they
say is combined as ``authority.policies.combine`` does. A rule that raises or returns nonsense is an error in the
trace, and errors refuse; so is one that takes longer than it may, and those behind it are not asked then.
A policy's hash covers the code and the values of all its rules and the way of
combining them. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from authority.bounded_text import MAX_NAME, bounded, is_name, told
from authority.people.answers import QuestionSettings, go_on
from authority.people.questions import Question, unanswerable, who_decides
from authority.policies.combine import COMBINATION, Combined, combine, reasons
from authority.policies.opinions import OPINIONS, Escalate, Heard, Narrow, RuleFault
from authority.policies.rules import PythonRule, Rule, RuleFunction, check_rule, nonsense
from authority.policies.source_hash import RuleSource, source_of
from world.code.time_limit import TimeLimit, TimeLimitError
from world.errors import RefusedError
from world.model.decision import RuleOutcome, Ruling
from world.model.identity import policy_hash
from world.model.immutable_json import FrozenDict
from world.state.ports import Case

MAX_RULES: Final = 1_000
"""Rules in one policy."""

TIMED_OUT: Final = "RULE_TIMED_OUT"
"""How the reason of a rule begins that took too long, or was not asked because one before it did."""

_NO_TIME_LIMIT: Final = TimeLimit()
NO_OPINIONS: Final = "no rule approved it: rejected by default"
"""How a rejection words that no rule said anything."""

_EMPTY_SCOPE: Final = "the narrowings leave nothing of the proposed scope to write"


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules under a name.

    Args:
        name: what bindings call it: letters, digits and ``_ . : / -``.
        rules: asked in this order; their names are unique. Without any, everything is rejected.
        version: the author's own, part of the hash.

    Attributes:
        description: name, hash and every rule with its source, as JSON; what is logged when it is adopted.
        hash: SHA-256 of the description, by which decisions name the policy.

    Raises:
        RefusedError: ``INVALID_POLICY`` for a bad name, a rule's name used twice, or more than ``MAX_RULES``;
            ``INVALID_RULE`` for what is no rule.
    """

    name: str
    rules: tuple[Rule, ...] = field(hash=False)
    version: str | None = field(default=None, kw_only=True)
    description: FrozenDict = field(init=False, repr=False, compare=False)
    hash: str = field(init=False)
    _calls: tuple[Rule | RuleFunction, ...] = field(init=False, repr=False, compare=False)
    _silent: tuple[RuleOutcome, ...] = field(init=False, repr=False, compare=False)

    def __init__(self, name: str, rules: Iterable[Rule], *, version: str | None = None) -> None:
        """Check the rules and take down where they stand: later judgements read no files."""
        rules = tuple(check_rule(one) for one in rules)
        _check(name, rules, version)
        sources = [source_of(one) for one in rules]
        described = _described(name, rules, sources, version)
        hash_ = policy_hash(described)
        silent = tuple(RuleOutcome(one.name, source.label, "none") for one, source in zip(rules, sources, strict=True))
        for attribute, value in (
            ("name", name),
            ("rules", rules),
            ("version", version),
            ("hash", hash_),
            ("description", FrozenDict({**described, "hash": hash_})),
            ("_calls", tuple(one.function if type(one) is PythonRule else one for one in rules)),
            ("_silent", silent),
        ):
            object.__setattr__(self, attribute, value)

    def evaluate(self, case: Case, asking: QuestionSettings, time_limit: TimeLimit = _NO_TIME_LIMIT) -> Ruling:
        """Return what the rules come to.

        Args:
            case: the proposal, as far as an authority sees it.
            asking: whom to ask where a rule escalates and names nobody, and for how long.
            time_limit: for each rule.

        Raises:
            RefusedError: ``SCOPE_TOO_LARGE`` or ``INVALID_VALUE`` where scopes cannot be narrowed.
        """
        heard = self._heard(case, time_limit)
        combined = combine(heard, case.intent.body.scope_proposal, case.scope_rules)
        trace = self._trace(heard, combined, asking)
        if combined.verdict == "wait":
            return self._waiting(case, trace, combined, asking)
        return Ruling(
            combined.verdict,
            self._authority,
            self._reason(heard, combined),
            combined.scope,
            trace,
            self.hash,
        )

    def _heard(self, case: Case, time_limit: TimeLimit) -> list[Heard]:
        heard: list[Heard] = []
        for at, call in enumerate(self._calls):
            try:
                heard.append(_ask(call, case, at, self, time_limit))
            except TimeLimitError as late:
                heard.append(RuleFault(f"{TIMED_OUT}: {late}"))
                rest = len(self._calls) - len(heard)
                return heard + [RuleFault(f"{TIMED_OUT}: it was not asked, {self.rules[at].name} took too long")] * rest
        return heard

    @property
    def _authority(self) -> str:
        return f"policy_rules:{self.name}"

    def _trace(self, heard: Sequence[Heard], combined: Combined, asking: QuestionSettings) -> tuple[RuleOutcome, ...]:
        decisive = combined.decisive
        outcomes: list[RuleOutcome] = []
        for at, silent in enumerate(self._silent):
            said = heard[at]
            if said is None:
                outcomes.append(silent)
                continue
            outcomes.append(
                RuleOutcome(
                    silent.rule,
                    silent.source,
                    said.answer,
                    said.reason,
                    said.scope if type(said) is Narrow else None,
                    (said.to or asking.ask) if type(said) is Escalate else (),
                    at in decisive,
                    said.quorum if type(said) is Escalate else None,
                )
            )
        return tuple(outcomes)

    def _waiting(
        self, case: Case, trace: tuple[RuleOutcome, ...], combined: Combined, asking: QuestionSettings
    ) -> Ruling:
        asks = [trace[at] for at in combined.decisive]
        proposer = case.actor.actor_id
        for outcome in asks:
            why = unanswerable(outcome.to, outcome.quorum, proposer)
            if why is not None:
                decided = tuple(replace(other, decisive=other is outcome) for other in trace)
                rejected = Ruling("reject", self._authority, f"{outcome.rule}: {why}", None, decided, self.hash)
                return go_on(case, rejected, asking, trace)
        questions = [Question.put(outcome.to, outcome.quorum, proposer) for outcome in asks]
        words = "; ".join(f"{outcome.rule}: {outcome.reason or 'people decide'}" for outcome in asks)
        return Ruling(
            verdict="wait",
            authority=self._authority,
            reason=f"{words} ({who_decides(questions)})",
            trace=trace,
            policy_hash=self.hash,
            ask=tuple(dict.fromkeys(actor_id for question in questions for actor_id in question.pending)),
            timeout_ms=asking.timeout_ms,
            on_timeout=asking.on_timeout,
        )

    def _reason(self, heard: Sequence[Heard], combined: Combined) -> str:
        if combined.answer == "none":
            return NO_OPINIONS
        names = ", ".join([self._silent[at].rule for at in combined.decisive])
        if combined.is_empty:
            return f"{names}: {_EMPTY_SCOPE}"
        words = reasons(heard, combined.decisive)
        return f"{names}: {words}" if words else names


def _ask(call: Rule | RuleFunction, case: Case, at: int, policy: Policy, time_limit: TimeLimit) -> Heard:
    try:
        opinion = time_limit.run(lambda: call(case))
    except (KeyboardInterrupt, TimeLimitError):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a rule raises, sys.exit() too, refuses
        is_told = isinstance(error, RefusedError) and error.code == "CONDITION_FAILED"  # in words of ours
        return RuleFault(bounded(str(error)) if is_told else told(error))
    if opinion is None or type(opinion) in OPINIONS:
        return opinion
    return RuleFault(nonsense(policy.rules[at].name, opinion))


def _check(name: str, rules: Sequence[Rule], version: str | None) -> None:
    if not is_name(name):
        raise RefusedError(
            "INVALID_POLICY",
            f"{name!r:.80} cannot name a policy: take up to {MAX_NAME} letters, digits and _ . : / -.",
        )
    if version is not None and not isinstance(version, str):
        raise RefusedError("INVALID_POLICY", f"The version of the policy {name!r} must be a text.", policy=name)
    if len(rules) > MAX_RULES:
        raise RefusedError(
            "INVALID_POLICY",
            f"The policy {name!r} has {len(rules)} rules; the limit is {MAX_RULES}.",
            policy=name,
            limit=MAX_RULES,
        )
    names = [one.name for one in rules]
    twice = sorted({one for one in names if names.count(one) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise RefusedError(
            "INVALID_POLICY",
            f"Two rules of the policy {name!r} are called {', '.join(twice)}; give each a name of its own, "
            'for instance by @rule("name").',
            policy=name,
            rules=twice,
        )


def _described(name: str, rules: Sequence[Rule], sources: Sequence[RuleSource], version: str | None) -> dict[str, Any]:
    described: dict[str, Any] = {"name": name, "combination": COMBINATION}
    if version is not None:
        described["version"] = version
    described["rules"] = [
        {"rule": one.name, "source": source.label, **_about(one), **source.to_wire()}
        for one, source in zip(rules, sources, strict=True)
    ]
    return described


def _about(one: Rule) -> dict[str, str]:
    description = getattr(one, "description", None)
    return {"description": bounded(description)} if isinstance(description, str) and description else {}

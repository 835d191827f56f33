"""Policies: named rules and their combined ruling.

Every rule is evaluated, in order, so that the trace is complete; ``authority.policies.combine`` combines the opinions.
A rule that raises or returns no opinion is an error in the trace, and errors reject; so is one that exceeds its time
limit, after which the remaining rules are not evaluated. A policy is identified by the ordered list of its rules, each
with its identity (``authority.policies.rule_identity``), and by the combination. The reasons of rulings are recorded
and compared by rechecks; they must not change. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from msgspec.structs import replace

from authority.bounded_text import MAX_NAME, bounded, error_text, is_name
from authority.evaluations import EARLIER, EVALUATION, evaluation_of
from authority.people.answers import QuestionSettings, ask_next_step
from authority.people.questions import Question, unanswerable, who_decides
from authority.policies.combine import COMBINATION, Combined, combine, reasons
from authority.policies.opinions import OPINIONS, Escalate, Narrow, RuleFault, RuleResult
from authority.policies.rule_guard import RuleGuard, is_python
from authority.policies.rule_identity import rule_identity
from authority.policies.rules import PythonRule, Rule, RuleFunction, check_rule, nonsense
from authority.policies.source_hash import RuleSource, source_of
from world.code.time_limit import TimeLimit, TimeLimitError, breakable
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.decision import RuleOutcome, Ruling
from world.model.identity import RULES_IDENTITY, policy_hash
from world.model.immutable_json import FrozenDict
from world.model.short_repr import short_repr
from world.state.ports import Case

MAX_RULES: Final = 1_000
"""Maximum number of rules in one policy."""

TIMED_OUT: Final = "RULE_TIMED_OUT"
"""Prefix of the reason of a rule that exceeded its time limit or was not evaluated after one that did."""

_NO_TIME_LIMIT: Final = TimeLimit()
NO_OPINIONS: Final = "no rule approved it: rejected by default"
"""Reason of a rejection without any opinion."""

_IDENTITY_MEMBERS: Final = frozenset({"identity", "distributions", "hash"})
"""Members of a description that earlier releases did not record, and the hash."""

_EMPTY_SCOPE: Final = "the narrowings leave nothing of the proposed scope to write"


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules under a name.

    Args:
        name: its name in bindings: letters, digits and ``_ . : / -``.
        rules: the rules in the order of evaluation; their names are unique. Without any, everything is rejected.
        version: the author's version, part of the hash.

    Attributes:
        description: name, hash and every rule with its source, as JSON; recorded when it is adopted.
        hash: SHA-256 of name, version, combination and the rules' identities, which identifies the policy in decisions.

    Raises:
        RefusedError: ``INVALID_POLICY`` for an invalid name, duplicate names of rules, or more than ``MAX_RULES``;
            ``INVALID_RULE`` for an object that is not a rule.
    """

    name: str
    rules: tuple[Rule, ...] = field(hash=False)
    version: str | None = field(default=None, kw_only=True)
    description: FrozenDict = field(init=False, repr=False, compare=False)
    hash: str = field(init=False)
    _calls: tuple[Rule | RuleFunction, ...] = field(init=False, repr=False, compare=False)
    _guarded: tuple[bool, ...] = field(init=False, repr=False, compare=False)
    _silent: tuple[RuleOutcome, ...] = field(init=False, repr=False, compare=False)
    _authority: str = field(init=False, repr=False, compare=False)

    def __init__(self, name: str, rules: Iterable[Rule], *, version: str | None = None) -> None:
        """Check the rules and read their sources, so that evaluations read no files."""
        rules = tuple(check_rule(one) for one in rules)
        _check(name, rules, version)
        sources = [source_of(one) for one in rules]
        described = _described(name, rules, sources, version)
        hash_ = policy_hash(described)
        self._set(name, rules, version, sources, {**described, "hash": hash_})

    def _set(
        self,
        name: str,
        rules: tuple[Rule, ...],
        version: str | None,
        sources: Sequence[RuleSource],
        description: Mapping[str, Any],
    ) -> None:
        is_guarded = evaluation_of(description) == EVALUATION
        silent = tuple(RuleOutcome(one.name, source.label, "none") for one, source in zip(rules, sources, strict=True))
        for attribute, value in (
            ("name", name),
            ("rules", rules),
            ("version", version),
            ("hash", description["hash"]),
            ("description", FrozenDict(description)),
            ("_calls", tuple(one.function if type(one) is PythonRule else one for one in rules)),
            ("_guarded", tuple(is_guarded and is_python(one) for one in rules)),
            ("_silent", silent),
            ("_authority", f"policy_rules:{name}"),
        ):
            object.__setattr__(self, attribute, value)

    def __repr__(self) -> str:
        return short_repr(
            self, self.name, f"hash {self.hash[:12]}", "rules: " + ", ".join(one.name for one in self.rules)
        )

    def hashed_like(self, recorded: Mapping[str, Any]) -> Policy:
        """Return the policy as a recorded description identifies it.

        Args:
            recorded: a description; of one from an earlier release, the hash covers texts, lines and whole files.

        Returns:
            The policy, or an equal one whose description, hash and evaluation are of the earlier form.
        """
        identity = recorded.get("identity")
        if identity == RULES_IDENTITY:
            return self
        if identity is None:
            earlier = {name: part for name, part in self.description.items() if name not in _IDENTITY_MEMBERS}
            earlier["rules"] = [
                {name: part for name, part in one.items() if name != "identity"} for one in self.description["rules"]
            ]
        else:
            earlier = {name: part for name, part in self.description.items() if name != "hash"}
            earlier["identity"] = identity
        policy = object.__new__(Policy)
        rules = tuple(_evaluated_by(one, EARLIER) for one in self.rules)
        sources = [source_of(one) for one in rules]
        policy._set(self.name, rules, self.version, sources, {**earlier, "hash": policy_hash(earlier)})
        return policy

    def evaluate(self, case: Case, settings: QuestionSettings, time_limit: TimeLimit = _NO_TIME_LIMIT) -> Ruling:
        """Return the ruling on a case.

        Args:
            case: the proposal as input of an authority.
            settings: the actors and time limit of questions where a rule escalates and names no actors.
            time_limit: for each rule.

        Raises:
            RefusedError: ``SCOPE_TOO_LARGE`` or ``INVALID_VALUE`` where scopes cannot be narrowed.
        """
        results = self._results(case, time_limit)
        combined = combine(results, case.intent.body.scope_proposal, case.scope_rules)
        trace = self._trace(results, combined, settings)
        if combined.verdict == "wait":
            return self._waiting(case, trace, combined, settings)
        return Ruling(
            combined.verdict,
            self._authority,
            self._reason(results, combined),
            combined.scope,
            trace,
            self.hash,
        )

    def _results(self, case: Case, time_limit: TimeLimit) -> list[RuleResult]:
        limit = None if time_limit.is_free else time_limit
        if not any(self._guarded):
            return self._answers(case, limit, None)
        with RuleGuard(case) as guard:
            return self._answers(guard.case, limit, guard)

    def _answers(self, case: Case, limit: TimeLimit | None, guard: RuleGuard | None) -> list[RuleResult]:
        results: list[RuleResult] = []
        for at, call in enumerate(self._calls):
            try:
                results.append(_ask(call, case, self.rules[at].name, limit, guard if self._guarded[at] else None))
            except TimeLimitError as late:
                results.append(RuleFault(f"{TIMED_OUT}: {late}"))
                rest = len(self._calls) - len(results)
                return (
                    results + [RuleFault(f"{TIMED_OUT}: it was not asked, {self.rules[at].name} took too long")] * rest
                )
        return results

    def _trace(
        self, results: Sequence[RuleResult], combined: Combined, settings: QuestionSettings
    ) -> tuple[RuleOutcome, ...]:
        decisive = combined.decisive
        outcomes: list[RuleOutcome] = []
        for at, silent in enumerate(self._silent):
            result = results[at]
            if result is None:
                outcomes.append(silent)
                continue
            outcomes.append(
                RuleOutcome(
                    silent.rule,
                    silent.source,
                    result.answer,
                    result.reason,
                    result.scope if type(result) is Narrow else None,
                    (result.to or settings.ask) if type(result) is Escalate else (),
                    result.quorum if type(result) is Escalate else None,
                    at in decisive,
                )
            )
        return tuple(outcomes)

    def _waiting(
        self, case: Case, trace: tuple[RuleOutcome, ...], combined: Combined, settings: QuestionSettings
    ) -> Ruling:
        asks = [trace[at] for at in combined.decisive]
        proposer = case.actor.actor_id
        for outcome in asks:
            why = unanswerable(outcome.to, outcome.quorum, proposer)
            if why is not None:
                decided = tuple(replace(other, decisive=other is outcome) for other in trace)
                rejected = Ruling("reject", self._authority, f"{outcome.rule}: {why}", None, decided, self.hash)
                return ask_next_step(case, rejected, settings, trace)
        questions = [Question.put(outcome.to, outcome.quorum, proposer) for outcome in asks]
        words = "; ".join(f"{outcome.rule}: {outcome.reason or 'people decide'}" for outcome in asks)
        return Ruling(
            verdict="wait",
            authority=self._authority,
            reason=f"{words} ({who_decides(questions)})",
            trace=trace,
            policy_hash=self.hash,
            ask=tuple(dict.fromkeys(actor_id for question in questions for actor_id in question.pending)),
            timeout_ms=settings.timeout_ms,
            on_timeout=settings.on_timeout,
        )

    def _reason(self, results: Sequence[RuleResult], combined: Combined) -> str:
        if combined.answer == "none":
            return NO_OPINIONS
        decisive = combined.decisive
        if len(decisive) == 1:
            names = self._silent[decisive[0]].rule
        else:
            names = ", ".join([self._silent[at].rule for at in decisive])
        if combined.is_empty:
            return f"{names}: {_EMPTY_SCOPE}"
        words = reasons(results, combined.decisive)
        return f"{names}: {words}" if words else names


def _ask(
    call: Rule | RuleFunction, case: Case, name: str, limit: TimeLimit | None, guard: RuleGuard | None
) -> RuleResult:
    try:
        opinion, impure = _called(call, case, limit, guard)
    except (KeyboardInterrupt, TimeLimitError):
        raise
    except BaseException as error:  # noqa: BLE001 - every exception of a rule rejects, SystemExit included
        is_own = isinstance(error, RefusedError) and error.code == "CONDITION_FAILED"  # a text of the engine
        return RuleFault(bounded(str(error)) if is_own else error_text(error))
    if impure is not None:
        return RuleFault(bounded(impure))
    if opinion is None or type(opinion) in OPINIONS:
        return cast(RuleResult, opinion)
    return RuleFault(nonsense(name, opinion))


def _called(
    call: Rule | RuleFunction, case: Case, limit: TimeLimit | None, guard: RuleGuard | None
) -> tuple[Any, str | None]:
    """Return the answer of a rule, and the reason of its fault where it was impure."""
    if guard is None:
        return (call(case) if limit is None else limit.run(lambda: call(case))), None
    if limit is None:
        return guard.call(call, case)
    # Only the rule is interrupted: the code that ends the watch of the call must complete.
    return limit.run(lambda: guard.call(breakable, lambda: call(case)), unbroken=True)


def _evaluated_by(rule: Rule, evaluation: int) -> Rule:
    """Return a rule of a policy file with its condition under another evaluation; any other as it is."""
    evaluated_by = (
        getattr(rule, "evaluated_by", None) if isinstance(getattr(rule, "source", None), RuleSource) else None
    )
    return rule if evaluated_by is None else cast(Rule, evaluated_by(evaluation))


def _check(name: str, rules: Sequence[Rule], version: str | None) -> None:
    if not is_name(name):
        raise RefusedError(
            ErrorCode.INVALID_POLICY,
            f"{name!r:.80} cannot name a policy: take up to {MAX_NAME} letters, digits and _ . : / -.",
        )
    if version is not None and not isinstance(version, str):
        raise RefusedError(ErrorCode.INVALID_POLICY, f"The version of the policy {name!r} must be a text.", policy=name)
    if len(rules) > MAX_RULES:
        raise RefusedError(
            ErrorCode.INVALID_POLICY,
            f"The policy {name!r} has {len(rules)} rules; the limit is {MAX_RULES}.",
            policy=name,
            limit=MAX_RULES,
        )
    names = [one.name for one in rules]
    twice = sorted({one for one in names if names.count(one) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise RefusedError(
            ErrorCode.INVALID_POLICY,
            f"Two rules of the policy {name!r} are called {', '.join(twice)}; give each a name of its own, "
            'for instance by @rule("name").',
            policy=name,
            rules=twice,
        )


def _described(name: str, rules: Sequence[Rule], sources: Sequence[RuleSource], version: str | None) -> dict[str, Any]:
    described: dict[str, Any] = {"name": name, "combination": COMBINATION, "identity": RULES_IDENTITY}
    if version is not None:
        described["version"] = version
    identities = [rule_identity(one, source) for one, source in zip(rules, sources, strict=True)]
    distributions = {name: version for one in identities for name, version in one.distributions.items()}
    if distributions:
        described["distributions"] = dict(sorted(distributions.items()))
    described["rules"] = [
        {"rule": one.name, "source": source.label, **_about(one), **source.to_wire(), "identity": identity.text}
        for one, source, identity in zip(rules, sources, identities, strict=True)
    ]
    return described


def _about(one: Rule) -> dict[str, str]:
    description = getattr(one, "description", None)
    return {"description": bounded(description)} if isinstance(description, str) and description else {}

"""``worldctl policy test``: cases in a file beside a policy, what differs, and what they cover."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted

if TYPE_CHECKING:
    from authority import Policy
    from world.core import Domain
    from worldprotocol.api.config import Config
    from worldprotocol.testing.coverage_rules import RuleCoverage
    from worldprotocol.testing.suites import CaseResult, Suite


@command("test")
@click.argument("files", nargs=-1, metavar="[FILE ...]")
@click.option("--cases", "given", metavar="FILE", help="The cases, where they are not beside the policy.")
@click.option("--coverage", is_flag=True, help="Show which rules and branches the cases reach.")
@click.option("--fail-uncovered", is_flag=True, help="Exit code 1, too, where no case reaches a rule or a branch.")
@click.option("--from", "proposal", metavar="PROPOSAL", help="Print a recorded proposal as a case for a file instead.")
@click.option(
    "--format", "form", type=click.Choice(["toml", "yaml"]), default="toml", show_default=True, help="Of --from."
)
def test(
    desk: CommandContext,
    files: tuple[str, ...],
    given: str | None,
    coverage: bool,
    fail_uncovered: bool,
    proposal: str | None,
    form: Any,
) -> int:
    """Judge the cases of policies and report where the result is not the expected one.

    FILE is a policy file such as rules.toml, a reference such as rules.py:house, the name of a policy of world.toml,
    or a file of cases; without any, all policies of world.toml are tested that have cases. Those of rules.toml stand in
    rules.cases.toml (or .yaml, .json) beside it, those of rules.py:house in house.cases.toml or rules.cases.toml.
    Needs no log, but for --from. Exit code 1 when something differs.
    """
    from worldprotocol.cli.support.opening import admit_code

    if given is not None and len(files) != 1:
        raise click.UsageError("--cases FILE goes with the one policy that these cases test.")
    if proposal is not None and files:
        raise click.UsageError("--from prints the case of one proposal, and takes no FILE.")
    config = desk.settings()
    admit_code(desk, config)
    if proposal is not None:
        return _print_case(desk, config, proposal, form)
    suites = _suites(config, files, None if given is None else Path(given))
    rendered = [_tested(desk, group, covering=coverage or fail_uncovered, strict=fail_uncovered) for group in suites]
    if desk.json:
        desk.out.document(_wire(rendered))
    else:
        for one in rendered:
            _print(desk, one, coverage=coverage)
    differs = any(case.differs for one in rendered for case in one.cases)
    return 1 if differs or (fail_uncovered and any(one.uncovered for one in rendered)) else 0


class _Tested(NamedTuple):
    """Results of the cases of one policy."""

    suites: list[Suite]
    cases: list[CaseResult]
    covered: list[RuleCoverage] | None

    @property
    def uncovered(self) -> list[dict[str, str]]:
        """What no case reached."""
        return [row for one in self.covered or () for row in one.uncovered()]


def _suites(config: Config, files: tuple[str, ...], given: Path | None) -> list[list[Suite]]:
    """Return the cases of each policy."""
    from world.errors import RefusedError
    from worldprotocol.policy_tools.cases import is_case_file
    from worldprotocol.testing.suites import suite_of

    domain = _domain(config)
    found: list[list[Suite]] = []
    for name in files or map(str, config.policies):
        if is_case_file(name):
            found.append([suite_of(Path(name), domain=domain)])
            continue
        policy, paths = _policy(config, name, is_typed=bool(files))
        paths = paths if given is None else [given]
        if paths:
            found.append([suite_of(path, policy=policy, domain=domain) for path in paths])
        elif files:
            found.clear()
            break
    if not found:
        of = f"There are no cases of {name}" if files else "No policy of world.toml has cases"
        raise RefusedError(
            ErrorCode.NO_CASES,
            f"{of}; write some beside it, into rules.cases.toml for rules.toml, or name their file with --cases.",
        )
    return found


def _domain(config: Config) -> Domain | None:
    from worldprotocol.api.bootstrap import load_any_domain

    return None if config.domain is None else load_any_domain(config.domain, base=config.folder)


def _policy(config: Config, name: str, *, is_typed: bool) -> tuple[Policy, list[Path]]:
    """Return a policy and its files of cases; what is typed starts here, what world.toml names at its folder."""
    from authority import is_policy_file
    from authority.policies.loading import policy_from_reference
    from worldprotocol.policy_tools.hypothetical import policy_named
    from worldprotocol.testing.suites import cases_beside

    if not is_typed:
        policy = policy_from_reference(name, base=config.folder)
        return policy, cases_beside(name, config.folder)
    policy = policy_named(name, config.policies, config.folder)
    if is_policy_file(name):
        return policy, cases_beside(name, Path())
    for reference in map(str, config.policies):
        if policy_from_reference(reference, base=config.folder).name == name:
            return policy, cases_beside(reference, config.folder)
    return policy, cases_beside(name, Path())


def _tested(desk: CommandContext, suites: list[Suite], *, covering: bool, strict: bool) -> _Tested:
    from world.errors import RefusedError
    from worldprotocol.testing.suites import run

    try:
        return _Tested(suites, *run(suites, covering=covering, lines=covering))
    except RefusedError as refused:
        if refused.code != "COVERAGE_MISSING" or strict:
            raise
        desk.out.remark(refused.message)
        return _Tested(suites, *run(suites, covering=covering, lines=False))


def _wire(rendered: list[_Tested]) -> dict[str, Any]:
    from world.model.record import to_wire

    cases = [case for one in rendered for case in one.cases]
    return {
        "policies": [
            {
                "policy": one.suites[0].policy.name,
                "hash": one.suites[0].policy.hash,
                "files": [str(suite.file.path) for suite in one.suites],
                "cases": [case.to_wire() for case in one.cases],
                **({} if one.covered is None else {"coverage": to_wire(one.covered), "uncovered": one.uncovered}),
            }
            for one in rendered
        ],
        "cases": len(cases),
        "differing": sum(bool(case.differs) for case in cases),
    }


def _print(desk: CommandContext, rendered: _Tested, *, coverage: bool) -> None:
    policy = rendered.suites[0].policy
    files = ", ".join(suite.file.path.name for suite in rendered.suites)
    desk.out.text(f"{policy.name} {policy.hash[:12]}, {files}")
    for case in rendered.cases:
        for line in _case_lines(case):
            desk.out.text(line)
    if coverage and rendered.covered is not None:
        for line in _coverage_lines(rendered.covered):
            desk.out.text(line)
    for one in rendered.uncovered:
        desk.out.text(f"  uncovered {one['rule']} [{one['source']}] {one['what']}")
    differing = sum(bool(case.differs) for case in rendered.cases)
    words = f"{differing} {'differs' if differing == 1 else 'differ'}"
    desk.out.text(f"{counted(len(rendered.cases), 'case')}, {words}")


def _case_lines(case: CaseResult) -> Iterator[str]:
    """Yield the result of a case; where it differs, also the answer of every rule."""
    from worldprotocol.json_text import as_text

    place = f" [{case.file}:{case.line}]" if case.differs else ""
    yield f"  {'DIFFERS' if case.differs else 'ok':<9} {case.name}: {case.judged.decision}{place}"
    for one in case.differs:
        yield f"            {one.what}: expected {as_text(one.expected)}, was {as_text(one.was)}"
    if case.differs:
        yield from (f"  {line}" for line in case.judged.lines())


def _coverage_lines(covered: list[RuleCoverage]) -> Iterator[str]:
    for one in (rule.to_wire() for rule in covered):
        counts = ", ".join(f"{name} {one[name]}" for name in ("decided", "matched", "silent", "failed"))
        yield f"  rule      {one['rule']} [{one['source']}]: {counts}"
        for way in one["branches"]:
            yield f"            {way['count']:>5} {way['branch']}"
        for part in one.get("python", ()):
            yield f"            {part['lines'] - len(part['missing'])} of {part['lines']} lines in {part['file']}"


def _print_case(desk: CommandContext, config: Config, given: str, form: Literal["toml", "yaml"]) -> int:
    """Print a recorded proposal as a case; the loaded domain and policy determine its content."""
    from worldprotocol.api.lookup.id_lookup import proposal_id
    from worldprotocol.policy_tools.hypothetical import policy_named
    from worldprotocol.testing.recorded import judging_policy, recorded_case
    from worldprotocol.testing.writing import case_text

    with desk.look() as world:
        proposal = world.proposal(proposal_id(world, given))
        policy = policy_named(judging_policy(world.archive, proposal), config.policies, config.folder)
        case = recorded_case(world.archive, proposal, policy, _domain(config))
    if desk.json:
        desk.out.document(case)
    else:
        desk.out.text(case_text(case, form).rstrip("\n"), laid_out=True)
    return 0

"""``worldctl policy lint``: what is wrong with policies, with file and line, without a case."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from worldprotocol.cli.support.command_context import CommandContext, command

if TYPE_CHECKING:
    from authority.lint.lint import LintFinding
    from world.core import DomainSchema
    from world.state.realm_view import RealmView
    from worldprotocol.api.config import Config


@command("lint")
@click.argument("policies", nargs=-1, metavar="[FILE|NAME]...")
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings, too.")
def lint(desk: CommandContext, policies: tuple[str, ...], *, strict: bool) -> int:
    """Say what is wrong with policies; without arguments, with all that world.toml names.

    Found are files that cannot be read, names that the domain and the realm do not have, conditions that are constant,
    rules that contradict each other or never matter, and questions without an addressee. Nothing is changed. Exit code
    1 when there are errors.
    """
    from authority.policies.loading import policy_from_reference
    from worldprotocol.cli.commands.policy.show import at_hand
    from worldprotocol.cli.support.opening import admit_code
    from worldprotocol.cli.support.output import counted
    from worldprotocol.policy_tools.lint import Linting

    config = desk.settings()
    admit_code(desk, config)
    load = at_hand(desk) if policies else partial(policy_from_reference, base=config.folder)
    linting = Linting(load, _schema(desk, config), _realm(desk))
    found = [(one, linting.findings(one)) for one in policies or config.policies]
    every = [finding for _, findings in found for finding in findings]
    counts = {f"{level}s": sum(one.level == level for one in every) for level in ("error", "warning")}
    if desk.json:
        rendered = [{"policy": one, "findings": [finding.to_wire() for finding in findings]} for one, findings in found]
        desk.out.document({"policies": rendered, **counts})
    else:
        for finding in every:
            desk.out.text(words_of_finding(finding))
        words = ", ".join(counted(counts[f"{level}s"], level) for level in ("error", "warning"))
        desk.out.text(f"{'1 policy' if len(found) == 1 else f'{len(found)} policies'}: {words}")
    return 1 if counts["errors"] or (strict and counts["warnings"]) else 0


def unconfined_approvals_of(desk: CommandContext, name: str) -> list[LintFinding]:
    """Return the rules of a loaded policy whose approvals ask a person, because nothing is confined by them.

    Args:
        desk: the command's context.
        name: the policy.
    """
    from authority.lint.lint import unconfined_approvals
    from world.errors import RefusedError
    from worldprotocol.api.bootstrap import load_any_domain
    from worldprotocol.cli.commands.policy.show import at_hand

    config = desk.settings()
    try:
        policy = at_hand(desk)(name)
        schema = None if config.domain is None else load_any_domain(config.domain, base=config.folder).schema
    except RefusedError:  # the adoption refuses it, or judges by what is loaded elsewhere
        return []
    return [finding for rule in policy.rules for finding in unconfined_approvals(rule, schema)]


def words_of_finding(finding: LintFinding) -> str:
    """Return a finding as one line."""
    place = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
    about = "" if finding.rule is None else f"{finding.rule}: "
    return f"{place}: {finding.level}: {about}{finding.message} [{finding.check}]"


def _schema(desk: CommandContext, config: Config) -> DomainSchema | None:
    from world.errors import RefusedError
    from worldprotocol.api.bootstrap import load_any_domain

    if config.domain is None:
        desk.out.remark("No domain is named in world.toml: actions and paths are not checked.")
        return None
    try:
        return load_any_domain(config.domain, base=config.folder).schema
    except RefusedError as refused:
        desk.out.remark(f"The domain cannot be loaded, so actions and paths are not checked: {refused.message}")
        return None


def _realm(desk: CommandContext) -> RealmView | None:
    from world.errors import RefusedError

    try:
        with desk.look() as world:
            return world.realm()
    except RefusedError as refused:
        desk.out.remark(f"The realm cannot be looked at, so actors are not checked: {refused.message}")
        return None

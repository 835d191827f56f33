"""What the process of a job does: the analyses of ``worldctl verify``, ``recheck``, ``whatif`` and ``policy backtest``.

Each takes the program of the realm and the options of the request, yields lines as the command's ``--json`` does, and
returns the document or the last line.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from world.audit.verify import verify
from world.clock import SystemClock
from world.code.named_modules import admit
from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.analysis.backtest import Backtest, BacktestSetup, CaseSelection, check_judged
from worldprotocol.analysis.counterfactual import Insertion, WhatIf, start_of, what_if
from worldprotocol.analysis.recheck.environment_variation import RUNS, recheck_varied
from worldprotocol.analysis.recheck.whole_log import RecheckSetup, recheck_log
from worldprotocol.analysis.work.workers import Workers
from worldprotocol.api.config import Config
from worldprotocol.api.lookup.point_in_time import point_of
from worldprotocol.api.read_only import open_for_reading
from worldprotocol.api.realm import Realm
from worldprotocol.api.time_parsing import moment_of
from worldprotocol.export.jsonl import read_heads
from worldprotocol.policy_tools.hypothetical import policy_named
from worldprotocol.server.jobs.program import RealmProgram

__all__ = ["TASKS", "Progress", "Task"]

Progress = Callable[[int, int], None]
Options = Mapping[str, Any]
Lines = Generator[dict[str, Any], None, dict[str, Any]]
Task = Callable[[RealmProgram, Options, Path, Progress], Lines]


def _verify(program: RealmProgram, options: Options, _folder: Path, progress: Progress) -> Lines:
    yield from ()
    saved = read_heads([one.encode() for one in options["against"]])
    with open_for_reading(program.address) as log:
        return verify(log, against=saved, progress=progress).to_wire()


def _recheck(program: RealmProgram, options: Options, _folder: Path, progress: Progress) -> Lines:
    yield from ()
    config = _admitted(program)
    after, upto = 0, options["upto"]
    if options["at"] is not None or options["proposal"] is not None:
        with Realm.open_read_only(program.address) as realm:
            if options["at"] is not None:
                upto = point_of(realm, options["at"]).position
            else:
                after, upto = _steps_of(realm, options["proposal"])
    projections, policies = tuple(config.projections), tuple(config.policies)
    setup = RecheckSetup(
        program.address, str(config.domain), projections, policies, config.folder, every=options["all"]
    )
    jobs = options["jobs"]
    if options["vary"] or options["runs"] is not None:
        runs = options["runs"] or RUNS
        return recheck_varied(setup, options["vary"], runs=runs, upto=upto, jobs=jobs, progress=progress).to_wire()
    found = recheck_log(setup, after=after, upto=upto, workers=Workers(jobs), progress=progress).to_wire()
    return found if options["proposal"] is None else {**found, "after": after}


def _steps_of(realm: Realm, proposal_id: str) -> tuple[int, int]:
    """Return the stretch with the steps of a proposal: from its projection, before its submission, to its last event.

    Raises:
        RefusedError: ``UNKNOWN_PROPOSAL``.
    """
    realm.proposal(proposal_id)
    events = realm.log.stream(proposal_id)
    return max(0, events[0].position - 2), events[-1].position


def _what_if(program: RealmProgram, options: Options, folder: Path, progress: Progress) -> Lines:
    config = _admitted(program)
    with Realm.open_read_only(program.address) as realm:
        start, dropped = start_of(realm, options["from"], options["drop"])
    references = tuple(config.policies)
    named = [*options["policies"], *_written(options["policyText"], options["policyFormat"], folder)]
    question = WhatIf(
        address=program.address,
        domain=str(config.domain),
        start=start,
        drop=dropped,
        policies=[policy_named(one, references, config.folder) for one in named],
        insert=[_insertion(one) for one in options["insert"]],
        at_hand=references,
        folder=config.folder,
        limits=config.chosen_limits(),
    )
    lines = list(what_if(question, progress).lines())
    yield from lines[:-1]
    return lines[-1]


def _backtest(program: RealmProgram, options: Options, folder: Path, progress: Progress) -> Lines:
    config = _admitted(program)
    with Realm.open_read_only(program.address) as realm:
        if options["branch"] is not None:
            realm.branch(options["branch"])
        if options["of"] is not None:
            check_judged(realm, options["of"])
    [policy] = _written(options["policyText"], options["policyFormat"], folder) or [options["policy"]]
    since, until = _moment(options["since"]), _moment(options["until"])
    setup = BacktestSetup(
        address=program.address,
        domain=str(config.domain),
        policy=policy,
        policies=tuple(config.policies),
        folder=config.folder,
        wanted=CaseSelection(since, until, options["branch"], options["of"]),
        limits=config.chosen_limits(),
        last=options["last"],
    )
    running = Backtest(setup, Workers(options["jobs"]), progress)
    yield from running.lines()
    return running.summary()


TASKS: Final[Mapping[str, Task]] = {
    "verify": _verify,
    "recheck": _recheck,
    "whatif": _what_if,
    "backtest": _backtest,
}
"""The task of each kind of job."""


def _admitted(program: RealmProgram) -> Config:
    """Return the configuration of a realm whose modules can be imported afterwards."""
    config = program.composed
    admit([*filter(None, [config.domain]), *config.projections, *config.policies, *config.effects], config.folder)
    return config


def _written(text: str | None, form: str, folder: Path) -> Sequence[str]:
    """Return the file with the text of a policy, none without a text."""
    if text is None:
        return []
    file = folder / f"policy.{form}"
    file.write_text(text, encoding="utf-8")
    return [str(file)]


def _insertion(wire: Mapping[str, Any]) -> Insertion:
    body = {name: wire[name] for name in ("type", "input", "scopeProposal") if name in wire}
    return Insertion(wire["actor"], body, wire.get("branch"), _moment(wire.get("at")))


def _moment(text: str | None) -> int | None:
    """Return ms since 1970 of a time.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if text is None:
        return None
    try:
        return moment_of(text, SystemClock().now_ms())
    except ValueError as wrong:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"{wrong}.") from None

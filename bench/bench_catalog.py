"""What an action catalog costs, beside a bare evaluation of its predicates.

Usage: ``python -m bench catalog [--seconds S]``. A catalog of 50 and of 1,000 actions is made over one state, again and
again: every predicate is looked at, evaluated, pruned, sorted, named by its hash and shown. In turns with it the same
compiled predicates are evaluated alone. One in ten actions reads a key of the actor that is absent; in the second
line one in ten has a local function as its predicate, which is called twice under watch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from bench.bench_seal import median_us
from projections.availability import Decider
from projections.catalog import CatalogProjector, CatalogRequest, static_catalog
from projections.descriptors import ActionDescriptor
from world.core import LocalPredicate
from world.model.actor import ActorRef
from world.model.immutable_json import freeze
from world.model.snapshot import SnapshotView

SIZES = (50, 1_000)


def predicate(number: int) -> dict[str, Any]:
    """Return an ordinary predicate: a comparison and a computed value, for some actions the actor's role too."""
    compared = {
        "kind": "gte",
        "left": {"kind": "get", "path": f"stock.item{number % 20}"},
        "right": {"kind": "lit", "value": number % 7},
    }
    parts: list[Any] = [compared, {"kind": "get", "path": "computed.isOpen"}]
    if number % 10 == 0:
        role = {"kind": "get", "path": "meta.actor.meta.role"}
        parts.append({"kind": "eq", "left": role, "right": {"kind": "lit", "value": "admin"}})
    return {"kind": "and", "args": parts}


def request(count: int, *, functions: bool) -> CatalogRequest:
    """Return a request for so many actions; with functions, one predicate in ten is one."""
    actions = []
    for number in range(count):
        available: Any = predicate(number)
        if functions and number % 10 == 5:
            available = LocalPredicate(lambda ctx: ctx.data["stock"]["item5"] > 0, "in_stock")
        shape = {"type": "object", "properties": {"count": {"type": "number"}}, "required": ["count"]}
        name = f"area{number % 13}.action{number}"
        actions.append(ActionDescriptor(name, f"Action {number}", "Does what it is called.", shape, available))
    data = freeze({"stock": {f"item{number}": number % 5 for number in range(20)}})
    view = SnapshotView(data, freeze({"computed.isOpen": True}))
    return CatalogRequest("5c" * 32, view, ActorRef(actor_id="ann", kind="human"), tuple(actions))


def bare(req: CatalogRequest) -> Callable[[], Any]:
    """Return what evaluates the expressions of a request and does nothing else."""
    decider = Decider(req.snapshot, req.actor)
    predicates = [action.predicate.evaluate for action in req.actions if action.predicate is not None]
    return lambda: [evaluate(decider.scope()) for evaluate in predicates]


def measure(count: int, seconds: float) -> None:
    """Print what a catalog of so many actions costs."""
    projector = CatalogProjector()
    plain, local = request(count, functions=False), request(count, functions=True)
    made, alone, listed, watched = median_us(
        lambda: projector.project_action_catalog(plain),
        bare(plain),
        lambda: static_catalog(plain),
        lambda: projector.project_action_catalog(local),
        seconds=seconds,
    )
    print(
        f"{count:>5} actions   catalog {made:>9,.1f} us   predicates alone {alone:>8,.1f} us"
        f"   ratio {made / alone:>5.2f}   without predicates {listed:>8,.1f} us",
        flush=True,
    )
    print(f"{'':>13}   with {count // 10} local functions {watched:>9,.1f} us", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="to measure at each size")
    arguments = parser.parse_args()
    for count in SIZES:
        measure(count, arguments.seconds)


if __name__ == "__main__":
    main()

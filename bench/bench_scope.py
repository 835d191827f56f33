"""Holding patches to a scope: many patterns beside one, at the host, in ``verify`` and where scopes are compared.

Usage: ``python -m bench scope [--patterns N] [--patches N]``. The ratio is that of the time for all patches with many
patterns, the scope compiled anew, to that with one pattern. To reach: 2 times and the compilation of the patterns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from authority import intersection, is_within
from host.enforcement import first_outside
from world.klis.manifest import ENGINE_ONLY, read_manifest
from world.klis.settings import KlisSettings
from world.model.intent import IntentScope
from world.model.patch import set_
from world.model.scope_patterns import Trie, parse_pattern
from world.pipeline.leasing.proposal_manifest import state_resources


def ms(call: Callable[[], object], runs: int = 5) -> float:
    """Return the milliseconds of the fastest of some runs."""
    taken = []
    for _ in range(runs):
        begin = time.process_time()
        call()
        taken.append((time.process_time() - begin) * 1000)
    return min(taken)


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    options.add_argument("--patterns", type=int, default=9_000)
    options.add_argument("--patches", type=int, default=2_000)
    given = options.parse_args()
    many = tuple(f"data.p{number}" for number in range(given.patterns))
    patches = [set_(f"p{given.patterns - 1 - number % given.patterns}", 1) for number in range(given.patches)]
    whole = IntentScope(allowed_paths=("data.*",))
    scope = IntentScope(allowed_paths=many)
    one = ms(lambda: first_outside(whole, patches))
    first_outside(scope, patches)
    held = ms(lambda: first_outside(scope, patches))
    compiled = ms(lambda: Trie([parse_pattern(pattern) for pattern in many]))
    print(f"{given.patches} patches, 1 pattern               {one:9.2f} ms")
    print(f"{given.patches} patches, {given.patterns} patterns, compiled {held:9.2f} ms  ratio {held / one:.2f}")
    print(f"the same, compiled anew              ratio {(compiled + held) / one:.2f}")
    print(f"compiling {given.patterns} patterns              {compiled:9.2f} ms")
    print(f"{given.patterns} patterns within as many         {ms(lambda: is_within(many, many)):9.2f} ms")
    print(f"{given.patterns} patterns intersected with many  {ms(lambda: intersection(many, many)):9.2f} ms")
    claims = [{"predicate": "MUTATES", "resource": resource} for resource in state_resources("main", scope)]
    document = {"ver": "1.0", "session_id": "bench", "agent_id": "bench", "scope": claims}
    manifest = ms(lambda: read_manifest(document, settings=KlisSettings(), wide=ENGINE_ONLY), runs=1)
    print(f"the manifest of {given.patterns} patterns        {manifest:9.2f} ms")


if __name__ == "__main__":
    main()

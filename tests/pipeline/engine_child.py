"""A process that has a proposal run a command, until it is killed: ``engine_child ADDRESS ROOT SCRIPT``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pipeline.workshop import a_workshop, step


def main(address: str, root: str, script: str) -> None:
    with a_workshop(address, Path(root)) as world:
        steps = [step("process.run", argv=[script], shell="sh", cwd="/sub", timeoutMs=600_000)]
        world.act("ann", "run", {"provides": ["PROCESS:sh"], "mutates": ["FILE:/sub/*"], "steps": steps})


if __name__ == "__main__":
    main(*sys.argv[1:])

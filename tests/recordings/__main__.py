"""Records the answers again: ``python -m tests.recordings [TEXT...]``, those of examples whose headings have a text.

Write a heading and its ``$`` lines into a file of ``tests/recordings/examples``, and this adds the answers. The word
``log`` plays the scenes of ``agents.jsonl`` first.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.recordings.performing import new_app, performed, shown_description, shown_help
from tests.recordings.realms import LOGS, play, prepared
from tests.recordings.transcript import FOLDER, read

COMMANDS = ("act.txt", "administer.txt", "look.txt", "prove.txt")
REQUESTS = "requests.txt"
HELP, DESCRIPTION = FOLDER / "help.txt", FOLDER / "openapi.txt"


def write(wanted: list[str]) -> None:
    """Write what is answered now into the files.

    Args:
        wanted: parts of headings, of which an example has one; all examples where none is given.
    """
    app = new_app()
    with tempfile.TemporaryDirectory() as place:
        if "log" in wanted:
            play(Path(place, "played"))
            wanted = [one for one in wanted if one != "log"]
        for name in LOGS:
            Path(place, name).mkdir()
        realms = {name: prepared(name, Path(place, name)) for name in LOGS}
        for file in (*COMMANDS, REQUESTS):
            texts = []
            for number, one in enumerate(read(file)):
                heading = one.text.partition("\n")[0]
                if wanted and not any(part in heading for part in wanted):
                    texts.append(one.text)
                    continue
                folder = Path(place, f"{file}-{number}")
                texts.append(performed(one, realms[one.realm], folder, app if file == REQUESTS else None))
            (FOLDER / file).write_text("\n".join(texts), encoding="utf-8")
    if not wanted:
        HELP.write_text(shown_help(), encoding="utf-8")
        DESCRIPTION.write_text(shown_description(app), encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1:])

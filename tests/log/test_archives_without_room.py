"""Archives and cuts for which there is no room: refused with an error, nothing is lost, and completed when repeated."""

from __future__ import annotations

import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.realms import BenchRealm
from tests.cli.realm import COMMAND, environment
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.log import open_log
from worldprotocol.export.archive.checking import check_archive
from worldprotocol.export.archive.manifest import open_archive

pytestmark = pytest.mark.slow

KIB = 1024


def worldctl(*arguments: str, most_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command whose files may not grow beyond a size; writing more fails as on a full disk."""

    def limit() -> None:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment(),
        preexec_fn=limit,
        check=False,
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log of 400 proposals with a commit each, in one file."""
    file = tmp_path_factory.mktemp("room") / "world.db"
    realm = BenchRealm(str(file), durability="normal")
    for number in range(400):
        realm.grow_by(number)
    realm.close()
    return file


@pytest.fixture(scope="module")
def archive(log: Path) -> Path:
    """Return an archive of that log."""
    folder = log.with_name("archive")
    done = worldctl("archive", str(folder), "--log", str(log), "--keep", "20", "--no-tables")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.requirement("CARD-log")
@pytest.mark.parametrize("most_bytes", [0, 64 * KIB, 400 * KIB])
def test_an_archive_without_room_has_no_name_and_the_next_one_is_whole(
    log: Path, tmp_path: Path, most_bytes: int
) -> None:
    folder = tmp_path / "archive"
    arguments = ("archive", str(folder), "--log", str(log), "--keep", "20", "--no-tables")
    refused = worldctl(*arguments, most_bytes=most_bytes)
    assert refused.returncode == 2
    assert "[INVALID_TARGET]" in refused.stderr
    assert not folder.exists()
    done = worldctl(*arguments)
    assert done.returncode == 0, done.stderr
    check_archive(open_archive(folder), None)
    assert [entry.name for entry in tmp_path.iterdir()] == [folder.name]


@pytest.mark.requirement("CARD-log", "CARD-replay")
def test_a_cut_without_room_loses_nothing_and_is_completed_by_the_next(
    log: Path, archive: Path, tmp_path: Path
) -> None:
    with open_log(str(log), read_only=True) as whole:
        size, root = whole.head().size, whole.root_at(whole.head().size).root_hex
    refused, removed = 0, set[int]()
    for most in (100, 300, 600, 1_000, 1_200, 1_500):
        copy = tmp_path / f"{most}.db"
        shutil.copy(log, copy)
        arguments = ("cut", str(archive), "--log", str(copy), "--keep", "20")
        first = worldctl(*arguments, most_bytes=most * KIB)
        if first.returncode != 0:
            assert first.returncode == 1, first.stderr
            assert "[STORAGE_FULL]" in first.stderr
            refused += 1
        with open_log(str(copy), read_only=True) as left:
            assert verify(left).findings == ()
            assert left.root_at(size).root_hex == root
            removed.add(sum(not row[5] for row in left.audit_rows(0, size)))
        again = worldctl(*arguments)
        assert again.returncode == 0, again.stderr
        proven = worldctl("verify", "--log", str(copy), "--archive", str(archive))
        assert proven.returncode == 0, proven.stdout
    assert refused > 2
    assert len(removed) > 1, removed

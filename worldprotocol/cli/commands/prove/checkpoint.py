"""``worldctl checkpoint``: a signed tree head, and the keys that sign them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, Group, global_options, with_desk
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.result_files import write_key, written
from worldprotocol.cli.support.signing import signed_checkpoint, signing_options, warn_of_names

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm
    from worldprotocol.export.proofs.checkpoint import Checkpoint


class _Checkpoint(Group):
    """A group that does something by itself, and so takes the global options after its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options()


@click.group("checkpoint", cls=_Checkpoint, invoke_without_command=True, no_args_is_help=False)
@signing_options
@click.option("-o", "--out", "file", metavar="FILE", help="Where it goes; an older checkpoint there is replaced.")
@click.pass_context
@with_desk
def checkpoint(
    desk: CommandContext, context: click.Context, keys: tuple[str, ...], origin: str | None, file: str | None
) -> int:
    """Write the tree head of the log as a signed checkpoint (C2SP tlog-checkpoint).

    An older checkpoint in FILE is replaced only if the log continues it.
    """
    from worldprotocol.export.proofs.note import first_key

    if context.invoked_subcommand is not None:
        return 0
    with desk.look() as world:
        older = Path(file) if file is not None and Path(file).exists() else None

        replaced: list[Checkpoint] = []

        def check(unsigned: Checkpoint) -> None:
            if older is not None:
                replaced.append(_continued(world, older, unsigned))

        made, signers = signed_checkpoint(desk, world, None, keys, origin, check=check)
        first_key(signers)
        for old in replaced:
            made = _with_others(made, old)
            _check_readable(Path(str(file)), made)
    warn_of_names(desk, made, signers)
    if written(desk, made.to_text().encode(), file):
        rendered = {
            "file": file,
            "origin": made.origin,
            "size": made.head.size,
            "root": made.head.root_hex,
            "keys": [key.verifier.to_text() for key in signers],
        }
        by = ", ".join(key.name for key in signers)
        desk.out.tell(rendered, f"{file}: {counted(made.head.size, 'event')} of {made.origin}, signed by {by}")
    return 0


def _continued(world: Realm, path: Path, made: Checkpoint) -> Checkpoint:
    """Return an older checkpoint that is replaced: nothing may be signed that contradicts what was signed before."""
    from world.errors import DamagedLogError, RefusedError
    from worldprotocol.export.proofs.checkpoint import read_checkpoint

    try:
        old = read_checkpoint(path.read_bytes())
    except RefusedError as refused:
        raise RefusedError(
            ErrorCode.INVALID_TARGET, f"{path} holds something else than a checkpoint, and stays: {refused.message}"
        ) from None
    if old.origin != made.origin:
        raise RefusedError(
            ErrorCode.WRONG_ORIGIN, f"{path} holds a checkpoint of {old.origin!r}, not of {made.origin!r}."
        )
    size = old.head.size
    if size > made.head.size or world.log.root_at(size) != old.head:
        raise DamagedLogError(
            ErrorCode.SAVED_HEAD_MISMATCH,
            f"The log does not continue the checkpoint in {path}, which is about {counted(size, 'event')}; nothing was "
            "signed. `worldctl verify --against` shows more.",
            position=size,
        )
    return old


def _with_others(made: Checkpoint, old: Checkpoint) -> Checkpoint:
    """Return a checkpoint with the signatures that others, such as witnesses, gave the older one of the same text."""
    from dataclasses import replace

    if old.note.text != made.note.text:
        return made
    others = [one for one in old.note.signatures if one not in made.note.signatures]
    mine = {(one.name, one.key_id) for one in made.note.signatures}
    kept = tuple(one for one in others if (one.name, one.key_id) not in mine)
    return replace(made, note=replace(made.note, signatures=(*made.note.signatures, *kept)))


def _check_readable(path: Path, made: Checkpoint) -> None:
    """Refuse to replace a checkpoint by one that cannot be read any more."""
    from world.errors import RefusedError
    from worldprotocol.export.proofs.checkpoint import read_checkpoint

    try:
        read_checkpoint(made.to_text().encode())
    except RefusedError as refused:
        raise RefusedError(
            ErrorCode.INVALID_TARGET,
            f"{path} cannot take one more signature, and stays: {refused.message} Write to another file.",
            path=str(path),
        ) from None


@checkpoint.command("keygen")
@click.argument("name", metavar="NAME")
@click.option(
    "-o",
    "--out",
    "file",
    default="checkpoint.key",
    show_default=True,
    metavar="FILE",
    help="Where the private key goes; only you can read it.",
)
@with_desk
def keygen(desk: CommandContext, name: str, file: str) -> None:
    """Make a key that signs checkpoints, and print its verifier key.

    NAME should be the origin of the log, such as example.com/shop.
    """
    from worldprotocol.export.proofs.note import SigningKey

    key = SigningKey.generate(name)
    write_key(file, f"{key.to_text()}\n".encode())
    rendered = {"name": name, "verifierKey": key.verifier.to_text(), "file": file}
    desk.out.tell(rendered, rendered["verifierKey"])
    desk.out.remark(f"Publish this verifier key for those that verify; keep {file} secret.")

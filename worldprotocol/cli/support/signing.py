"""Origin and keys of checkpoints, from the options and from ``[checkpoint]`` in ``world.toml``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm
    from worldprotocol.export.proofs.checkpoint import Checkpoint, Trusted
    from worldprotocol.export.proofs.note import SigningKey


def signing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--key`` and ``--origin``."""
    key = click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="FILE",
        help="Private key to sign with; repeatable. Unless given, what world.toml names.",
    )
    origin = click.option(
        "--origin", metavar="LINE", help="Name of the log in the checkpoint, such as example.com/shop."
    )
    return key(origin(function))


def trusting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--vkey`` and ``--origin``."""
    vkey = click.option(
        "--vkey",
        "vkeys",
        multiple=True,
        metavar="KEY",
        help="Verifier key (NAME+ID+KEY) that has to have signed; repeatable.",
    )
    origin = click.option("--origin", metavar="LINE", help="The log that is meant, where no key has its name.")
    return vkey(origin(function))


def trusted(vkeys: Iterable[str], origin: str | None) -> Trusted:
    """Return the keys that a caller trusts.

    Raises:
        RefusedError: ``INVALID_KEY``.
    """
    from worldprotocol.export.proofs.checkpoint import Trusted
    from worldprotocol.export.proofs.note import VerifierKey

    return Trusted(tuple(VerifierKey.parse(one) for one in vkeys), origin)


def origin_of(desk: CommandContext, world: Realm, origin: str | None) -> str:
    """Return the origin that was given or configured, else the one made of the log's id.

    Raises:
        RefusedError: ``NO_CONFIG``, ``INVALID_CONFIG``, ``NO_SUCH_EVENT``.
    """
    from worldprotocol.export.proofs.checkpoint import default_origin

    configured = desk.settings().checkpoint
    return origin or (configured and configured.origin) or default_origin(world.log)


def signed_checkpoint(
    desk: CommandContext,
    world: Realm,
    size: int | None,
    files: Iterable[str],
    origin: str | None,
    *,
    check: Callable[[Checkpoint], object] = lambda _unsigned: None,
) -> tuple[Checkpoint, list[SigningKey]]:
    """Return the checkpoint over the first events of a log, signed with the keys in the files or in the configuration.

    Args:
        desk: of the command.
        world: whose log it is.
        size: how many events; None takes all.
        files: private keys; where none is given, the one that the configuration names, if it does.
        origin: the log's name in it; None takes the configured one, else one made of the log's id.
        check: refuses what must not be signed, before any key signs it.

    Returns:
        The checkpoint and its keys; without keys it is not signed.

    Raises:
        RefusedError: ``FILE_UNREADABLE``, ``INVALID_KEY``, ``NO_CONFIG``, ``INVALID_CONFIG``, ``INVALID_TARGET``,
            ``INVALID_PROMISE``, ``NOT_A_REAL_LOG``.
        DamagedLogError: ``SAVED_HEAD_MISMATCH`` where a key has signed another history under this name.
    """
    from world.errors import RefusedError
    from worldprotocol.export.proofs.checkpoint import checkpoint_of
    from worldprotocol.export.proofs.promise import SUFFIX, promise

    if world.archive.peek(lambda realm: realm.branched is not None):
        rendered = "This log is hypothetical (`worldctl whatif -o`); it is not signed, and nothing in it is proven."
        raise RefusedError(ErrorCode.NOT_A_REAL_LOG, rendered)
    named = origin_of(desk, world, origin)
    head = world.log.root_at(world.log.head().size if size is None else size)
    paths, noted = [Path(file) for file in dict.fromkeys(files)], None
    config = desk.settings()
    if config.checkpoint is not None:
        if not paths and config.checkpoint.key:
            paths = [config.folder / Path(config.checkpoint.key).expanduser()]
        if config.checkpoint.signed:
            noted = config.folder / Path(config.checkpoint.signed).expanduser()
    check(checkpoint_of(head, named))
    keys = [_read_key(desk, path, named) for path in paths]
    real = [path.resolve() for path in paths]  # so that a key is the same under all of its names
    notes = [noted or path.with_name(path.name + SUFFIX) for path in real]
    promise(zip(notes, (key.verifier for key in keys), strict=True), world.log, named, head)
    return checkpoint_of(head, named, keys), keys


def _read_key(desk: CommandContext, path: Path, origin: str) -> SigningKey:
    """Read a private key as Go's ``note`` writes it, or a PEM of ``worldctl keys new``, named after the origin then.

    Says so where others than its owner can read it.
    """
    from world.errors import RefusedError
    from world.klis.identity.signature import private_key
    from worldprotocol.export.proofs.note import SigningKey, is_key_name

    try:
        rendered, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise RefusedError(
            ErrorCode.FILE_UNREADABLE, f"{path} cannot be read: {error.strerror or error}.", path=str(path)
        ) from None
    if mode & 0o077:
        desk.out.remark(f"Others can read or change the key {path}: `chmod 600` it, and make a new one if they could.")
    try:
        if rendered.startswith(b"PRIVATE+KEY+"):
            return SigningKey.parse(rendered.decode("utf-8", "replace").strip())
        if not is_key_name(origin):
            raise RefusedError(
                ErrorCode.INVALID_KEY, f"a key cannot be named after {origin!r}, which has spaces or a plus sign"
            )
        return SigningKey(origin, private_key(rendered).private_bytes_raw())
    except RefusedError as refused:
        raise RefusedError(ErrorCode.INVALID_KEY, f"{path}: {refused.message}", path=str(path)) from None


def warn_of_names(desk: CommandContext, checkpoint: Checkpoint, keys: Iterable[SigningKey]) -> None:
    """Warn where no key has the name of the log, because a verifier has to name the log then."""
    names = {key.name for key in keys}
    if names and checkpoint.origin not in names:
        desk.out.remark(
            f"The origin is {checkpoint.origin}, and the key is named {', '.join(sorted(names))}: a verifier has to "
            "give --origin. Usually the two are the same."
        )

"""``worldctl init``: found a realm."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.templates import NAMES

if TYPE_CHECKING:
    from worldprotocol.api.config import Config

DEFAULT_LOG: Final = "world.db"
AUTHENTICATION: Final = ("signed", "channel", "open")
FILES: Final = (".json", ".yaml", ".yml", ".mel")
_LOG_LINE: Final = f'log = "{DEFAULT_LOG}"'
_OPTIONS: Final = {
    "authentication": "--authentication",
    "projections": "--projection",
    "policies": "--policy",
    "effects": "--effects",
}


def founding_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what is founded; ``found_in`` takes their values."""
    kinds = click.Choice(AUTHENTICATION)
    options = (
        click.option("--domain", metavar="REF|FILE", help="module:attribute, file.py:attribute, MEL, YAML or JSON."),
        click.option(
            "--template",
            type=click.Choice(NAMES),
            help="Begin with this domain, policy and configuration, which are copied.",
        ),
        click.option("--data", metavar="JSON|@FILE", help="Initial data that differs from the domain's defaults."),
        click.option("--projection", "projections", multiple=True, metavar="REF", help="A projection; repeatable."),
        click.option("--policy", "policies", multiple=True, metavar="REF", help="A policy to adopt; repeatable."),
        click.option("--effects", multiple=True, metavar="REF", help="Effect handlers; repeatable."),
        click.option(
            "--authentication",
            type=kinds,
            help="What shows whose manifest it is; channel unless given here (see docs/operator.md, Keys).",
        ),
        click.option(
            "--dev", "development", is_flag=True, help="Mark the realm: `worldctl dev` may adopt changes in it."
        ),
        click.option("--force", is_flag=True, help="Overwrite a world.toml that is there."),
        click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command("init")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(file_okay=False))
@founding_options
@click.option(
    "--update", is_flag=True, help="Found nothing: replace copies of the template that an earlier release made."
)
def init(desk: CommandContext, folder: str, *, update: bool, **options: Any) -> None:
    """Write world.toml into DIR and found the log that it names.

    --domain names the domain, or --template a domain with a policy and a configuration, as copies that are yours to
    change. The initial data may also be the bare name of a JSON file. Policies that are named are adopted at once.

    With --update, the files of --template are written into a realm's folder anew, but for world.toml; a file that
    differs is kept beside as NAME.before. `worldctl adopt` and `worldctl policy adopt` then bring them into force.
    """
    rendered, words = _updated(Path(folder), options) if update else found_in(desk, Path(folder), options)
    desk.out.tell(rendered, *words)


def _updated(where: Path, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Replace the copies of a template in a realm's folder, and return what was written.

    Raises:
        RefusedError: ``NO_CONFIG`` in a folder without a configuration.
    """
    from world.errors import RefusedError
    from worldprotocol.api.config import CONFIG_NAME
    from worldprotocol.cli.support.templates import updated_template

    template, by = options["template"], options["by"]
    given = [name for name, value in options.items() if value and name not in ("template", "by")]
    if template is None or given or by != "operator":
        raise click.UsageError("--update goes with --template and a folder alone.")
    config = where / CONFIG_NAME
    if not config.exists():
        raise RefusedError(ErrorCode.NO_CONFIG, f"There is no {config}; name the folder of the realm.")
    written, kept = updated_template(template, where, but=CONFIG_NAME)
    words = [f"Wrote {', '.join(one.name for one in written)} into {where}." if written else f"{where} is up to date."]
    if kept:
        words.append(f"The earlier contents are in {', '.join(one.name for one in kept)}.")
    words.append(f"{config} is as it was; compare it with the template's in docs/agents.md.")
    return {"files": [str(one) for one in written], "kept": [str(one) for one in kept]}, words


def found_in(desk: CommandContext, where: Path, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Write a configuration into a folder and found the log that it names; --log names another log.

    Args:
        desk: the command.
        where: the folder.
        options: the values of ``founding_options``.

    Returns:
        What was made, as JSON and in words.
    """
    from worldprotocol.api.config import CONFIG_NAME
    from worldprotocol.cli.support.templates import refuse_existing

    references = dict(options)
    data, template = references.pop("data"), references.pop("template")
    authentication, force = references.pop("authentication"), references.pop("force")
    target = where / CONFIG_NAME
    if not force:
        refuse_existing(target)
    initial = None if data is None else _data(data)
    founding = {"data": initial, "by": references.pop("by"), "development": references.pop("development")}
    if (template is None) == (references["domain"] is None):
        raise click.UsageError("Give either --domain or --template.")
    if template is not None:
        if given := [name for name, value in ({"authentication": authentication} | references).items() if value]:
            named = ", ".join(_OPTIONS[name] for name in given)
            raise click.UsageError(f"--template brings its own configuration; write {named} into {target} later.")
        rendered = found_template(desk, template, where, force=force, founding=founding)
        copied = ", ".join(Path(one).name for one in rendered["files"])
        words = [f"Founded {rendered['log']} with world {rendered['worldId'][:12]}; {target} composes it."]
        return rendered, [*words, f"Copied {copied}; they are yours to change."]
    _refuse_missing(references["domain"], where)
    config = _config(where, desk.log, references, paranoid=desk.paranoid)
    if authentication is not None:
        config = config.model_copy(update={"klis": {"authentication": authentication}})
    config.chosen_limits()
    with made_folder(where):
        rendered = _found(desk, config, target, founding)
    _write_private(target, _toml(config))
    return rendered, [f"Founded {rendered['log']} with world {rendered['worldId'][:12]}; {target} composes it."]


def _found(desk: CommandContext, config: Config, target: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Found the log of a configuration, and return what to print."""
    from world.errors import RefusedError
    from world.masking import masked
    from worldprotocol.api.realm import Realm
    from worldprotocol.cli.support.opening import workspace_of

    with desk.progress("Founding") as progress:
        try:
            world = Realm.from_config(config, create=True, progress=progress, workspace=workspace_of(config), **options)
        except RefusedError as refused:
            if refused.code != "ALREADY_FOUNDED":
                raise
            shown = masked(config.log_address)
            why = f"{shown} holds a realm already; nothing was changed. Act on it, or name another --log."
            raise RefusedError(refused.code, why, log=shown) from None
    with world:
        return {
            "config": str(target),
            "log": masked(config.log_address),
            "worldId": world.branch().head,
            "schemaHash": world.realm().schema_hash,
            "policies": sorted(world.realm().policies),
        }


def found_template(
    desk: CommandContext, name: str, folder: Path, *, force: bool, founding: dict[str, Any]
) -> dict[str, Any]:
    """Copy a template, found the realm that it configures, and return what was made; --log names another log.

    Args:
        desk: the command.
        name: of the template.
        folder: of the realm; it is made where it is not there.
        force: overwrite files that are there.
        founding: options of ``Realm.create``.

    Raises:
        RefusedError: ``CONFIG_EXISTS``, and those of ``Realm.create``.
    """
    from worldprotocol.api.config import CONFIG_NAME, read_config
    from worldprotocol.cli.support.opening import admit_code
    from worldprotocol.cli.support.templates import copied_template

    target = folder / CONFIG_NAME
    with made_folder(folder), copied_template(name, folder, force=force) as copied:
        if desk.log is not None:
            line = f"log = {_value(_log_from_folder(desk.log, folder))}"
            _write_private(target, target.read_text(encoding="utf-8").replace(_LOG_LINE, line))
        config = read_config(target)
        admit_code(desk, config)
        rendered = _found(desk, config, target, founding)
    return rendered | {"files": [str(one) for one in copied]}


def _write_private(target: Path, text: str) -> None:
    """Write a file that its owner alone can read: the log's address may hold a password."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)  # a file that was there keeps its mode otherwise
        file.write(text)


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; those that were made are removed again where something fails inside."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # no longer empty: another process created a file there
            for one in made:
                one.rmdir()
        raise


def _config(folder: Path, log: str | None, references: dict[str, Any], *, paranoid: bool) -> Config:
    from worldprotocol.api.config import Config

    def moved(reference: str) -> str:
        return _from_folder(reference, folder)

    return Config(
        log=_log_from_folder(log, folder),
        domain=moved(references["domain"]),
        projections=[moved(one) for one in references["projections"]],
        policies=[moved(one) for one in references["policies"]],
        effects=[moved(one) for one in references["effects"]],
        paranoid=paranoid,
        folder=folder,
    )


def _refuse_missing(domain: str, folder: Path) -> None:
    """Refuse a domain's file that is neither here nor in the realm's folder; other references are loaded later."""
    from world.errors import RefusedError

    if domain.endswith(FILES) and not Path(domain).exists() and not (folder / domain).exists():
        raise RefusedError(
            ErrorCode.FILE_UNREADABLE, f"There is no domain file {domain}, neither here nor in {folder}.", path=domain
        )


def _log_from_folder(log: str | None, folder: Path) -> str:
    if log is None:
        return DEFAULT_LOG
    return log if "://" in log or Path(log).is_absolute() else os.path.relpath(log, folder)


def _from_folder(reference: str, folder: Path) -> str:
    """Write a reference to a file of the current folder as seen from the realm's folder."""
    is_whole = reference.endswith((*FILES, ".toml", ".cedar"))  # a domain in data, a policy file
    path, colon, attribute = (reference, "", "") if is_whole else reference.partition(":")
    is_file = is_whole or path.endswith((*FILES, ".py"))
    if not is_file or Path(path).is_absolute() or not Path(path).exists():
        return reference
    return f"{os.path.relpath(path, folder)}{colon}{attribute}"


def _data(given: str) -> dict[str, Any]:
    from worldprotocol.cli.support.input_reading import STDIN, read_object

    plain = given == STDIN or given.startswith("@") or given.lstrip().startswith("{")
    return read_object(given if plain else f"@{given}", what="--data")


def _toml(config: Config) -> str:
    rendered = config.model_dump(
        exclude={"limits", "klis", "folder", "unsafe_unguarded_projections"}, exclude_none=True
    )
    lines = [f"{name} = {_value(value)}" for name, value in rendered.items()]
    if config.klis:
        lines += ["", "[klis]", *(f"{name} = {_value(value)}" for name, value in config.klis.items())]
    return "# What composes this realm; relative paths start at this file.\n" + "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """Write a text, a truth value or a list of texts as TOML, whose texts are JSON's but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

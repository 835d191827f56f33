"""Names of functions and of the files in their arguments, in one form each."""

from __future__ import annotations

from typing import Any, Final

from conformance.calls.literals import UNKNOWN, ParsedCall

__all__ = ["file_of", "known_name", "path_of"]

_MODULES: Final = {
    **dict.fromkeys(["fs.promises", "fsPromises", "fsp", "fse", "fs-extra", "fs_extra", "Deno", "Bun"], "fs"),
    **dict.fromkeys(["cp", "childProcess"], "child_process"),
}

_OWN_NAMES: Final = {
    "fs": "readFile createReadStream lstat realpath readlink writeFile appendFile createWriteStream chmod chown utimes "
    "truncate mkdir unlink rm rmdir readdir opendir copyFile rename symlink mkdtemp readTextFile writeTextFile statfs "
    "lchown lutimes outputFile outputJson writeJson readJson ensureDir ensureFile emptyDir pathExists stat exists "
    "access",
    "child_process": "exec execFile spawn fork",
    "os": "listdir scandir makedirs removedirs",
    "shutil": "rmtree copytree copyfile copy2",
    "subprocess": "check_call check_output Popen getoutput",
    "glob": "glob iglob",
    "urllib.request": "urlretrieve",
}
_BARE: Final = {name: f"{module}.{name}" for module, names in _OWN_NAMES.items() for name in names.split()} | {
    "Path": "pathlib.Path"
}
"""Functions that are known without their module."""


def known_name(name: str) -> str:
    """Return the canonical name of a function: one module name, without ``Sync``."""
    module, _, last = name.removeprefix("node:").rpartition(".")
    module = _MODULES.get(module, module)
    if module in {"fs", "child_process", ""} and last.endswith("Sync") and last != "Sync":
        last = last.removesuffix("Sync")
    full = f"{module}.{last}" if module else last
    return _BARE.get(full, full)


def path_of(value: Any) -> Any:
    """Return the path of a value, None where it is not a path."""
    if isinstance(value, ParsedCall) and known_name(value.name) == "pathlib.Path" and value.receiver is None:
        return _join(value)
    if isinstance(value, ParsedCall) and value.name.rpartition(".")[2] in {"resolve", "absolute"}:
        return path_of(value.receiver)
    return None


def _join(call: ParsedCall) -> Any:
    if not call.args:
        return "."
    if not all(isinstance(part, str) for part in call.args):
        return UNKNOWN
    path = ""
    for part in call.args:
        path = part if part.startswith("/") or not path else f"{path.rstrip('/')}/{part}"
    return path


def file_of(value: Any) -> Any:
    """Return the file of an argument: a string, a descriptor, or ``UNKNOWN``."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return value.removeprefix("file://") if isinstance(value, str) and value.startswith("file:///") else value
    if isinstance(value, ParsedCall):
        last = value.name.rpartition(".")[2]
        if value.receiver is None and value.name in {"path.join", "path.resolve", "os.path.join", "os.fspath"}:
            return _join(value)
        if last in {"URL", "from", "encode", "fileURLToPath", "abspath", "normpath", "str", "String"} and value.args:
            return file_of(value.args[0])
        path = path_of(value)
        return UNKNOWN if path is None else path
    return UNKNOWN

"""Functions and methods that do nothing to the world by themselves; everything that is in no table is opaque."""

from __future__ import annotations

from typing import Final

__all__ = ["HANDLES", "PURE", "PURE_MODULES"]

PURE_MODULES: Final = frozenset(
    {"JSON", "Math", "console", "Object", "Array", "Number", "String", "Date", "re", "json"}
)
"""Modules of which no function touches anything."""

PURE: Final = frozenset(
    ["require", "import", "__import__", "print", "len", "str", "int", "float", "list", "dict", "tuple", "set", "bytes"]
    + ["String", "Number", "Boolean", "Buffer.from", "Buffer.alloc", "Uint8Array", "URL", "Request", "Promise.all"]
    + ["path.join", "path.resolve", "path.dirname", "path.basename", "path.relative", "path.normalize", "path.extname"]
    + ["os.path.join", "os.path.dirname", "os.path.basename", "os.path.abspath", "os.path.normpath", "os.fspath"]
    + ["os.path.expanduser", "os.getcwd", "os.getpid", "process.cwd", "pathlib.Path", "sorted"]
    + ["process.exit", "sys.exit", "os.close", "os.fstat", "os.read", "os.write", "os.fsync", "os.lseek", "os.fdopen"]
    + ["fs.read", "fs.write", "fs.close", "fs.fsync", "fs.fstat", "fs.readv", "fs.writev", "fs.fdatasync"]
    + ["fs.ftruncate", "fs.fchmod", "fs.fchown", "fs.futimes", "setTimeout", "socket.socket", "urllib.request.Request"]
    + ["path.resolve", "path.absolute", "path.as_posix", "path.with_suffix", "path.with_name", "path.joinpath"]
)
"""Single functions; what works on an open descriptor was observed when that was opened."""

HANDLES: Final = frozenset(
    ["read", "write", "close", "readline", "readlines", "writelines", "flush", "seek", "tell", "end", "on", "once"]
    + ["then", "catch", "finally", "toString", "json", "text", "content", "iter_content", "raise_for_status", "blob"]
    + ["strip", "split", "splitlines", "decode", "encode", "format", "replace", "join", "trim", "map", "filter", "wait"]
    + ["arrayBuffer", "communicate", "readFileHandle", "stat", "execute", "executemany", "commit", "cursor", "fetchall"]
    + [
        "pipe",
        "unref",
        "ref",
        "kill",
        "send",
        "sendall",
        "recv",
        "startswith",
        "endswith",
        "lower",
        "upper",
        "setEncoding",
        "keys",
        "items",
        "get",
    ]
)
"""Methods of what a call gave: of an open file, an answer, a process that was started, a text."""

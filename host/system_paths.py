"""Folders of the operating system, as opposed to an agent's work; used by observation and confinement."""

from __future__ import annotations

import os
import shutil
from typing import Final

__all__ = ["DEVICES", "KERNEL", "PROGRAMS", "SETTINGS", "SHARED_MEMORY", "is_below", "tool"]

PROGRAMS: Final = (b"/usr", b"/lib", b"/lib64", b"/lib32", b"/bin", b"/sbin", b"/opt", b"/nix/store", b"/snap")
"""Programs and their libraries."""

SETTINGS: Final = tuple(
    b"/etc/" + name
    for name in (
        *(b"ld.so.cache", b"ld.so.conf", b"ld.so.conf.d", b"ld.so.preload", b"alternatives"),
        *(b"nsswitch.conf", b"hosts", b"host.conf", b"hostname", b"resolv.conf", b"gai.conf", b"networks"),
        *(b"protocols", b"services", b"rpc", b"ethertypes", b"passwd", b"group", b"shells", b"login.defs"),
        *(b"localtime", b"timezone", b"adjtime", b"locale.alias", b"locale.conf", b"default/locale", b"locale.gen"),
        *(b"ssl/certs", b"ssl/openssl.cnf", b"ca-certificates", b"ca-certificates.conf", b"pki/ca-trust"),
        *(b"pki/tls/certs", b"pki/tls/cert.pem", b"pki/tls/openssl.cnf", b"crypto-policies"),
        *(b"os-release", b"lsb-release", b"debian_version", b"redhat-release", b"alpine-release", b"mtab", b"magic"),
        *(b"magic.mime", b"mime.types", b"terminfo", b"inputrc", b"profile", b"profile.d", b"bash.bashrc", b"bashrc"),
        *(b"fonts", b"xdg", b"gitconfig", b"gitattributes", b"vim", b"perl", b"python3"),
        *(b"skel", b"manpath.config", b"xattr.conf", b"selinux/config", b"pkcs11"),
    )
)
"""Settings that libraries and interpreters read; the rest of ``/etc`` belongs to the machine."""

KERNEL: Final = (b"/proc", b"/sys/devices/system/cpu", b"/sys/fs/cgroup")
"""Kernel interfaces that every program may read: processes, the list of processors, the control groups."""

DEVICES: Final = tuple(
    b"/dev/" + name for name in (b"null", b"zero", b"full", b"random", b"urandom", b"tty", b"ptmx", b"pts")
)
"""Devices that every program may use."""

SHARED_MEMORY: Final = b"/dev/shm"


def is_below(path: bytes, folder: bytes) -> bool:
    """Whether an absolute path is a folder or inside it."""
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def tool(name: str) -> str | None:
    """Return the path of a program that the engine runs itself, or None where it is missing.

    Empty and relative entries of PATH are ignored: they mean the current folder, in which an agent may have created a
    program of that name.

    Args:
        name: such as ``strace``.
    """
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(filter(os.path.isabs, folders)) or os.defpath)

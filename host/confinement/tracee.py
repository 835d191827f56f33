"""Arguments of a waiting system call, read from the process that made it.

Everything is read anew for every call: a cached path or descriptor could be outdated. The caller must ask
the kernel afterwards whether the call still waits; only then was it this process that was read.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from host.confinement.calls import SocketAddress, SystemCallRequest
from host.confinement.kernel import pidfd_getfd, read_memory
from host.confinement.naming import Named, UnknowableError, View, find, held, here
from host.confinement.syscalls import Shape

__all__ = ["Tracee", "UnreadableError", "bound_to", "read_call", "signed"]

_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW, _AT_SYMLINK_FOLLOW, _AT_REMOVEDIR, _AT_EMPTY_PATH = 0x100, 0x400, 0x200, 0x1000
_O_CREAT, _O_EXCL, _O_NOFOLLOW = os.O_CREAT, os.O_EXCL, getattr(os, "O_NOFOLLOW", 0)
_PAGE: Final = 4096
_PATH_MAX: Final = 4096
_MAX_ARGUMENTS: Final = 64
_MAX_MESSAGES: Final = 1024
_AF_UNSPEC, _AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK, _AF_ALG = 0, 1, 2, 10, 16, 38
_WITHIN_THE_KERNEL: Final = frozenset({_AF_NETLINK, _AF_ALG})


class UnreadableError(Exception):
    """The arguments are invalid; the call fails with this error."""

    def __init__(self, error: int) -> None:
        """Store the errno."""
        super().__init__(error)
        self.errno = error


class Tracee:
    """A thread that waits in a system call.

    Args:
        pid: id of the thread, as this process sees it.
        secluded: whether it has another file tree than this process.
    """

    __slots__ = ("_proc", "_secluded", "pid")

    def __init__(self, pid: int, *, secluded: bool = False) -> None:
        """Store the thread; nothing is read yet."""
        self.pid = pid
        self._secluded = secluded
        self._proc = b"/proc/%d/" % pid

    def memory(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes, fewer where the mapped memory ends.

        Raises:
            UnreadableError: EFAULT without mapped memory, or the process has ended or may not be inspected.
        """
        try:
            return read_memory(self.pid, address, size)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                raise UnreadableError(errno.EFAULT) from None
        return self._memory_file(address, size)

    def _memory_file(self, address: int, size: int) -> bytes:
        """Read by the file, where the quicker call is forbidden, as in some containers."""
        try:
            file = os.open(self._proc + b"mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise UnreadableError(errno.EFAULT) from None
        try:
            return os.pread(file, size, address)
        except (OSError, OverflowError):
            raise UnreadableError(errno.EFAULT) from None
        finally:
            os.close(file)

    def exactly(self, address: int, size: int) -> bytes:
        """Return ``size`` bytes, or raise Unreadable."""
        found = self.memory(address, size)
        if len(found) < size:
            raise UnreadableError(errno.EFAULT)
        return found

    def text(self, address: int, limit: int = _PATH_MAX) -> bytes:
        """Return the bytes before the first NUL; Unreadable with ENAMETOOLONG when there is none within the limit."""
        first = _PAGE - address % _PAGE
        found = self.memory(address, first)
        if b"\0" not in found and len(found) == first and first < limit:
            found += self.memory(address + first, limit - first)
        text, end, _ = found.partition(b"\0")
        if not end:
            raise UnreadableError(errno.ENAMETOOLONG if len(found) >= limit else errno.EFAULT)
        return text

    def folder(self, descriptor: int | None) -> bytes:
        """Return the path of the working directory, or of an open one."""
        try:
            return os.readlink(self._proc + _place(descriptor))
        except OSError as error:
            raise UnreadableError(error.errno if error.errno == errno.ENAMETOOLONG else errno.EBADF) from None

    def find(self, name: bytes, folder: int | None, *, follow: bool) -> Named | None:
        """Resolve a name as this thread sees it; None for a file without a name.

        Args:
            name: as passed by the thread.
            folder: the descriptor of a relative name, or None for the working directory.
            follow: whether a link in the last name is followed.

        Raises:
            UnreadableError: EBADF, or the reason why the name cannot be resolved, apart from its absence.
        """
        try:
            with self._opened(b"root") as root:
                view = View(root, self._itself, is_ours=not self._secluded)
                if name.startswith(b"/"):
                    found = find(view, name, follow=follow)
                else:
                    with self._opened(_place(folder)) as start:
                        found = find(view, name, start=start, follow=follow)
            return self._hidden(found, follow) if self._secluded and found is not None else found
        except UnknowableError as unknowable:
            raise UnreadableError(unknowable.errno) from None

    @staticmethod
    def _hidden(found: Named, follow: bool) -> Named:
        """Resolve a name that is missing in the thread's tree in this process's tree, to report what was attempted."""
        if found.is_there:
            return found
        with here() as view:
            ours = find(view, found.path, follow=follow)
        return found if ours is None or not ours.is_there else Named(ours.path, ours.mode, found.link or ours.link)

    def file(self, descriptor: int) -> Named | None:
        """Return the location of an open file, or None for one without a name: a pipe, a socket, a deleted file."""
        with self._opened(b"fd/%d" % descriptor) as handle:
            try:
                return held(handle)
            except UnknowableError as unknowable:
                raise UnreadableError(unknowable.errno) from None

    @contextmanager
    def _opened(self, name: bytes) -> Iterator[int]:
        """Yield a handle on the target of a link in the thread's /proc folder."""
        try:
            handle = os.open(self._proc + name, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            raise UnreadableError(errno.EBADF if error.errno == errno.ENOENT else error.errno or errno.EACCES) from None
        try:
            yield handle
        finally:
            os.close(handle)

    def _itself(self, name: bytes) -> bytes:
        """Return the target of ``/proc/self`` or ``/proc/thread-self`` for this thread, in its own numbers."""
        process, thread = self._number(b"NStgid:"), self._number(b"NSpid:")
        return b"%d" % process if name == b"self" else b"%d/task/%d" % (process, thread)

    def _number(self, field: bytes) -> int:
        """Return the innermost number in a field of the thread's status."""
        try:
            with open(self._proc + b"status", "rb") as file:
                return next(int(line.split()[-1]) for line in file if line.startswith(field))
        except (OSError, StopIteration, ValueError):
            raise UnreadableError(errno.ESRCH) from None

    def socket(self, descriptor: int) -> socket.socket:
        """Return a handle of a socket of the thread, independent of later changes of its descriptor.

        Raises:
            UnreadableError: EBADF or ENOTSOCK, or EACCES where the process is closed to us, or the thread does not
                share its descriptors with the process.
        """
        try:
            link = os.readlink(self._proc + b"fd/%d" % descriptor)
        except OSError:
            raise UnreadableError(errno.EBADF) from None
        if not link.startswith(b"socket:"):
            raise UnreadableError(errno.ENOTSOCK)
        try:
            copy = pidfd_getfd(self.process(), descriptor)
        except OSError:
            raise UnreadableError(errno.EACCES) from None
        blocks = os.get_blocking(copy)
        try:
            found = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            raise UnreadableError(errno.EACCES) from None
        os.set_blocking(copy, blocks)  # where this process has a default timeout, Python has just changed it
        if link != b"socket:[%d]" % os.fstat(copy).st_ino:
            found.close()
            raise UnreadableError(errno.EACCES)
        return found

    def process(self) -> int:
        """Return the process of the thread; the thread's own id when it has ended."""
        try:
            with open(self._proc + b"status", "rb") as file:
                return next(int(line.split()[1]) for line in file if line.startswith(b"Tgid:"))
        except (OSError, StopIteration, ValueError):
            return self.pid


def _place(descriptor: int | None) -> bytes:
    return b"cwd" if descriptor is None or descriptor == _AT_FDCWD else b"fd/%d" % descriptor


def signed(value: int) -> int:
    """Return the ``int`` that the kernel takes from a register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def read_call(tracee: Tracee, syscall: str, shape: Shape, arguments: tuple[int, ...]) -> Iterator[SystemCallRequest]:
    """Yield the requests of a call: usually one, none when no decision is needed, several for ``sendmmsg``.

    Args:
        tracee: the calling thread.
        syscall: the kernel's name of the call.
        shape: the meaning of its arguments.
        arguments: the six registers.

    Raises:
        UnreadableError: the call cannot be read, and must fail with that error.
    """
    if shape.name in ("connect", "bind", "sendto"):
        for address in _addresses(tracee, syscall, arguments):
            yield SystemCallRequest(shape.name, syscall, tracee.pid, address=address)
    else:
        call = _file_call(tracee, syscall, shape, arguments)
        if call is not None:
            yield call


def _file_call(tracee: Tracee, syscall: str, shape: Shape, arguments: tuple[int, ...]) -> SystemCallRequest | None:
    if shape.fd is not None:
        held = tracee.file(signed(arguments[shape.fd]))
        return (
            None
            if held is None
            else SystemCallRequest(shape.name, syscall, tracee.pid, (held.path,), (held,), follows=True)
        )
    flags = shape.fixed
    if shape.flags is not None:
        flags = arguments[shape.flags] & 0xFFFFFFFF
    follows = _follows(shape, flags)
    empty = bool(shape.name != "open" and flags & _AT_EMPTY_PATH)
    found: list[Named] = []
    for index, (folder, argument) in enumerate(shape.paths):
        if shape.name == "symlink" and index == 0:
            found.append(Named(tracee.text(arguments[argument]), None))
            continue
        fd = None if folder is None else signed(arguments[folder])
        may_be_null = shape.name == "utime" and folder is not None
        target = _target(tracee, fd, arguments[argument], follows and index == 0, empty, may_be_null)
        if target is None and shape.name == "link":
            return _new_name(tracee, syscall, shape, arguments)
        if target is None:
            return None
        found.append(target)
    return _complete(tracee, syscall, shape, tuple(found), flags, follows, arguments)


def _complete(
    tracee: Tracee,
    syscall: str,
    shape: Shape,
    targets: tuple[Named, ...],
    flags: int,
    follows: bool,
    arguments: tuple[int, ...],
) -> SystemCallRequest:
    paths = tuple(one.path if one.link is None else one.link for one in targets)
    if shape.name == "execve":
        argv = _arguments(tracee, arguments[2 if syscall == "execveat" else 1])
        return SystemCallRequest(
            "execve", syscall, tracee.pid, paths, targets, flags, follows, None, argv, tracee.folder(None)
        )
    if syscall == "unlinkat" and flags & _AT_REMOVEDIR:
        return SystemCallRequest("rmdir", syscall, tracee.pid, paths, targets)
    return SystemCallRequest(shape.name, syscall, tracee.pid, paths, targets, flags, follows)


def _new_name(tracee: Tracee, syscall: str, shape: Shape, arguments: tuple[int, ...]) -> SystemCallRequest | None:
    """Return the request of a link that names a file without a name."""
    folder, argument = shape.paths[1]
    fd = None if folder is None else signed(arguments[folder])
    target = _target(tracee, fd, arguments[argument], False, False, False)
    return None if target is None else SystemCallRequest("mknod", syscall, tracee.pid, (target.path,), (target,))


def _follows(shape: Shape, flags: int) -> bool:
    if shape.follows == "open":
        return not flags & _O_NOFOLLOW and flags & (_O_CREAT | _O_EXCL) != _O_CREAT | _O_EXCL
    if shape.follows == "unless nofollow":
        return not flags & _AT_SYMLINK_NOFOLLOW
    if shape.follows == "if follow":
        return bool(flags & _AT_SYMLINK_FOLLOW)
    return shape.follows == "always"


def _target(
    tracee: Tracee, folder: int | None, address: int, follow: bool, empty: bool, may_be_null: bool
) -> Named | None:
    if not address and may_be_null and folder is not None and folder != _AT_FDCWD:
        return tracee.file(folder)
    text = tracee.text(address)
    if not text:
        if not empty:
            raise UnreadableError(errno.ENOENT)
        if folder is None or folder == _AT_FDCWD:
            return tracee.find(b".", None, follow=True)
        return tracee.file(folder)
    return tracee.find(text, folder, follow=follow)


def _arguments(tracee: Tracee, address: int) -> tuple[bytes, ...]:
    if not address:
        return ()
    found = tracee.memory(address, 8 * _MAX_ARGUMENTS)
    texts: list[bytes] = []
    for (pointer,) in struct.iter_unpack("=Q", found[: len(found) // 8 * 8]):
        if not pointer:
            break
        try:
            texts.append(tracee.text(pointer))
        except UnreadableError:
            texts.append(tracee.memory(pointer, _PATH_MAX))
    return tuple(texts)


def _addresses(tracee: Tracee, syscall: str, arguments: tuple[int, ...]) -> Iterator[SocketAddress]:
    if syscall in ("connect", "bind"):
        places = [(arguments[1], arguments[2])]
    elif syscall == "sendto":
        places = [(arguments[4], arguments[5])]
    elif syscall == "sendmsg":
        places = [_message(tracee.exactly(arguments[1], 16))]
    else:
        count = min(arguments[2] & 0xFFFFFFFF, _MAX_MESSAGES)
        headers = tracee.exactly(arguments[1], 64 * count) if count else b""
        places = list(dict.fromkeys(_message(headers[at : at + 16]) for at in range(0, len(headers), 64)))
    for pointer, size in places:
        if pointer:
            address = _address(tracee, syscall, tracee.exactly(pointer, min(size & 0xFFFFFFFF, 128)))
            if address is not None:
                yield address


def _message(header: bytes) -> tuple[int, int]:
    pointer, size = struct.unpack_from("=QI", header)
    return pointer, size


def _address(tracee: Tracee, syscall: str, raw: bytes) -> SocketAddress | None:
    """Read a socket address; None where no decision is needed: a disconnect, or a socket of the kernel itself."""
    if len(raw) < 2:
        return None
    family = int.from_bytes(raw[:2], "little")
    if family == _AF_UNSPEC:
        if syscall == "connect":
            return None
        family = _AF_INET  # as datagram sockets and bind interpret it
    if family in _WITHIN_THE_KERNEL:
        return None
    if family == _AF_INET and len(raw) >= 8:
        return SocketAddress("inet", str(ipaddress.IPv4Address(raw[4:8])), int.from_bytes(raw[2:4], "big"))
    if family == _AF_INET6 and len(raw) >= 24:
        return SocketAddress("inet6", _numeric(ipaddress.IPv6Address(raw[8:24])), int.from_bytes(raw[2:4], "big"))
    if family == _AF_UNIX:
        return _local(tracee, raw[2:])
    return SocketAddress("other", f"family {family}")


def _local(tracee: Tracee, name: bytes) -> SocketAddress:
    if not name or name.startswith(b"\0"):
        return SocketAddress("unix", path=name)
    found = tracee.find(name.partition(b"\0")[0], None, follow=True)
    return SocketAddress("unix") if found is None else SocketAddress("unix", path=found.path, target=found)


def _numeric(host: ipaddress.IPv6Address) -> str:
    return str(host.ipv4_mapped or host)


def bound_to(talking: socket.socket) -> SocketAddress | None:
    """Return the bound address of an internet socket; None for other sockets.

    Args:
        talking: the socket. While it is unbound, the port is 0 and the host any.
    """
    if talking.family == socket.AF_INET:
        host, port = talking.getsockname()
        return SocketAddress("inet", host, port)
    if talking.family == socket.AF_INET6:
        host, port, *_ = talking.getsockname()
        return SocketAddress("inet6", _numeric(ipaddress.IPv6Address(host.partition("%")[0])), port)
    return None

"""No confined program gives a file the bits by which others run it with its owner's rights."""

from __future__ import annotations

import errno
import os

import pytest

from host.confinement.bpf import program
from host.confinement.syscalls import MACHINES, MODES, watched
from tests.host.bpf_machine import ERRNO, NOTIFY, answer


@pytest.mark.parametrize("machine", MACHINES)
def test_no_call_sets_the_bits_that_give_a_program_the_rights_of_its_owner(machine):
    kind = MACHINES[machine]
    code, numbers = program(kind), {name: number for number, (name, _) in watched(kind).items()}
    for name, (mode, flags) in MODES.items():
        if name not in numbers:
            continue
        for bits in (0o4755, 0o2755, 0o6000):
            arguments = [0] * 6
            arguments[mode] = bits
            if flags is not None:
                assert answer(code, kind.audit, numbers[name], *arguments) == NOTIFY, (
                    "it makes no file, so it has no mode"
                )
                arguments[flags] = os.O_CREAT
            assert answer(code, kind.audit, numbers[name], *arguments) == ERRNO | errno.EPERM, name
            if flags is not None:
                arguments[flags] = os.O_TMPFILE & ~os.O_DIRECTORY
                assert answer(code, kind.audit, numbers[name], *arguments) == ERRNO | errno.EPERM, name
            arguments[mode] = 0o1777
            assert answer(code, kind.audit, numbers[name], *arguments) == NOTIFY, name

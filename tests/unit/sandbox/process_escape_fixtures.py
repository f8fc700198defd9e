"""Ways of reading what is hidden, and of reaching other processes and the machine, one function each."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
from pathlib import Path

from tests.unit.sandbox.escape_fixtures import IS_ARM, Attempt, Grounds, call, opened, row, system_call

SECRETS: dict[str, Attempt] = {}
"""Reading what is hidden; Landlock refuses."""
SYSTEM: dict[str, Attempt] = {}
"""Reaching other processes and the machine; seccomp or a scope of Landlock refuses."""
SIGNALS = (
    "signal_a_process_outside",
    "signal_by_a_descriptor",
    "signal_a_thread",
    "signal_a_thread_of_a_process",
    "queue_a_signal",
    "queue_a_signal_to_a_thread",
)
"""What nothing but a scope of Landlock refuses, from ABI 6."""
_QUEUED = struct.pack("iii", 0, 0, -1) + bytes(116)
"""``siginfo_t`` of a signal that a program sends."""


# What is hidden


@row(SECRETS)
def _read_hidden_file(grounds: Grounds) -> None:
    (grounds.hidden / "secret").read_bytes()


@row(SECRETS)
def _read_single_hidden_file(grounds: Grounds) -> None:
    grounds.hidden.with_name("secret.txt").read_bytes()


@row(SECRETS)
def _list_hidden_directory(grounds: Grounds) -> None:
    list(grounds.hidden.iterdir())


@row(SECRETS)
def _read_through_a_link(grounds: Grounds) -> None:
    (grounds.here / "to-hidden" / "secret").read_bytes()


@row(SECRETS)
def _read_through_own_root(grounds: Grounds) -> None:
    Path(f"/proc/self/root{grounds.hidden}/secret").read_bytes()


@row(SECRETS)
def _read_beneath_a_descriptor(grounds: Grounds) -> None:
    os.open("secret", os.O_RDONLY, dir_fd=opened(grounds.hidden, os.O_PATH))


@row(SECRETS)
def _read_after_going_there(grounds: Grounds) -> None:
    os.chdir(grounds.hidden)
    Path("secret").read_bytes()


@row(SECRETS)
def _execute_hidden_file(grounds: Grounds) -> None:
    subprocess.run([grounds.hidden / "secret"], check=True)


# Other processes and the machine


@row(SYSTEM)
def _signal_a_process_outside(grounds: Grounds) -> None:
    os.kill(grounds.pid, 0)


@row(SYSTEM)
def _connect_to_an_abstract_socket(grounds: Grounds) -> None:
    socket.socket(socket.AF_UNIX).connect("\0" + grounds.socket)


@row(SYSTEM)
def _read_environment_of_a_process_outside(grounds: Grounds) -> None:
    Path(f"/proc/{grounds.pid}/environ").read_bytes()


@row(SYSTEM)
def _open_memory_of_a_process_outside(grounds: Grounds) -> None:
    opened(Path(f"/proc/{grounds.pid}/mem"))


@row(SYSTEM)
def _trace_a_process_outside(grounds: Grounds) -> None:
    call("ptrace", 0x4206, grounds.pid, 0, 0)  # PTRACE_SEIZE: changes nothing by itself


@row(SYSTEM)
def _read_memory_of_own_child(grounds: Grounds) -> None:
    del grounds
    call("process_vm_readv", os.getpid(), None, 0, None, 0, 0)


@row(SYSTEM)
def _take_a_descriptor(grounds: Grounds) -> None:
    system_call(438, 438, os.pidfd_open(grounds.pid), 0, 0)


@row(SYSTEM)
def _queue_a_signal(grounds: Grounds) -> None:
    system_call(129, 138, grounds.pid, 0, _QUEUED)


@row(SYSTEM)
def _queue_a_signal_to_a_thread(grounds: Grounds) -> None:
    system_call(297, 240, grounds.pid, grounds.pid, 0, _QUEUED)


@row(SYSTEM)
def _signal_a_thread(grounds: Grounds) -> None:
    system_call(200, 130, grounds.pid, 0)


@row(SYSTEM)
def _signal_a_thread_of_a_process(grounds: Grounds) -> None:
    system_call(234, 131, grounds.pid, grounds.pid, 0)


@row(SYSTEM)
def _signal_by_a_descriptor(grounds: Grounds) -> None:
    signal.pidfd_send_signal(os.pidfd_open(grounds.pid), 0)


@row(SYSTEM)
def _bound_a_process_outside(grounds: Grounds) -> None:
    """One second of processor time would end it; here it is given what it has."""
    resource.prlimit(grounds.pid, resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU))


@row(SYSTEM)
def _read_the_bounds_of_a_process_outside(grounds: Grounds) -> None:
    resource.prlimit(grounds.pid, resource.RLIMIT_CPU)


@row(SYSTEM)
def _pin_a_process_outside(grounds: Grounds) -> None:
    os.sched_setaffinity(grounds.pid, os.sched_getaffinity(grounds.pid))


@row(SYSTEM)
def _schedule_a_process_outside(grounds: Grounds) -> None:
    os.sched_setscheduler(grounds.pid, os.SCHED_OTHER, os.sched_param(0))


@row(SYSTEM)
def _schedule_a_process_outside_by_its_parameters(grounds: Grounds) -> None:
    os.sched_setparam(grounds.pid, os.sched_param(0))


@row(SYSTEM)
def _schedule_a_process_outside_by_its_attributes(grounds: Grounds) -> None:
    attributes = struct.pack("IIQiIQQQ", 48, 0, 0, 0, 0, 0, 0, 0)
    system_call(314, 274, grounds.pid, attributes, 0)


@row(SYSTEM)
def _renice_a_process_outside(grounds: Grounds) -> None:
    os.setpriority(os.PRIO_PROCESS, grounds.pid, os.getpriority(os.PRIO_PROCESS, grounds.pid))


@row(SYSTEM)
def _renice_a_group_outside(grounds: Grounds) -> None:
    os.setpriority(os.PRIO_PGRP, grounds.pid, 0)  # no such group exists


@row(SYSTEM)
def _delay_the_disk_of_a_process_outside(grounds: Grounds) -> None:
    system_call(251, 30, 1, grounds.pid, 0)


@row(SYSTEM)
def _move_the_pages_of_a_process_outside(grounds: Grounds) -> None:
    system_call(279, 239, grounds.pid, 0, None, None, None, 0)


@row(SYSTEM)
def _move_a_process_outside_to_another_node(grounds: Grounds) -> None:
    system_call(256, 238, grounds.pid, 64, struct.pack("Q", 1), struct.pack("Q", 1))


@row(SYSTEM)
def _find_the_locks_of_a_process_outside(grounds: Grounds) -> None:
    system_call(274, 100, grounds.pid, bytes(8), bytes(8))


@row(SYSTEM)
def _reap_the_memory_of_a_process_outside(grounds: Grounds) -> None:
    system_call(448, 448, os.pidfd_open(grounds.pid), 0)


@row(SYSTEM)
def _advise_on_the_memory_of_a_process_outside(grounds: Grounds) -> None:
    system_call(440, 440, os.pidfd_open(grounds.pid), None, 0, 20, 0)


@row(SYSTEM)
def _compare_with_a_process_outside(grounds: Grounds) -> None:
    system_call(312, 272, os.getpid(), grounds.pid, 0, 0, 0)


@row(SYSTEM)
def _enter_a_user_namespace(grounds: Grounds) -> None:
    del grounds
    call("unshare", 0x10000000)


@row(SYSTEM)
def _start_in_a_user_namespace(grounds: Grounds) -> None:
    del grounds
    if system_call(56, 220, 0x10000000 | signal.SIGCHLD, None, None, None, 0) == 0:
        os._exit(0)


@row(SYSTEM)
def _join_a_namespace(grounds: Grounds) -> None:
    call("setns", opened(Path("/proc/self/ns/uts")), 0)


@row(SYSTEM)
def _mount(grounds: Grounds) -> None:
    call("mount", b"none", bytes(grounds.here / "empty"), b"no-such-file-system", 0, None)


@row(SYSTEM)
def _unmount(grounds: Grounds) -> None:
    call("umount2", bytes(grounds.here / "empty"), 0)


@row(SYSTEM)
def _change_root(grounds: Grounds) -> None:
    os.chroot(grounds.here)


@row(SYSTEM)
def _open_by_handle(grounds: Grounds) -> None:
    call("open_by_handle_at", opened(grounds.here), struct.pack("Ii", 0, 1) + bytes(8), 0)


@row(SYSTEM)
def _set_up_a_ring(grounds: Grounds) -> None:
    del grounds
    system_call(425, 425, 1, bytes(120))


@row(SYSTEM)
def _load_a_program_into_the_kernel(grounds: Grounds) -> None:
    del grounds
    system_call(321, 280, 5, bytes(128), 128)


@row(SYSTEM)
def _count_events(grounds: Grounds) -> None:
    del grounds
    system_call(298, 241, struct.pack("IIQ", 1, 128, 0) + bytes(112), 0, -1, -1, 0)


@row(SYSTEM)
def _handle_page_faults(grounds: Grounds) -> None:
    del grounds
    system_call(323, 282, 1)  # UFFD_USER_MODE_ONLY


@row(SYSTEM)
def _keep_a_key(grounds: Grounds) -> None:
    del grounds
    system_call(248, 217, b"user", b"sessiontree", b"x", 1, -3)


@row(SYSTEM)
def _set_the_clock(grounds: Grounds) -> None:
    del grounds
    system_call(227, 112, 0, struct.pack("qq", 0, -1))  # a time that no clock takes


@row(SYSTEM)
def _name_the_machine(grounds: Grounds) -> None:
    del grounds
    socket.sethostname(socket.gethostname())


@row(SYSTEM)
def _type_into_a_terminal(grounds: Grounds) -> None:
    del grounds
    fcntl.ioctl(socket.socketpair()[0].fileno(), 0x5412, b"x")


@row(SYSTEM)
def _read_a_disk(grounds: Grounds) -> None:
    """Raw devices hold what is hidden."""
    del grounds
    disks = [path for path in Path("/dev").iterdir() if path.is_block_device()]
    opened(disks[0])


def _call_as_another_architecture(grounds: Grounds) -> None:
    """Ask for the process id by the calling convention of 32-bit x86, whose numbers mean other calls."""
    del grounds
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()


if not IS_ARM:
    row(SYSTEM)(_call_as_another_architecture)

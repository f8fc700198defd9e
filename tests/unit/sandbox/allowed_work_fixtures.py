"""What a confined process must still be able to do, one function each."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import socket
import subprocess
import threading
from pathlib import Path

from tests.unit.sandbox.escape_fixtures import CONTENT, Attempt, Grounds, row

ERRANDS: dict[str, Attempt] = {}


@row(ERRANDS)
def _read_a_file(grounds: Grounds) -> None:
    assert grounds.victim.read_bytes() == CONTENT


@row(ERRANDS)
def _list_a_directory(grounds: Grounds) -> None:
    assert "victim" in [path.name for path in grounds.here.iterdir()]


@row(ERRANDS)
def _read_about_itself(grounds: Grounds) -> None:
    del grounds
    assert Path("/proc/self/status").read_text().startswith("Name:")


@row(ERRANDS)
def _run_a_program(grounds: Grounds) -> None:
    del grounds
    subprocess.run(["/bin/sh", "-c", "exit 0"], check=True, stdout=subprocess.DEVNULL)


@row(ERRANDS)
def _end_a_program(grounds: Grounds) -> None:
    del grounds
    with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE) as child:
        child.send_signal(signal.SIGTERM)
        assert child.wait() == -signal.SIGTERM


@row(ERRANDS)
def _bound_and_schedule_itself(grounds: Grounds) -> None:
    del grounds
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    assert resource.prlimit(0, resource.RLIMIT_CORE) == (0, 0)
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    assert os.nice(1) == os.getpriority(os.PRIO_PROCESS, 0)


@row(ERRANDS)
def _start_a_thread(grounds: Grounds) -> None:
    del grounds
    thread = threading.Thread(target=os.getpid)
    thread.start()
    thread.join()


@row(ERRANDS)
def _write_a_log(grounds: Grounds) -> None:
    with (grounds.logs / "errand").open("w") as file:
        file.write("a line")
    assert (grounds.logs / "errand").read_text() == "a line"


@row(ERRANDS)
def _append_to_a_log_that_was_there(grounds: Grounds) -> None:
    with (grounds.logs / "log").open("a") as file:
        file.write("a line")


@row(ERRANDS)
def _turn_over_a_log(grounds: Grounds) -> None:
    (grounds.logs / "turning").write_bytes(b"1")
    (grounds.logs / "turning").rename(grounds.logs / "turning.1")
    (grounds.logs / "turning.1").unlink()


@row(ERRANDS)
def _make_a_directory_of_logs(grounds: Grounds) -> None:
    (grounds.logs / "more").mkdir()
    (grounds.logs / "more" / "log").write_bytes(b"1")


@row(ERRANDS)
def _write_to_the_null_device(grounds: Grounds) -> None:
    del grounds
    Path("/dev/null").write_bytes(b"away")


@row(ERRANDS)
def _read_random_bytes(grounds: Grounds) -> None:
    del grounds
    with Path("/dev/urandom").open("rb") as file:
        assert len(file.read(8)) == 8


@row(ERRANDS)
def _share_memory_through_a_descriptor(grounds: Grounds) -> None:
    """As an object store passes it: a file without a name, sent over a socket."""
    del grounds
    memory = os.memfd_create("shared")
    os.ftruncate(memory, 4096)
    left, right = socket.socketpair()
    socket.send_fds(left, [b"x"], [memory])
    _, received, _, _ = socket.recv_fds(right, 1, 1)
    with mmap.mmap(received[0], 4096) as mapped:
        mapped[0:4] = b"data"
    assert os.pread(memory, 4, 0) == b"data"


@row(ERRANDS)
def _serve_and_connect_by_tcp(grounds: Grounds) -> None:
    del grounds
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


@row(ERRANDS)
def _connect_to_a_socket_in_the_file_system(grounds: Grounds) -> None:
    place = os.open(grounds.here.parents[1], os.O_PATH)  # its own path may be longer than an address
    socket.socket(socket.AF_UNIX).connect(f"/proc/self/fd/{place}/socket")

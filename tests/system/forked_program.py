"""An interpreter that has loaded the package and forks a process for each program that is asked for.

Run as ``python -m tests.system.forked_program SOCKET``, where ``SOCKET`` is the number of a descriptor. Each
order is one message of JSON with four descriptors: input, output and errors of the program, and a socket on
which it answers with the process's id and, at its end, with the exit status as ``waitpid`` gives it. The
program is the command, a module or a file. It runs as the main program of its process, whose end is that of
any interpreter. When the socket of the orders is closed, this process ends.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

import sessiontree
from sessiontree.cli.app import main as run_command

ROOMS = (
    "api",
    "backends.local",
    "cli",
    "control",
    "dispatch",
    "hooks",
    "journal",
    "models",
    "runtime",
    "session",
    "survey",
    "testing",
    "tree",
    "web",
    "workspace",
)
HEAVY = {"sessiontree.cli.journal", "sessiontree.cli.memory", "sessiontree.dispatch.image_worker"}
"""Modules that start threads or load what few programs need."""
MAX_BYTES = 2**20
STATUS = struct.Struct("i")


def load() -> None:
    """Load what most programs need, so that no process has to."""
    for name in sessiontree.__all__:
        getattr(sessiontree, name)
    for room in ROOMS:
        package = importlib.import_module(f"sessiontree.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if module.name not in HEAVY and not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread of this process would not be forked"  # noqa: PTH208


def take(orders: socket.socket) -> dict[str, Any]:
    """Wait for orders, and return one inside the process that is to carry it out."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(orders, MAX_BYTES, 4)
        if not text:
            sys.exit()
        if os.fork() == 0:
            orders.close()
            keep(socket.socket(fileno=descriptors.pop()))
            return take_place(json.loads(text), descriptors)
        for each in descriptors:
            os.close(each)


def keep(answers: socket.socket) -> None:
    """Fork the program's process and return in it; wait for its end, and tell of it, in this one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if process := os.fork():
        for descriptor in range(3):
            os.close(descriptor)
        answers.send(STATUS.pack(process))
        answers.send(STATUS.pack(os.waitpid(process, 0)[1]))
        os._exit(0)
    answers.close()


def take_place(order: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    """Give this process the session, the descriptors, the directory and the variables of an order."""
    if order["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN if order["deaf"] else signal.default_int_handler)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        os.dup2(descriptors[number], number)
        stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - of this process
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stderr.reconfigure(errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    for descriptor in descriptors:
        os.close(descriptor)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    return order


def run(order: dict[str, Any]) -> None:
    """Run the program of an order."""
    name, arguments = order["program"], order["arguments"]
    sys.argv = [name, *arguments]
    if order["kind"] == "command":
        run_command()
    elif order["kind"] == "module":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(name).parent))
        runpy.run_path(name, run_name="__main__")


def main(descriptor: str) -> NoReturn:
    """Load, and carry out orders until their end."""
    load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    run(take(socket.socket(fileno=int(descriptor))))
    sys.exit()


if __name__ == "__main__":
    main(sys.argv[1])

"""How the gateway and memory get keys: from the program itself, over a socket, when they first need them.

A key is in no argument of an actor, in no environment of a process and in no file that this makes. On
another node the actor of the node stands for the program: it reads the keys that have names there. The
gateway gets keys of providers, and the program's variables that Ray's processes do not have, because models
may read them. Memory gets its storage options and those variables that its settings call for. The program
answers only the processes that its supervisor calls so; the kernel says which process has connected. Other
processes of the user can't read the memory of these two.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.control.peer import hold_process, identify_peer
from sessiontree.models.api_key import get_key_text
from sessiontree.models.named_key import MAX_NAME_BYTES, read_named_key
from sessiontree.runtime.transport.socket_files import connect_to, listen_at

GATEWAY: Final = "gateway"
MEMORY: Final = "memory"
KEYS_SOCKET: Final = "keys"
"""Name of the socket in the runtime's private directory."""
ASKING_S: Final = 10.0
"""Longest time that a gateway waits for a key."""
HEARING_S: Final = 1.0
"""Longest time that the program waits for a question or until its answer is taken."""
MAX_QUESTION_BYTES: Final = MAX_NAME_BYTES + 64
MAX_KEY_BYTES: Final = 65_536
ATTEMPTS: Final = 3
"""How often a process asks if its question is not answered."""
_VARIABLES: Final = "variables"
"""Asks for variables."""
_OPTIONS: Final = "options"
"""Asks for the storage options of memory; every further question is a key's reference, a space, its name."""
_BACKLOG: Final = 16
_STOP_S: Final = 5.0
_SET_DUMPABLE: Final = 4


class KeyServer:
    """The program's end: a thread that answers the gateway and memory.

    Args:
        path: Of the socket, in a directory that only this user can enter.
        role_of: Returns what a process is to the supervisor, such as ``gateway``; called in the thread, may
            raise SessionTreeError.
        variables: Returns the variables for a role.
        options: The storage options of memory.
    """

    def __init__(
        self,
        path: Path,
        role_of: Callable[[int], str],
        variables: Callable[[str], Mapping[str, str]],
        options: Mapping[str, str],
    ) -> None:
        self._role_of = role_of
        self._variables = variables
        self._options = options
        self._listener = listen_at(path, _BACKLOG)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="sessiontree-keys", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        os.eventfd_write(self._bell, 1)
        self._thread.join(_STOP_S)
        self._listener.close()
        os.close(self._bell)

    def _run(self) -> None:
        listener = self._listener.fileno()
        while self._bell not in select.select([listener, self._bell], (), ())[0]:
            with contextlib.suppress(OSError, SessionTreeError):  # who asks is refused, and may ask again
                line, _ = self._listener.accept()
                with line:
                    line.settimeout(HEARING_S)
                    self._answer(line)

    def _answer(self, line: socket.socket) -> None:
        peer = identify_peer(line)
        with hold_process(line, peer) as process:
            if process is None or peer.uid != os.getuid():
                return
            role = self._role_of(peer.pid)
            question = os.fsdecode(line.recv(MAX_QUESTION_BYTES))
            if role in {GATEWAY, MEMORY} and question == _VARIABLES:
                found = self._variables(role)
                words = [f"{name}={value}\0" for name, value in found.items()]
                line.sendall(os.fsencode("".join(words)) or b"\0")
            elif role == MEMORY and question == _OPTIONS:
                line.sendall(json.dumps(dict(self._options)).encode())
            elif role == GATEWAY:
                reference, _, name = question.partition(" ")
                text = get_key_text(reference)
                if text is None and name:
                    text = read_named_key(name)
                line.sendall((text or "").encode())


def fetch_key(path: Path, reference: str, name: str) -> str:
    """Return a key that the program holds, or that has a name on its machine; in the gateway, in a thread.

    Raises:
        OSError: the program is gone, or does not hand it over.
    """
    return _answer_from(path, f"{reference} {name}").decode()


def take_variables(path: Path) -> None:
    """Set the variables that the program has for this process, unless they are set; in a thread.

    They are not in the copy of the environment that the kernel shows.

    Raises:
        OSError: the program is gone, or does not hand them over.
    """
    for word in _answer_from(path, _VARIABLES).split(b"\0"):
        name, equals, value = word.partition(b"=")
        if equals:
            os.environb.setdefault(name, value)


def fetch_options(path: Path) -> dict[str, str]:
    """Return the storage options that the program has for memory; in memory's process, in a thread.

    Raises:
        OSError: the program is gone, or does not hand them over.
    """
    options: dict[str, str] = json.loads(_answer_from(path, _OPTIONS))
    return options


def _answer_from(path: Path, question: str) -> bytes:
    """Return the program's answer; a program that is very busy is asked again.

    Raises:
        OSError: the program does not answer.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _ask(path, question)
        except OSError:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _ask(path: Path, question: str) -> bytes:
    with connect_to(path, ASKING_S) as line:
        line.sendall(os.fsencode(question))
        data = b""
        while more := line.recv(MAX_KEY_BYTES):
            data += more
    if not data:
        raise OSError("it knows no such key, or this process may not ask for it")
    return data


def hide_memory() -> None:
    """Keep other processes of this user from reading this one's memory and environment.

    Raises:
        OSError: the kernel refused.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, *map(ctypes.c_ulong, (0, 0, 0, 0))) < 0:
        raise OSError(ctypes.get_errno(), "can't hide this process's memory")

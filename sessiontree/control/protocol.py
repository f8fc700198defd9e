"""The control socket: its file in the state directory, and its line protocol.

Only the owner of the state directory can open the file. Each line is one JSON object: a request, an answer or
an error.

- in: ``{"id", "ask", "given"}`` calls a method; ``{"withdraw": id}`` withdraws that request;
- out: first ``{"protocol", "release", "pid"}``; then, by id and in any order, ``{"id", "items"}`` any number
  of times and ``{"id", "value"}`` once, or ``{"id", "error"}`` once. An error without an id is the last line.

Nothing is unpickled. The client assigns the ids.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

from sessiontree.contracts import errors
from sessiontree.contracts.errors import JournalError, SessionTreeError, describe_error
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.values.jsonable import dump_json, parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.control.call_codec import SocketAnswer, dump_wire
from sessiontree.journal.tables import write_error
from sessiontree.runtime.transport.socket_files import listen_at, open_connection_to

SOCKET_NAME = "control"


BACKLOG = 64
"""Most connections that wait to be accepted."""


_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED)
"""The errors of the system if no process listens: the file is missing, or its process has ended."""


@dataclass(frozen=True, slots=True)
class OpenSocket:
    """A control socket that a process listens on."""

    path: Path
    listener: socket.socket
    file: tuple[int, int]
    """Device and inode of the socket file."""

    def close(self) -> None:
        """Stop listening, and remove the file if it still belongs to this control socket."""
        self.listener.close()
        with suppress(OSError):
            # A later supervisor may have put its own socket there.
            if _identify_file(self.path) == self.file:
                self.path.unlink()


def open_control_socket(state_dir: Path) -> OpenSocket:
    """Create the socket file (mode 0600 from the start) and listen on it.

    The caller holds the lock of the state directory. An existing file therefore belongs to a dead process and
    is replaced atomically.

    Raises:
        JournalUnwritable: the system refused.
    """
    path = state_dir / SOCKET_NAME
    try:
        listener = listen_at(path, BACKLOG)
    except OSError as error:
        raise write_error(path, error) from error
    return OpenSocket(path, listener, _identify_file(path))


async def connect_control_socket(state_dir: Path) -> socket.socket | None:
    """Return a connection to the process that listens, or None if no process listens.

    The caller bounds the time.

    Raises:
        JournalError: the system refused.
    """
    try:
        return await open_connection_to(state_dir / SOCKET_NAME)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        reason = f"the control socket of its runtime can't be opened: {error.strerror or error}"
        raise JournalError(str(state_dir), f"{reason}; only the user who runs it, or root, may") from error


def _identify_file(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


MAX_LINE_BYTES = 8 * 1024 * 1024


class Lines:
    """Splits a stream into lines.

    Args:
        max_bytes: Longest line, without its newline; after a longer one no more data is accepted.
    """

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self.is_overlong = False
        """Whether a line was too long; the stream is unusable then."""

    @property
    def is_within(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._rest)

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that data completes, without their newlines. Linear in the data's length."""
        if self.is_overlong:
            return []
        found: list[bytes] = []
        searched = len(self._rest)
        self._rest += data
        begin = 0
        while (end := self._rest.find(b"\n", max(begin, searched))) >= 0 and end - begin <= self._max_bytes:
            found.append(bytes(self._rest[begin:end]))
            begin = end + 1
        # the rest holds no newline, or one beyond the limit
        self.is_overlong = (len(self._rest) if end < 0 else end) - begin > self._max_bytes
        if self.is_overlong:
            self._rest.clear()
        else:
            del self._rest[:begin]
        return found


ERRORS: Mapping[str, type[SessionTreeError]] = {
    value.__name__: value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, SessionTreeError)
}
"""Every error that keeps its type; any other is sent as its text."""


def encode_error(error: BaseException) -> dict[str, Any]:
    """Return ``{type, fields}`` of an error; the fields are its constructor's arguments, in order."""
    cls = type(error)
    fields = list(error.args)
    if ERRORS.get(cls.__name__) is cls and _has_json(fields):
        return {"type": cls.__name__, "fields": fields}
    return {"type": SessionTreeError.__name__, "fields": [describe_error(error)]}


def decode_error(wire: object) -> SessionTreeError:
    """Return the error of a wire object; one that matches no type becomes a plain error with its text."""
    if isinstance(wire, Mapping):
        name, fields = wire.get("type"), wire.get("fields")
        cls = ERRORS.get(name) if isinstance(name, str) else None
        if cls is not None and isinstance(fields, list):
            try:
                error = cls(*_restore_fields(cls, fields))
                str(error)  # wrong field types may raise only here
            except (TypeError, ValueError, AttributeError):
                pass
            else:
                return error
    return SessionTreeError(f"the runtime refused: {wire}")


def _restore_fields(cls: type[SessionTreeError], fields: list[Any]) -> list[Any]:
    hints = [hint for name, hint in get_type_hints(cls.__init__).items() if name != "return"]
    made = [
        PermissionTier(field) if hint is PermissionTier else field
        for field, hint in zip(fields, hints, strict=False)
    ]
    return made + fields[len(made) :]


def _has_json(fields: list[Any]) -> bool:
    try:
        dump_json(fields)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


PROTOCOL = 1
MAX_ID = 2**53
MAX_PART_CHARS = 256 * 1024
"""Items are sent in parts of about this size, so that a long answer does not delay others."""


@dataclass(frozen=True, slots=True)
class SocketRequest:
    """A call of a method."""

    id: int
    ask: str
    given: Mapping[str, Any]
    """The arguments by name, as the peer sent them."""


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The answer to a request is no longer wanted."""

    id: int


def parse_line(line: bytes) -> SocketRequest | Withdrawal:
    """Parse a line.

    Raises:
        ValueError: it is not a message of this protocol.
    """
    wire = parse_json(line.decode("utf-8"))
    if not isinstance(wire, dict):
        raise ValueError("it is not a JSON object")
    if "withdraw" in wire:
        return Withdrawal(_check_id(wire["withdraw"]))
    ask, given = wire.get("ask"), wire.get("given", {})
    if not isinstance(ask, str) or not isinstance(given, dict):
        raise ValueError("it names no operation")
    return SocketRequest(_check_id(wire.get("id")), ask, given)


def encode_line(wire: Mapping[str, Any]) -> bytes:
    """Return an object as a line.

    Raises:
        ValueError, TypeError, RecursionError: it has no JSON form.
    """
    return dump_wire(wire).encode("ascii") + b"\n"


def encode_answer(request_id: int, answer: SocketAnswer) -> Iterator[bytes]:
    """Yield an answer's lines, each when it is requested.

    Raises:
        SessionTreeError: one part of it is longer than a line may be.
    """
    part: list[str] = []
    chars = 0
    for item in answer.items:
        text = dump_wire(item)
        part.append(text)
        chars += len(text)
        if chars > MAX_PART_CHARS:
            yield _encode_line(f'{{"id":{request_id},"items":[{",".join(part)}]}}\n')
            part, chars = [], 0
    if part:
        yield _encode_line(f'{{"id":{request_id},"items":[{",".join(part)}]}}\n')
    yield _encode_line(f'{{"id":{request_id},"value":{dump_wire(answer.value)}}}\n')


def encode_error_line(request_id: int | None, error: BaseException) -> bytes:
    """Return an error as a line."""
    return encode_line({"id": request_id, "error": encode_error(error)})


def _encode_line(line: str) -> bytes:
    if len(line) > MAX_LINE_BYTES:
        raise SessionTreeError(
            f"one part of the answer has {len(line):,} bytes, at most {MAX_LINE_BYTES:,}; read the journal"
        )
    return line.encode("ascii")


def _check_id(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_ID:
        raise ValueError("its id is not a whole number from 0")
    return value

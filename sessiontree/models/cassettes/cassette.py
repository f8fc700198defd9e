"""The file of recorded replies: JSON lines that a person can read, compare and edit.

The first line is ``{"cassette": 1, "models": {name: {"contextTokens": …}}}``. Every other line is one
exchange: ``{"model", "request", "reply"}``, and ``"failure"`` if the model failed after these pieces.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.jsonable import dump_readable, parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass

VERSION: Final = 1
"""Version of the form of a cassette that this release reads and writes."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One recorded question and its reply; all members are JSON values without secrets."""

    model: str
    request: Mapping[str, Any]
    """The question as a model sees it; see
    :func:`~sessiontree.models.cassettes.seen_request.build_seen_request`."""
    reply: Sequence[Mapping[str, Any]]
    """The pieces of the reply."""
    failure: Mapping[str, Any] | None = None
    """``{error, message, retryable, retryAfterS}`` if the model failed."""
    line: int = 0
    """Its line in the file, from 1; 0 = it was not read from a file."""

    def to_json(self) -> str:
        """Return the exchange's line."""
        wire = {"model": self.model, "request": self.request, "reply": self.reply}
        return dump_readable(wire if self.failure is None else {**wire, "failure": self.failure})


@dataclass(slots=True)
class Cassette:
    """What a file holds."""

    models: dict[str, int | None] = field(default_factory=dict)
    """The size of the context in tokens, or None, of each model that was recorded, by the model's name."""
    exchanges: list[Exchange] = field(default_factory=list)
    """In the order in which they were recorded."""

    @classmethod
    def read(cls, path: Path) -> Cassette:
        """Return what a file holds.

        Raises:
            ConfigError: it can't be read, is not a cassette, or is of a later release; names the line.
        """
        try:
            # Not `splitlines`: a model's text may hold other line separators, which JSON does not escape.
            lines = path.read_bytes().decode("utf-8", "surrogatepass").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cassette {path} can't be read: {error}") from None
        head = _parse_object(lines[0], path, 1)
        version = head.get("cassette")
        if type(version) is not int or not isinstance(head.get("models"), dict):
            raise ConfigError(
                f'{path} is not a cassette: line 1 is not {{"cassette": {VERSION}, "models": …}}'
            )
        if version != VERSION:
            raise ConfigError(f"cassette {path} has version {version}; this release reads version {VERSION}")
        found = cls({name: _read_size(given) for name, given in head["models"].items()})
        for number, line in enumerate(lines[1:], 2):
            if line.strip():
                found.exchanges.append(_parse_exchange(_parse_object(line, path, number), path, number))
        return found

    def write(self, path: Path) -> None:
        """Replace a file in one step; only its owner may read it.

        Raises:
            OSError: the file can't be written; the earlier file is unchanged.
        """
        models = {name: {"contextTokens": tokens} for name, tokens in sorted(self.models.items())}
        lines = [dump_readable({"cassette": VERSION, "models": models})]
        lines += [exchange.to_json() for exchange in self.exchanges]
        # In the same directory, because only there can a rename replace the file in one step.
        draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
                file.flush()
                # Without it a crash of the machine could leave the new name with no content, and the old
                # replies gone.
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise


def add_exchanges(
    path: Path,
    models: Mapping[str, int | None],
    added: Sequence[Exchange],
    replaced: Collection[Mapping[str, Any]],
) -> None:
    """Add exchanges to a file; blocks while another process does the same.

    Args:
        path: The file; it is made, with its directory, if it is missing.
        models: The size of each model's context, by name.
        added: The exchanges, in order; they come after those that the file keeps.
        replaced: Questions, each as ``{"model", "request"}``, whose earlier exchanges are removed.

    Raises:
        ConfigError: the file exists and is not a cassette.
        OSError: the file can't be written; the earlier file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The directory and not the file: the file is replaced, and a lock on the replaced one excludes nobody.
    with _lock_directory(path.parent):
        cassette = Cassette.read(path) if path.exists() else Cassette()
        gone = {dump_readable(each) for each in replaced}
        kept = [
            each
            for each in cassette.exchanges
            if not gone or dump_readable({"model": each.model, "request": each.request}) not in gone
        ]
        Cassette({**cassette.models, **models}, [*kept, *added]).write(path)


@contextmanager
def _lock_directory(directory: Path) -> Iterator[None]:
    """Exclude other threads and processes that add to a cassette of this directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _parse_object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        found = parse_json(line)
    except ValueError as error:
        raise ConfigError(f"cassette {path}, line {number}: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"cassette {path}, line {number}: this is not an object")
    return found


def _read_size(given: object) -> int | None:
    tokens = given.get("contextTokens") if isinstance(given, dict) else None
    return tokens if type(tokens) is int else None


def _parse_exchange(wire: Mapping[str, Any], path: Path, number: int) -> Exchange:
    model, request, reply, failure = (wire.get(name) for name in ("model", "request", "reply", "failure"))
    if not isinstance(model, str) or not isinstance(request, dict) or not isinstance(reply, list):
        raise ConfigError(f"cassette {path}, line {number}: an exchange has a model, a request and a reply")
    if not all(isinstance(piece, dict) for piece in reply) or not isinstance(failure, dict | None):
        raise ConfigError(f"cassette {path}, line {number}: pieces of a reply and a failure are objects")
    return Exchange(model, request, reply, failure, number)

"""Histories: which response a client continues that sends the whole conversation with each request.

A digest over who said what names the response after which it was said. The digests of a principal are in a
file of the state directory. It is a cache: a history that it does not have begins a new tree.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, Literal, TypeAlias

from sessiontree.api.agents.owned_files import PRIVATE, replace_owned
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_ENTRIES: Final = 50_000
"""Digests that are kept of one principal; the newest."""
Speaker: TypeAlias = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one side said."""

    speaker: Speaker
    text: str


def compute_history_digest(agent: str, instructions: str, said: Iterable[Utterance]) -> str:
    """Return what names a history.

    White space does not count, nor how a client divides what one side said at a time: clients join texts.

    Args:
        agent: The agent that it was said to.
        instructions: What the client asks of the agent beyond that.
        said: What was said, oldest first.
    """
    found = hashlib.sha256(f"{agent}\n{''.join(instructions.split())}".encode())
    for speaker, group in groupby(
        (each for each in said if each.text.strip()), key=lambda each: each.speaker
    ):
        words = "".join("".join(each.text.split()) for each in group)
        # With its length, so that no text can imitate the next speaker.
        found.update(f"\n{speaker} {len(words)} {words}".encode())
    return found.hexdigest()[:40]


class Histories:
    """The histories of all principals of a state directory.

    Args:
        state_dir: The state directory.
    """

    def __init__(self, state_dir: Path) -> None:
        self._place = state_dir / "doors" / "histories"
        self._known: dict[str, dict[str, str]] = {}

    def find(self, principal_id: str, digest: str) -> str | None:
        """Return the response that a history continues, or that a call belongs to; None = nobody knows.

        Raises:
            ConfigError: the file can't be read.
        """
        return self._load_entries(principal_id).get(digest)

    def keep(self, principal_id: str, response_id: str, digests: Iterable[str]) -> None:
        """Note that histories, or calls, belong to a response.

        Raises:
            ConfigError: the file can't be written.
        """
        entries = self._load_entries(principal_id)
        new = {each: response_id for each in digests if entries.get(each) != response_id}
        if not new:
            return
        entries.update(new)
        file = self._locate_file(principal_id)
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Rewritten only when it is twice as long, so that appending stays cheap.
            if len(entries) > 2 * MAX_ENTRIES:
                kept = dict(list(entries.items())[-MAX_ENTRIES:])
                self._known[principal_id] = kept
                replace_owned(file, _format_entries(kept).encode())
                return
            handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
            try:
                # One write in append mode, so that lines of two processes do not mix.
                os.write(handle, _format_entries(new).encode())
            finally:
                os.close(handle)
        except OSError as error:
            raise ConfigError(f"the histories in {file} can't be kept: {error}") from error

    def _load_entries(self, principal_id: str) -> dict[str, str]:
        known = self._known.get(principal_id)
        if known is None:
            known = self._known[principal_id] = dict(self._read(principal_id))
        return known

    def _read(self, principal_id: str) -> Iterator[tuple[str, str]]:
        file = self._locate_file(principal_id)
        try:
            text = file.read_text("ascii", errors="replace")
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigError(f"the histories in {file} can't be read: {error}") from error
        for line in text.splitlines():  # the last one may be cut by a loss of power
            digest, _, response_id = line.partition(" ")
            if response_id:
                yield digest, response_id

    def _locate_file(self, principal_id: str) -> Path:
        return self._place / hashlib.sha256(principal_id.encode()).hexdigest()[:32]


def _format_entries(entries: dict[str, str]) -> str:
    return "".join(f"{digest} {response_id}\n" for digest, response_id in entries.items())

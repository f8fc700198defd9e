"""What interpreters knew of programs that wait: a cache of this process, so that few run their text again."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_SNAPSHOT_BYTES: Final = 512 * 1024
"""Longest snapshot that is kept, compressed."""
MAX_KEPT_BYTES: Final = 16 * 2**20
"""Most that is kept in one process."""


@dataclass(frozen=True, slots=True)
class ProgramSnapshot:
    """An interpreter's state of one program that waits. Its bytes are opaque, and only it reads them."""

    version: str
    """Version of the interpreter that made it; no other one reads it."""
    given: int
    """How many answers the program had been given."""
    digest: str
    """Digest of these answers."""
    state: bytes
    """What the interpreter itself knows, compressed."""
    kept: dict[str, Any]
    """What its process knows of the program besides."""

    def to_order(self) -> dict[str, Any]:
        """Return all of it as the interpreters' process takes it."""
        return {**self.kept, "state": b64encode(self.state).decode()}

    def fits(self, version: str, answers: Sequence[CallResolved]) -> bool:
        """Whether it is of this interpreter, and of a program that was given the first of these answers.

        A host that was lost may have given a program answers that never became facts.
        """
        is_known = self.version == version and self.given <= len(answers)
        return is_known and self.digest == digest_of_answers(answers[: self.given])


def digest_of_answers(answers: Sequence[CallResolved]) -> str:
    """Return a digest of answers and their order."""
    digest = hashlib.sha256()
    for each in answers:
        # The length is part of the digest, so that no two lists of answers have the same text in a row.
        text = each.message.text.encode("utf-8", "surrogatepass")
        digest.update(f"{each.key} {each.outcome} {len(text)} ".encode())
        digest.update(text)
    return digest.hexdigest()


class SnapshotCache:
    """The newest snapshot of each program, up to a bound; the oldest go first."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: dict[str, ProgramSnapshot] = {}

    def put(self, program: str, snapshot: ProgramSnapshot) -> None:
        """Keep a program's snapshot instead of its last one; one that is too long is not kept."""
        self.take(program)
        if len(snapshot.state) > min(MAX_SNAPSHOT_BYTES, self._max_bytes):
            return
        self._kept[program] = snapshot
        self._bytes += len(snapshot.state)
        while self._bytes > self._max_bytes:
            self.take(next(iter(self._kept)))

    def take(self, program: str) -> ProgramSnapshot | None:
        """Remove a program's snapshot, and return it; None = none is kept."""
        found = self._kept.pop(program, None)
        if found is not None:
            self._bytes -= len(found.state)
        return found


SNAPSHOTS: Final = SnapshotCache()
"""Those of all programs on this host."""

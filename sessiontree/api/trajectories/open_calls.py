"""The calls of a tree that have no result yet, and which of them started a child."""

from __future__ import annotations

from typing import Any

from sessiontree.contracts.facts import session_facts, tree_facts
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.recorded.programs import make_program_key
from sessiontree.contracts.values.session_ids import SessionIds, compute_session_key
from sessiontree.journal.record import JournalRecord


class OpenCalls:
    """Follows the calls of one tree.

    Args:
        config: The tree's configuration; the ids of calls are derived from its nonce.
    """

    def __init__(self, config: TreeConfig) -> None:
        self._config = config
        self._ids: dict[str, SessionIds] = {}
        self._open: dict[str, dict[str, tuple[str, str]]] = {}
        """By session and key: a call's tool and id."""
        self._keys: dict[tuple[str, str], str] = {}
        """By session and id of an open call: its key."""

    def add(self, record: JournalRecord, fact: Any) -> None:
        """Take the next fact of the tree in."""
        session = record.session
        match fact:
            case session_facts.TurnReplied(turn=turn, message=message):
                for index, call in enumerate(message.tool_calls):
                    self._begin(record, f"{turn}.{index}", call.name)
            case session_facts.ProgramAdvanced(key=key, calls=calls, first=first):
                for number, asked in enumerate(calls, first):
                    self._begin(record, make_program_key(key, number), asked.tool)
            case session_facts.CallOpened(key=key, tool=tool):
                self._begin(record, key, tool)
            case session_facts.CallResolved(key=key):
                _, call_id = self._open.get(session, {}).pop(key, ("", ""))
                self._keys.pop((session, call_id), None)
            case tree_facts.TreeForked(config=config):
                self._config = config
            case session_facts.SessionForked():
                self._rename(record)

    def find_starter(self, parent: str, spawn_key: str | None) -> str | None:
        """Return the key of the open call of a session that started a child; None = no open call did."""
        return None if spawn_key is None else self._keys.get((parent, spawn_key))

    def has_result(self, session: str, key: str) -> bool:
        """Whether a call is not open."""
        return key not in self._open.get(session, {})

    def find_tool_key(self, session: str, tool: str) -> str | None:
        """Return the key of the newest open call of a tool in a session; None = it has none."""
        named = [key for key, (name, _) in self._open.get(session, {}).items() if name == tool]
        return named[-1] if named else None

    def _begin(self, record: JournalRecord, key: str, tool: str) -> None:
        call_id = self._find_ids(record).call(key)
        self._open.setdefault(record.session, {})[key] = (tool, call_id)
        self._keys[record.session, call_id] = key

    def _find_ids(self, record: JournalRecord) -> SessionIds:
        """Return what made the ids of a session when a fact was decided: a fork makes other ones."""
        found = self._ids.get(record.session)
        if found is None:
            nonces = (fork.nonce for fork in self._config.forks if record.seq <= fork.seq)
            key = compute_session_key(next(nonces, self._config.nonce), record.session)
            found = self._ids[record.session] = SessionIds(record.session, key)
        return found

    def _rename(self, record: JournalRecord) -> None:
        session = record.session
        self._ids.pop(session, None)
        for key, (tool, call_id) in self._open.pop(session, {}).items():
            self._keys.pop((session, call_id), None)
            self._begin(record, key, tool)

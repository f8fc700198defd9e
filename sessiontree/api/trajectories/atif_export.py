"""The export of a stored tree as a trajectory with subagent trajectories: ATIF 1.8, one JSON object.

Two passes: the journal's facts become steps in a spool on the disk, then the steps are written session by
session, each trajectory with those of its children in it. Memory is for what is open, and for the
numbers of each session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from sessiontree.api.trajectories.open_calls import OpenCalls
from sessiontree.api.trajectories.semantic_edges import SemanticEdges
from sessiontree.api.trajectories.session_steps import SessionSteps, select_further_amounts
from sessiontree.api.trajectories.step_spool import StepSpool, to_bytes
from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.contracts.facts import tree_facts
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.request_names import EDGES_KEY
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.journal.claim import locate_journal
from sessiontree.journal.export import ExportSummary, open_private_file
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_config

SCHEMA_VERSION: Final = "ATIF-v1.8"
_PAGE = 1000
"""How many facts are read at a time."""


def export_trajectory(state_dir: Path, tree_id: str, path: Path) -> ExportSummary:
    """Write a tree's trajectory to a file that only its owner may read; the tree may be live.

    Args:
        state_dir: The state directory, or the directory of one of its journals.
        tree_id: The tree.
        path: Replaced once the trajectory is whole.

    Raises:
        TreeNotFound, JournalError: the tree does not exist or can't be read.
        OSError: the file can't be written; the earlier file is unchanged.
    """
    with open_private_file(path) as out:
        return write_trajectory(state_dir, tree_id, out)


def write_trajectory(state_dir: Path, tree_id: str, out: BinaryIO) -> ExportSummary:
    """Write a tree's trajectory to a stream; as :func:`export_trajectory` otherwise."""
    with Journal.open(locate_journal(state_dir, tree_id), read_only=True) as journal, StepSpool() as spool:
        verdict = journal.verify(tree_id)
        trajectory = TreeTrajectory(read_config(journal.row0(tree_id)), spool)
        count = 0
        for record in _read_records(journal, tree_id, verdict.last_good_seq):
            trajectory.add(record)
            count += 1
        trajectory.write(out, verdict.reason)
        return ExportSummary(tree_id, count, verdict.reason)


def _read_records(journal: Journal, tree_id: str, last_seq: int) -> Iterator[JournalRecord]:
    after = 0
    while after < last_seq:
        page = journal.read(tree_id, after_seq=after, max_n=min(_PAGE, last_seq - after))
        if not page:
            return
        yield from page
        after = page[-1].seq


class TreeTrajectory:
    """Collects the steps of a tree's sessions, and writes them.

    Args:
        config: The tree's configuration.
        spool: Where steps are until they are written.
    """

    def __init__(self, config: TreeConfig, spool: StepSpool) -> None:
        self._config = config
        self._spool = spool
        self._models = {row.name: row.model for row in config.agents}
        self._copied_upto = config.forks[-1].seq if config.forks else 0
        self._calls = OpenCalls(config)
        self._edges = SemanticEdges(self._calls)
        self._sessions: dict[str, SessionSteps] = {}

    def add(self, record: JournalRecord) -> None:
        """Take the next fact of the tree in.

        Raises:
            JournalTooNew, JournalCorrupt: no release that is known here wrote it.
        """
        for fact in record.facts:
            self._calls.add(record, fact)
            for edge in self._edges.add(record, fact):
                self._spool.put_edge(edge)
            if record.session:
                steps = self._sessions.get(record.session)
                if steps is not None:
                    steps.at(record.seq, record.at_ms)
                    steps.add(fact)
            else:
                self._add_of_tree(record, fact)

    def _add_of_tree(self, record: JournalRecord, fact: Any) -> None:
        match fact:
            case tree_facts.SessionSpawned(spec=spec):
                model = self._models.get(spec.agent) or self._config.model
                made = SessionSteps(spec, model, self._spool, self._copied_upto)
                made.at(record.seq, record.at_ms)
                self._sessions[spec.session_id] = made
                parent = self._sessions.get(spec.parent or "")
                if parent is not None:
                    parent.at(record.seq, record.at_ms)
                    key = self._calls.find_starter(parent.spec.session_id, spec.key)
                    parent.start_child(spec, self._build_id(spec.session_id), key)
            case tree_facts.VisionAnswered(session=session) if session in self._sessions:
                self._sessions[session].at(record.seq, record.at_ms)
                self._sessions[session].look(fact)
            case tree_facts.SessionEnded(session=session, status=status) if session in self._sessions:
                self._sessions[session].status = status.value

    def write(self, out: BinaryIO, damage: str | None = None) -> None:
        """Write the trajectory of Main, and in it those of all sessions below it.

        Args:
            out: The stream; the caller closes it.
            damage: Why the tree's later facts are missing; None = they are not.

        Raises:
            JournalCorrupt: the facts have no Main.
        """
        for steps in self._sessions.values():
            steps.finish()
        main = self._sessions.get(MAIN)
        if main is None:
            reason = f"no fact of it is good ({damage}); restore it from a backup"
            raise JournalCorrupt(f"tree {self._config.tree_id!r}", reason)
        self._write(out, main, damage)
        out.write(b"\n")

    def _write(self, out: BinaryIO, steps: SessionSteps, damage: str | None) -> Usage:
        """Write one trajectory with those below it; return what all of them used."""
        spec = steps.spec
        out.write(b"{" + _encode_members({
            "schema_version": SCHEMA_VERSION,
            "session_id": self._config.tree_id,
            "trajectory_id": self._build_id(spec.session_id),
            "agent": self._describe_agent(steps),
        }))  # fmt: skip
        _write_list(out, b',"steps":[', self._spool.read_steps(spec.session_id))
        if damage is not None:
            out.write(
                b","
                + _encode_members({"notes": f"The journal is damaged; later steps are missing: {damage}"})
            )
        below = Usage()
        if steps.children:
            opening = b',"subagent_trajectories":['
            for child in steps.children:
                out.write(opening)
                below += self._write(out, self._sessions[child], None)
                opening = b","
            out.write(b"]")
        total = steps.used + below
        out.write(b"," + _encode_members({"final_metrics": _compute_final_metrics(steps, total)}))
        self._write_extra(out, steps)
        out.write(b"}")
        return total

    def _write_extra(self, out: BinaryIO, steps: SessionSteps) -> None:
        spec = steps.spec
        extra = {"session": spec.session_id, "status": steps.status}
        if spec.session_id != MAIN:
            out.write(b"," + _encode_members({"extra": extra}))
            return
        if self._config.forks:
            extra["forked_from"] = self._config.forks[-1].tree_id
        _write_list(
            out,
            b',"extra":{%s,"%s":{"edges":[' % (_encode_members(extra), EDGES_KEY.encode()),
            self._spool.read_edges(),
        )
        out.write(b"}}")

    def _build_id(self, session: str) -> str:
        return f"{self._config.tree_id}/{session}"

    def _describe_agent(self, steps: SessionSteps) -> dict[str, Any]:
        spec = steps.spec
        extra = {"kind": spec.kind.value, "depth": spec.depth, "label": spec.label, "started_by": spec.via}
        return {
            "name": spec.agent,
            "version": self._config.package_version,
            "model_name": steps.model,
            "extra": extra,
        }


def _compute_final_metrics(steps: SessionSteps, total: Usage) -> dict[str, Any]:
    """Return the sums of a trajectory; the format's cost, and it alone, includes what subagents used."""
    used = steps.used
    extra: dict[str, Any] = {
        "own_cost_usd": used.cost_usd,
        "total_prompt_tokens_with_subagents": total.input_tokens,
        "total_completion_tokens_with_subagents": total.output_tokens,
        "total_cached_tokens_with_subagents": total.cache_read_tokens,
    }
    return {
        "total_prompt_tokens": used.input_tokens,
        "total_completion_tokens": used.output_tokens,
        "total_cached_tokens": used.cache_read_tokens,
        "total_cost_usd": total.cost_usd,
        "total_steps": steps.count,
        "extra": extra | select_further_amounts(used),
    }


def _encode_members(values: dict[str, Any]) -> bytes:
    """Return members of an object, without its braces."""
    return to_bytes(values)[1:-1]


def _write_list(out: BinaryIO, opening: bytes, bodies: Iterable[bytes]) -> None:
    out.write(opening)
    comma = b""
    for body in bodies:
        out.write(comma + body)
        comma = b","
    out.write(b"]")

"""The content of a tree, fetched by reference: what a viewer reads when it opens a row.

Each verb takes a JSON object and gives one back; :data:`READ_VERBS` names them. What is read comes from the
journal, which may have a live writer. Nothing here changes a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any, Final

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_fact
from sessiontree.policy.catalog import CATALOG
from sessiontree.tree.rules.spawn import compute_ceiling
from sessiontree.view.feed import TreeFeed
from sessiontree.view.live_tree import LiveTree
from sessiontree.view.program_panel import ProgramPanel, collect_programs
from sessiontree.view.rows import build_program_json, snapshot
from sessiontree.view.session_panel import SessionPanel
from sessiontree.view.timeline import collect_spans
from sessiontree.view.transcript import IMAGE_TYPES, extract_images, find_whole_text, list_items

Json = dict[str, Any]

READ_AT_ONCE: Final = 512
MAX_ITEMS: Final = 500
MAX_SPANS: Final = 20_000
MAX_SESSIONS: Final = 400
"""Most sessions of one timeline."""
MAX_HITS: Final = 200
HIT_CHARS: Final = 120
MAX_STEPS: Final = 200
READ_VERBS: Final = (
    *("transcript", "program", "part", "image", "timeline"),
    *("past", "policy", "receipt", "find"),
)
"""What can be asked about a tree, besides its snapshot and its replay."""
_TIERS: Final = {row.name: row.tier.label for row in CATALOG}


class Content:
    """Answers the verbs that read one tree.

    Args:
        journal: Where its facts are; opened read-only.
        feed: The feed of the tree, which somebody else keeps up to date.
    """

    def __init__(self, journal: Journal, feed: TreeFeed) -> None:
        self._journal = journal
        self._feed = feed
        self._config = feed.config
        self._tree = feed.tree
        tell = (
            *(
                self._read_transcript,
                self._answer_program,
                self._read_part,
                self._read_image,
                self._build_timeline,
            ),
            *(self._read_past, self._read_policy, self._build_receipt, self._find),
        )
        self._verbs: Mapping[str, Callable[[Mapping[str, Any]], Json]] = dict(
            zip(READ_VERBS, tell, strict=True)
        )

    def answer(self, verb: str, given: Mapping[str, Any]) -> Json:
        """Answer a verb.

        Raises:
            ConfigError: the verb is unknown, or what it was given is wrong; says what.
            JournalError: the facts can't be read.
        """
        tell = self._verbs.get(verb)
        if tell is None:
            raise ConfigError(f"{verb!r} is not a question about a tree; ask one of {', '.join(READ_VERBS)}")
        return tell(given)

    def _read_transcript(self, given: Mapping[str, Any]) -> Json:
        session, after = self._find_session(given), _count(given, "after", 0)
        # At least one: with nothing to read, the answer would name the same place as the next one, and its
        # reader would ask for ever.
        most = min(_count(given, "most", 200) or 1, MAX_ITEMS)
        items: list[Json] = []
        is_more = True
        while is_more and len(items) < most:  # the facts of a program's calls are not items
            records = self._journal.read_session(
                self._config.tree_id, session.session_id, after_seq=after, max_n=most
            )
            items += list_items(records)
            is_more = len(records) == most
            after = records[-1].seq if records else after
        return {"items": items, "next": after if is_more else None, "seq": after}

    def _answer_program(self, given: Mapping[str, Any]) -> Json:
        """Answer with what a program does; one that runs is known, one that has ended is read again."""
        session, key = self._find_session(given), given.get("key")
        most, after = min(_count(given, "most", 0), MAX_STEPS), _count(given, "after", 0)
        panel = session.programs.get(key) if isinstance(key, str) else None
        if panel is None and isinstance(key, str):
            panel = self._read_programs(session).get(key)
        if panel is None:
            raise ConfigError(f"key: the session has no program {str(key)[:40]!r}")
        return build_program_json(panel, after, most)

    def programs(self, path: str) -> Json:
        """Return all programs of a session by key, each with its first calls.

        Raises:
            ConfigError: the tree has no such session.
            JournalError: the facts can't be read.
        """
        found = self._read_programs(self._find_session({"session": path}))
        return {key: build_program_json(panel, 0, MAX_STEPS) for key, panel in found.items()}

    def _read_programs(self, session: SessionPanel) -> dict[str, ProgramPanel]:
        records = self._journal.read_session(self._config.tree_id, session.session_id)
        return collect_programs((each.seq, fact) for each in records for fact in each.facts)

    def _read_part(self, given: Mapping[str, Any]) -> Json:
        seq, item, name = _count(given, "seq", None), given.get("item"), given.get("name")
        found = self._read_records(seq)
        text = None
        if found and isinstance(name, str) and isinstance(item, str | None):
            text = find_whole_text(found[0], item, name)
        if text is None:
            raise ConfigError(f"fact {seq} has no text named {str(name)[:40]!r}")
        return {"text": text}

    def read_images(self, refs: Iterable[str]) -> Iterator[tuple[str, Json]]:
        """Yield images by their references; a record with many is read once for those that come together.

        Raises:
            ConfigError: a reference names no image that can be shown.
            JournalError: the facts can't be read.
        """
        for _, of_record in groupby(refs, key=lambda ref: ref.partition(".")[0]):
            images: list[ImageContent] | None = None
            for ref in of_record:
                images = self._load_images(ref) if images is None else images
                yield ref, _describe_image(ref, images)

    def _read_image(self, given: Mapping[str, Any]) -> Json:
        ref = str(given.get("ref"))
        return _describe_image(ref, self._load_images(ref))

    def _load_images(self, ref: str) -> list[ImageContent]:
        """Return all images of the record that a reference names."""
        seq, _, number = ref.partition(".")
        # Checked as text before it is a number, because Python refuses to read a very long one, with another
        # error.
        is_ref = seq.isascii() and seq.isdecimal() and number.isascii() and number.isdecimal()
        records = self._read_records(int(seq)) if is_ref and len(seq) < 16 and len(number) < 16 else []
        return extract_images(records[0]) if records else []

    def _read_records(self, seq: int) -> list[JournalRecord]:
        return self._journal.read(self._config.tree_id, after_seq=seq - 1, max_n=1) if seq > 0 else []

    def _build_timeline(self, given: Mapping[str, Any]) -> Json:
        paths = given.get("sessions")
        if not isinstance(paths, list) or len(paths) > MAX_SESSIONS:
            raise ConfigError(f"sessions: give a list of at most {MAX_SESSIONS} paths")
        most = min(_count(given, "most", 2_000), MAX_SPANS)
        spans: list[list[Any]] = []
        for path in paths:
            session = self._find_session({"session": path})
            records = self._journal.read_session(self._config.tree_id, session.session_id)
            found = islice(collect_spans(records), most - len(spans))
            spans += [
                [session.number, span.start_ms, span.end_ms, span.what, span.name, span.why] for span in found
            ]
        return {"spans": spans}

    def _read_past(self, given: Mapping[str, Any]) -> Json:
        upto = _count(given, "seq", None)
        tree, seq = LiveTree(), 0
        while seq < upto:
            records = self._journal.read(
                self._config.tree_id, after_seq=seq, max_n=min(READ_AT_ONCE, upto - seq)
            )
            for record in records:
                tree.take(record)
            if not records:
                break
            seq = records[-1].seq
        return snapshot(tree, self._config, feed=self._feed.id)

    def _read_policy(self, given: Mapping[str, Any]) -> Json:
        session = self._find_session(given)
        spec = self._read_spec(session)
        parent = None if spec.parent is None else self._read_spec(self._tree.sessions[spec.parent])
        return {
            "tools": [
                [make_visible(tool.name), tool.name in spec.tools, _TIERS.get(tool.name, ""), why]
                for tool in self._config.tools
                for why in [self._explain_tool(spec, parent, tool.name, spec.kind in tool.kinds)]
            ]
        }

    def _explain_tool(self, spec: SessionSpec, parent: SessionSpec | None, tool: str, fits_kind: bool) -> str:
        """Say why a session holds a tool or does not."""
        if tool in spec.tools:
            return "held"
        if tool in spec.delegates:
            return "only its children may hold it: its agent delegates it"
        if not fits_kind:
            return f"no {spec.kind} can hold it"
        removed = () if self._config.policy is None else self._config.policy.removed
        if any(row.agent == spec.agent and row.kind == spec.kind and tool in row.tools for row in removed):
            return "the owner's policy removes it"
        agent = next((row for row in self._config.agents if row.name == spec.agent), None)
        if agent is not None and agent.tools is not None and tool not in agent.tools:
            return f"agent {make_visible(spec.agent)} does not name it"
        if parent is not None and tool not in compute_ceiling(parent):
            return f"its parent {parent.session_id} does not hold it"
        return "it was not given at its spawn"

    def _build_receipt(self, given: Mapping[str, Any]) -> Json:
        return {"lines": [[each.session_id, each.state(), each.reason()] for each in self._tree.rows()]}

    def _find(self, given: Mapping[str, Any]) -> Json:
        text, most = given.get("text"), min(_count(given, "most", 50), MAX_HITS)
        if not isinstance(text, str) or not text.strip():
            raise ConfigError("text: give the words to look for")
        wanted, seq = text.casefold(), 0
        hits: list[list[Any]] = []
        while len(hits) < most:
            records = self._journal.read(self._config.tree_id, after_seq=seq, max_n=READ_AT_ONCE)
            if not records:
                break
            seq = records[-1].seq
            hits += [
                hit
                for record in records
                if record.session in self._tree.sessions
                for item in list_items([record], with_steps=True)
                if (hit := self._find_hit(record.session, item, wanted)) is not None
            ]
        return {"hits": hits[:most]}

    def _find_hit(self, session: str, item: Json, wanted: str) -> list[Any] | None:
        for text in (str(item["title"]), str(item["text"])):
            at = text.casefold().find(wanted)
            if at >= 0:
                return [self._tree.sessions[session].number, item["seq"], text[max(0, at - 40) :][:HIT_CHARS]]
        return None

    def _read_spec(self, session: SessionPanel) -> SessionSpec:
        (record,) = self._journal.read(self._config.tree_id, after_seq=session.spawned_seq - 1, max_n=1)
        spec: SessionSpec = read_fact(record.text).spec
        return spec

    def _find_session(self, given: Mapping[str, Any]) -> SessionPanel:
        path = given.get("session")
        found = self._tree.sessions.get(path) if isinstance(path, str) else None
        if found is None:
            raise ConfigError(f"session: the tree has no session {path!r}")
        return found


def _describe_image(ref: str, images: list[ImageContent]) -> Json:
    """Return the image of a reference; ``images`` is empty if the reference has no form of one."""
    number = int(ref.partition(".")[2]) if images else 0
    # The type is checked again: any other one, such as SVG, could run in the page that shows it.
    if number >= len(images) or images[number].mime_type not in IMAGE_TYPES:
        raise ConfigError(f"ref: {ref[:40]!r} names no image that can be shown")
    return {"mime": images[number].mime_type, "base64": images[number].data}


def _count(given: Mapping[str, Any], name: str, default: int | None) -> int:
    value = given.get(name, default)
    # A page's numbers are exact up to this one. Python's have no end, and one beyond 64 bits would fail in
    # SQLite.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ConfigError(f"{name}: give a whole number from 0, not {str(value)[:40]!r}")
    return value

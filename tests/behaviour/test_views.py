"""Views: what a page reads of a tree is what happened in it, while it runs and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sessiontree import ConfigError, FunctionModel, ModelRequest, SessionTree, script_call
from sessiontree.contracts.facts.session_facts import MessageReceived, TurnReplied, TurnStarted
from sessiontree.journal.journal import Journal
from sessiontree.journal.replay import read_config
from sessiontree.models.answers import Answer
from sessiontree.view.content import READ_VERBS, Content
from sessiontree.view.feed import TreeFeed
from sessiontree.view.rows import COLUMNS
from tests.behaviour.fact_fixtures import until
from tests.behaviour.tree_fixtures import Opener


def _answer(request: ModelRequest) -> Answer:
    """Main edits a file, fails at another one, and sends a Worker; the Worker says a word in bold."""
    if request.session_id != "main":
        return "**done** <script>alert(1)</script>"
    if request.turn == 1:
        return [
            script_call("edit", path="a.txt", old_text="one", new_text="two"),
            script_call("read", path="missing.txt"),
        ]
    if request.turn == 2:
        return [script_call("sessions_spawn", task="look", kind="worker")]
    return "# All\n\nwell"


def _taken(tree: SessionTree) -> tuple[TreeFeed, Content, Journal]:
    """Return the feed and the content of a tree, as its journal holds it now."""
    journal = Journal.open(tree.state_dir, read_only=True)
    feed = TreeFeed(read_config(journal.row0(tree.tree_id)))
    for record in journal.read(tree.tree_id):
        feed.take(record)
    return feed, Content(journal, feed), journal


async def _heard_the_child(tree: SessionTree) -> None:
    """Wait until Main has answered its second message, the child's: nothing more happens in the tree."""
    awaited: list[type] = [MessageReceived, MessageReceived, TurnStarted, TurnReplied]

    def is_last(fact: object) -> bool:
        if isinstance(fact, awaited[0]):
            awaited.pop(0)
        return not awaited

    await until(tree, object, session="main", where=is_last)


def _rows(view: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in view["rows"]}


async def test_view_shows_what_happened(open_tree: Opener) -> None:
    """Rows, transcript with cleaned Markdown and differences, timeline, policy, search, and the past."""
    (open_tree.workspace / "a.txt").write_text("one\n", "utf-8")
    async with open_tree(FunctionModel(_answer), approvals="auto") as tree:
        await tree.main.send("begin **now**")
        await _heard_the_child(tree)
        feed, content, journal = _taken(tree)
        with journal:
            rows = _rows(feed.snapshot())
            assert rows["main"]["failures"] == 1
            (worker,) = [path for path in rows if path != "main"]
            assert rows[worker]["state"] == "completed"
            assert rows[worker]["parent"] == 0

            items = content.answer("transcript", {"session": "main"})["items"]
            kinds = [item["kind"] for item in items]
            assert kinds[0] == "notice"
            assert items[kinds.index("message")]["html"] == "<p>begin <strong>now</strong></p>\n"
            edit = next(item for item in items if item["kind"] == "call" and item["call"]["tool"] == "edit")
            assert edit["diff"] == [["@", "a.txt"], ["-", "one"], ["+", "two"]]
            named = {"seq": edit["seq"], "item": edit["name"]}
            assert content.answer("part", {**named, "name": "new_text"}) == {"text": "two"}
            assert '"path":"a.txt"' in content.answer("part", {**named, "name": "text"})["text"]
            results = {item["call"]["tool"]: item for item in items if item["kind"] == "result"}
            assert results["read"]["is_failure"]
            assert not results["edit"]["is_failure"]
            assert ["+", "two"] in results["edit"]["diff"]
            assert items[-1]["html"] == "<h1>All</h1>\n<p>well</p>\n"

            said = content.answer("transcript", {"session": worker})["items"][-1]
            assert said["html"].startswith("<p><strong>done</strong> &lt;script&gt;")
            first = content.answer("transcript", {"session": "main", "most": 1})
            rest = content.answer("transcript", {"session": "main", "after": first["next"]})
            assert first["items"] + rest["items"] == items

            spans = content.answer("timeline", {"sessions": ["main"]})["spans"]
            assert {span[3] for span in spans} >= {"model", "tool"}
            assert all(span[2] is None or span[1] <= span[2] for span in spans)
            tools = {row[0]: row for row in content.answer("policy", {"session": worker})["tools"]}
            assert tools["read"][1]
            assert not tools["write"][1]
            assert "worker" in tools["write"][3]
            assert content.answer("find", {"text": "ALL"})["hits"]
            past = _rows(content.answer("past", {"seq": feed.tree.last_seq // 2}))
            assert len(past) <= len(rows)
            whole = content.answer("past", {"seq": feed.tree.last_seq})
            assert _rows(whole) == rows
            feed.set_live(True)
            assert content.answer("past", {"seq": 1})["feed"] == feed.id


BAD: list[tuple[str, dict[str, Any]]] = [
    ("program", {"session": "main", "key": "1.0"}),
    ("program", {"session": "main", "key": 1}),
    ("nothing", {}),
    ("transcript", {"session": "main/b99"}),
    ("transcript", {"session": ["main"]}),
    ("transcript", {"session": "main", "after": -1}),
    ("transcript", {"session": "main", "most": True}),
    ("part", {"seq": 1, "item": "9.9", "name": "text"}),
    ("part", {"seq": 10**9, "item": "0.0", "name": "text"}),
    ("part", {"seq": 1, "item": "²", "name": "text"}),
    ("part", {"seq": 1, "item": "9" * 5_000 + ".0", "name": "text"}),
    ("part", {"seq": 1, "item": "0." + "9" * 5_000, "name": "text"}),
    ("part", {"seq": 1, "name": "path"}),
    ("part", {"seq": 1, "item": ["0.0"], "name": "text"}),
    ("image", {"ref": "1.0"}),
    ("image", {"ref": "../../etc/passwd"}),
    ("image", {"ref": {"a": 1}}),
    ("timeline", {"sessions": "main"}),
    ("timeline", {"sessions": ["main"] * 1_000}),
    ("past", {}),
    ("past", {"seq": 1.5}),
    ("policy", {}),
    ("find", {"text": "  "}),
    ("find", {"text": 5}),
]


async def test_bad_question_is_refused_in_words(open_tree: Opener) -> None:
    """Whatever a page asks, it gets an answer or an error that says what was wrong."""
    async with open_tree(FunctionModel(_answer)) as tree:
        _, content, journal = _taken(tree)
        with journal:
            for bad in BAD:
                with pytest.raises(ConfigError, match=r"\w"):
                    content.answer(*bad)
            for verb in READ_VERBS:
                content_of: dict[str, Any] = {"session": "main", "sessions": [], "seq": 0, "text": "x"}
                if verb not in {"part", "image", "program"}:
                    content.answer(verb, content_of)

"""Images of a transcript: each has a reference of its own, which leads to it."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from sessiontree import ConfigError
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.journal.record import JournalRecord
from sessiontree.view.content import Content
from sessiontree.view.transcript import list_items


def resolve(number: int, *types: str) -> CallResolved:
    """Return the end of a call with an image of each type; what an image holds says which it is."""
    images = [
        ImageContent(base64.b64encode(f"{number}.{place}".encode()).decode(), each)
        for place, each in enumerate(types)
    ]
    message = ToolResultMessage(f"c{number}", "look", (TextContent("seen"), *images), None, False, 1)
    return CallResolved(f"1.{number}", "ok", message)


class StillJournal:
    """Holds records, and counts how often they are read."""

    def __init__(self, *records: JournalRecord) -> None:
        self.records = records
        self.reads = 0

    def read(self, tree_id: str, *, after_seq: int, max_n: int) -> list[JournalRecord]:
        self.reads += 1
        return [each for each in self.records if each.seq > after_seq][:max_n]


def make_content(*facts: CallResolved) -> tuple[Content, StillJournal, list[str]]:
    """Return what answers for a tree whose facts are one record, and the references of its images."""
    record: Any = SimpleNamespace(seq=1, at_ms=1, facts=facts)
    journal = StillJournal(record)
    items = list(list_items(journal.records))
    refs = [image["ref"] for item in items for image in item["images"]]
    feed: Any = SimpleNamespace(config=SimpleNamespace(tree_id="t"), tree=None)
    return Content(journal, feed), journal, refs  # type: ignore[arg-type]


FACTS = (resolve(0, "image/png", "image/svg+xml", "image/png"), resolve(1), resolve(2, "image/png"))
SHOWN = ["0.0", "0.2", "2.0"]


def test_reference_leads_to_its_own_image() -> None:
    """Also where one record holds several facts, and where images between them are not shown."""
    content, _, refs = make_content(*FACTS)
    assert len(set(refs)) == len(refs) == 3
    found = [content.answer("image", {"ref": ref})["base64"] for ref in refs]
    assert [base64.b64decode(each).decode() for each in found] == SHOWN


def test_record_with_many_images_is_read_once() -> None:
    """A saved page asks for all of them."""
    content, journal, refs = make_content(*FACTS)
    found = dict(content.read_images(refs))
    assert [base64.b64decode(found[ref]["base64"]).decode() for ref in refs] == SHOWN
    assert journal.reads == 1
    for odd in ("1.1", "1.4", "1.-1", "1.\u0661", "2.0", "x", "1." + "9" * 5_000):
        with pytest.raises(ConfigError, match="names no image"):
            list(content.read_images([odd]))

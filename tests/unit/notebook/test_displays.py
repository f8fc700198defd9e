"""What values show in a cell: HTML of a few tags whatever they hold, and text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from sessiontree import (
    ApprovalRequest,
    JournalRecord,
    ReceiptLine,
    SessionKind,
    SessionResult,
    SessionStatus,
    Usage,
)
from sessiontree.notebook.cell_html import (
    _PICTURE,
    MAX_ROWS,
    render_picture_html,
    render_tree_html,
    render_tree_text,
)
from sessiontree.notebook.displays import (
    record_bundle,
    render_result,
    render_sequence,
    render_usage,
    request_bundle,
)
from sessiontree.view.rows import COLUMNS
from tests.unit.view.test_markdown import HOSTILE

TAGS = {
    *(
        "p",
        "br",
        "span",
        "div",
        "pre",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "em",
        "strong",
        "s",
    ),
    *("blockquote", "ul", "ol", "li", "hr", "h1", "h2", "h3", "h4", "h5", "h6"),
}
HOSTILE_VALUES = [*HOSTILE, "</pre></td></tr></table><script>alert(1)</script>", "$\\href{javascript:x}{y}$"]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[tuple[str, str | None]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))


def assert_harmless(html: str) -> None:
    """It has none but the known tags, and no attribute but the scope of a header."""
    tags = _Tags()
    tags.feed(html)
    for tag, attributes in tags.found:
        assert tag in TAGS
        assert attributes in ([], [("scope", "col")], [("scope", "row")])
    assert "$" not in html.replace("<span>$</span>", "")


def snapshot_with(text: str) -> dict[str, Any]:
    """A snapshot in which everything that a person or a model chooses is one text."""
    row = ["main", "main", text, None, "waiting for approval", text, text, 1, 7, 0.5, 0, None, 0, None]
    request = {"session": "main", "tool": text, "tier": "Elevated", "arguments": [[text, text, True]]}
    totals = {"sessions": 1, "live": 1, "tokens": 7, "cost_usd": 0.5, "requests": 1, "questions": 1}
    item = {"header": text, "text": text, "options": [{"label": text, "hint": text}]}
    return {
        "tree": {"id": "t1", "purpose": text},
        "totals": totals,
        "columns": COLUMNS,
        "rows": [row],
        "approvals": [request],
        "questions": [{"session": "main", "items": [item]}],
    }


@pytest.mark.parametrize("text", HOSTILE_VALUES)
def test_nothing_that_a_value_holds_becomes_markup(text: str) -> None:
    """In any member of any value that shows itself."""
    request = ApprovalRequest("r1", "main", text, {text: text}, "d", text, 0, "main", (text,), (), text)
    result = SessionResult(
        SessionStatus.COMPLETED, text, {"x": text, text: 1}, given_up=(text,), session_id="main/w1"
    )
    line = ReceiptLine("main", SessionKind.MAIN, SessionStatus.FAILED, False, text, 0, Usage(), text, text)
    record = JournalRecord(1, "main", text, 0, text)
    bundles = [
        request_bundle(request),
        render_result(result),
        record_bundle(record),
        render_usage(Usage(1, 2)),
        *(render_sequence(several) for several in ([line], [record], [result])),
    ]
    for bundle in bundles:
        assert bundle is not None
        assert_harmless(bundle["text/html"])
        assert "\u202e" not in bundle["text/plain"]
    snapshot = snapshot_with(text)
    assert_harmless(render_tree_html(snapshot))
    before, _, after = render_picture_html(snapshot).partition(render_tree_html(snapshot))
    assert (before, after) == (_PICTURE, "</div>")
    assert "\u202e" not in render_tree_text(snapshot)


def test_tree_is_a_table_in_tree_order_with_a_bound() -> None:
    """Children come after their parents, and what is too much is counted."""
    snapshot = {**snapshot_with("x"), "questions": []}
    first = snapshot["rows"][0]
    snapshot["rows"] += [["main/b1", *first[1:3], 0, *first[4:]], ["main/b2", *first[1:3], 0, *first[4:]]]
    snapshot["rows"] += [["main/b1/w1", *first[1:3], 1, *first[4:]]]
    paths = [line.split()[0] for line in render_tree_text(snapshot).splitlines()[3:]]
    assert paths == ["main", "main/b1", "main/b1/w1", "main/b2"]
    assert [line.split()[0] for line in render_tree_text(snapshot, "main/b1").splitlines()[3:]] == [
        "main/b1",
        "main/b1/w1",
    ]
    snapshot["rows"] += [[f"main/w{number}", *first[1:3], 0, *first[4:]] for number in range(1, MAX_ROWS + 1)]
    assert f"… {4} more" in render_tree_text(snapshot)


@pytest.mark.parametrize("values", [[], (), [1], ("a", "b"), [None]])
def test_sequence_of_anything_else_is_left_alone(values: Any) -> None:
    """Lists of a notebook that are not of this package look as ever."""
    assert render_sequence(values) is None

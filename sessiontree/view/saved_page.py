"""A tree as one self-contained HTML file: the same page on data that is in the file.

Nothing in the file is fetched. Its one script is allowed by its hash, and the data is JSON in which no
character can end the element that holds it.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator
from typing import Any, Final

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.journal import Journal
from sessiontree.journal.replay import read_config
from sessiontree.view.bundle import join_modules
from sessiontree.view.content import MAX_ITEMS, MAX_SPANS, Content
from sessiontree.view.feed import TreeFeed

MAX_CONTENT_BYTES: Final = 48 * 1024 * 1024
"""Most bytes of transcripts, times and images; sessions for which nothing is left keep their rows alone."""
MOMENTS: Final = 24
"""How many past states the file holds besides the last."""
MAX_STATES_SESSIONS: Final = 2_000
"""Trees of more sessions have no past states in their files: each is as long as the tree is wide."""
READ_AT_ONCE: Final = 4_096

_ENTRY: Final = """
const saved = JSON.parse(document.getElementById("saved").textContent);
mountTree(document.body, new FrozenSource(saved));
"""
_CSP: Final = (
    "default-src 'none'; script-src 'sha256-{digest}'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types sessiontree"
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{csp}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
{head}
</head>
<body>{body}</body>
</html>
"""


def write_page(journal: Journal, tree_id: str) -> str:
    """Return a tree as an HTML page.

    Args:
        journal: The journal that holds it, open.
        tree_id: The tree.

    Raises:
        TreeNotFound, JournalError: it can't be read.
    """
    saved = save_tree(journal, tree_id)
    tree = saved["snapshot"]["tree"]
    script = join_modules("session_tree.js", "source_frozen.js") + _ENTRY
    return render_saved_page(saved, script, f"{tree['id']} {tree['purpose']}")


def save_tree(journal: Journal, tree_id: str, moments: int = MOMENTS) -> dict[str, Any]:
    """Return what a page shows of a tree without a server, as JSON.

    Args:
        journal: The journal that holds it, open.
        tree_id: The tree.
        moments: How many past states are kept besides the last.

    Raises:
        TreeNotFound, JournalError: it can't be read.
    """
    config = read_config(journal.row0(tree_id))
    feed = TreeFeed(config)
    seq = 0
    while records := journal.read(tree_id, after_seq=seq, max_n=READ_AT_ONCE):
        for record in records:
            feed.take(record)
        seq = records[-1].seq
    return dict(_collect_members(feed, Content(journal, feed), moments))


def render_saved_page(saved: dict[str, Any], script: str, title: str) -> str:
    """Return a page of a script and its data; the script is not escaped, because it is the product's own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # A model's text could otherwise end the element with "</script>" and begin one of its own.
    data = dump_json(saved).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return format_page(
        title[:200],
        _CSP.format(digest=digest),
        f'<script id="saved" type="application/json">{data}</script>',
        f'<script type="module">{script}</script>',
    )


def format_page(title: str, policy: str, head: str, body: str = "") -> str:
    """Return a page that needs no server; title and policy are escaped.

    Args:
        title: Its title, as text.
        policy: Its Content Security Policy.
        head: More of its head, as HTML.
        body: Its body, as HTML.
    """
    return _PAGE.format(
        csp=html.escape(policy, quote=True), title=html.escape(make_visible(title)), head=head, body=body
    )


def _collect_members(feed: TreeFeed, content: Content, most_moments: int) -> Iterator[tuple[str, Any]]:
    """Yield the members of the data, until it is full."""
    tree = feed.tree
    left = MAX_CONTENT_BYTES
    transcripts: dict[str, Any] = {}
    spans: list[Any] = []
    images: dict[str, Any] = {}
    programs: dict[str, Any] = {}
    for session in tree.rows():
        items = list(_read_items(content, session.session_id))
        found = content.answer("timeline", {"sessions": [session.session_id], "most": MAX_SPANS})["spans"]
        refs = [image["ref"] for item in items for image in item["images"]]
        shown = dict(content.read_images(refs))
        has_programs = any(item["kind"] == "program" for item in items)
        own = content.programs(session.session_id) if has_programs else {}
        # Counted as it will be written, and before it is kept: the file must open in a browser.
        left -= len(dump_json([items, found, shown, own]))
        if left < 0:
            break
        transcripts[session.session_id] = items
        spans += found
        images |= shown
        programs |= {session.session_id: own} if own else {}
    yield "snapshot", feed.snapshot()
    yield "transcripts", transcripts
    yield "spans", spans
    yield "images", images
    yield "programs", programs
    yield "receipt", content.answer("receipt", {})
    if tree.total <= MAX_STATES_SESSIONS:
        paths = [session.session_id for session in tree.rows()]
        yield "policies", {path: content.answer("policy", {"session": path}) for path in paths}
        steps = range(1, most_moments + 1)
        moments = sorted({max(1, tree.last_seq * number // most_moments) for number in steps})
        yield "past", [content.answer("past", {"seq": seq}) for seq in moments if tree.last_seq]


def _read_items(content: Content, session: str) -> Iterator[dict[str, Any]]:
    after: int | None = 0
    while after is not None:
        page = content.answer("transcript", {"session": session, "after": after, "most": MAX_ITEMS})
        yield from page["items"]
        after = page["next"]

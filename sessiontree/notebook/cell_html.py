"""What a saved notebook shows: escaped text in a few tags, without scripts, links or others' attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from sessiontree.channels.safe_text import make_visible
from sessiontree.view.markdown import make_lines_visible, render_markdown

MAX_ROWS: Final = 200
"""Most rows of a table; the rest is counted."""
MAX_CELL_CHARS: Final = 400
_PICTURE: Final = """<style>
.jp-OutputArea-child:has(.sessiontree-picture):has(+ .jp-OutputArea-child session-tree),
.jp-OutputArea-child:has(.sessiontree-picture)
  + .jp-OutputArea-child:not(:has(session-tree, [data-mime-type])) { display: none; }
</style>
<div class="sessiontree-picture">"""
"""Of a picture and the widget behind it JupyterLab shows one: the widget as long as its kernel has it.

What JupyterLab shows instead of a widget is the only output without a type.
"""
MAX_TEXT_CHARS: Final = 20_000


def escape_cell_text(text: str) -> str:
    """Return a text as HTML for a notebook.

    A notebook reads what is between two dollar signs of one text as a formula. Signs in elements of their own
    are in different texts.
    """
    return _escape_dollars(escape(make_visible(text)))


def block_text(text: str) -> str:
    """Return a text of several lines as HTML."""
    return f"<pre>{_escape_dollars(escape(make_lines_visible(text[:MAX_TEXT_CHARS])))}</pre>"


def render_prose(text: str) -> str:
    """Return the Markdown of a model or a person as a cleaned fragment; a very long text as it is."""
    fragment = render_markdown(text)
    return block_text(text) if fragment is None else f"<div>{_escape_dollars(fragment)}</div>"


def render_html_table(lines: Iterable[str], table: Iterable[Sequence[str]]) -> str:
    """Return lines and a table, its header first, as escaped HTML for a notebook."""
    head, *rows = table
    cells = "".join(f"<th scope='col'>{escape_cell_text(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape_cell_text(each)}</td>" for each in row) + "</tr>" for row in rows
    )
    said = "<br>".join(escape_cell_text(line) for line in lines)
    return f"<p>{said}</p><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def render_text_table(lines: Iterable[str], table: Iterable[Sequence[str]]) -> str:
    """Return lines and a table as plain text."""
    rows = [[make_visible(each) for each in row] for row in table]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    shown = [
        "  ".join(each.ljust(width) for each, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([*(make_visible(line) for line in lines), *shown])


def shorten(text: str) -> str:
    """Return the first line of a text, cut to what a cell of a table holds."""
    line = text.partition("\n")[0]
    return line if len(line) <= MAX_CELL_CHARS else line[:MAX_CELL_CHARS] + "…"


def describe_tree(snapshot: Mapping[str, Any]) -> list[str]:
    """Return what a tree is for, and what it used, as lines."""
    tree, totals = snapshot["tree"], snapshot["totals"]
    cost = "" if totals["cost_usd"] is None else f", ${totals['cost_usd']:,.4f}"
    waiting = totals["requests"] + totals["questions"]
    waits = f", {waiting:,} waiting for you" if waiting else ""
    return [
        f"{tree['id']}: {tree['purpose']}",
        f"{totals['sessions']:,} sessions, {totals['live']:,} live, {totals['tokens']:,} tokens{cost}{waits}",
    ]


def build_tree_table(snapshot: Mapping[str, Any], below: str = "main") -> list[tuple[str, ...]]:
    """Return the sessions of a snapshot as rows of text, the header first.

    Args:
        snapshot: The snapshot.
        below: Only this session and those below it.
    """
    place = {name: number for number, name in enumerate(snapshot["columns"])}
    rows = [row for row in _sort_in_tree_order(snapshot["rows"], place["parent"]) if _is_below(row[0], below)]
    table: list[tuple[str, ...]] = [("session", "kind", "label", "state", "why", "turns", "tokens")]
    for row in rows[:MAX_ROWS]:
        path, why = row[place["path"]], row[place["why"]] or row[place["call"]]
        count = f"{row[place['turns']]:,}", f"{row[place['tokens']]:,}"
        table.append(
            (path, row[place["kind"]], row[place["label"]], row[place["state"]], shorten(why), *count)
        )
    if len(rows) > MAX_ROWS:
        table.append((f"… {len(rows) - MAX_ROWS:,} more", *[""] * 6))
    return table


def request_html(request: Mapping[str, Any]) -> str:
    """Return an approval of a snapshot as a card, with each of its arguments."""
    head = f"{request['session']} asks for {request['tool']} ({request['tier']})"
    given = ((name, text + "…" if is_cut else text) for name, text, is_cut in request["arguments"])
    return render_card([head], given)


def render_question_html(question: Mapping[str, Any]) -> str:
    """Return a question of a snapshot as a card, with the options of each of its parts."""
    return render_card([f"{question['session']} asks"], _list_parts(question))


def _list_parts(question: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each part of a question with its options, one a line."""
    for number, item in enumerate(question["items"], 1):
        hints = ((each["label"], each["hint"]) for each in item["options"])
        options = (f"- {label}: {hint}" if hint else f"- {label}" for label, hint in hints)
        yield item["header"] or f"{number}", "\n".join([item["text"], *options])


def render_card(lines: Iterable[str], members: Iterable[tuple[str, str]]) -> str:
    """Return lines, and below them names with their texts, which may have several lines."""
    said = "".join(f"<p>{escape_cell_text(line)}</p>" for line in lines)
    rows = "".join(
        f"<tr><th scope='row'>{escape_cell_text(name)}</th><td>{block_text(text)}</td></tr>"
        for name, text in members
    )
    return f"{said}<table><tbody>{rows}</tbody></table>"


def render_tree_html(snapshot: Mapping[str, Any], below: str = "main") -> str:
    """Return a snapshot as HTML: the requests and questions that wait, and the sessions."""
    shown = (
        *(request_html(each) for each in _filter_below(snapshot["approvals"], below)),
        *(render_question_html(each) for each in _filter_below(snapshot["questions"], below)),
    )
    return "".join(shown) + render_html_table(describe_tree(snapshot), build_tree_table(snapshot, below))


def render_picture_html(snapshot: Mapping[str, Any], below: str = "main") -> str:
    """Return :func:`render_tree_html` as what stands in for a widget that its kernel does not have."""
    return f"{_PICTURE}{render_tree_html(snapshot, below)}</div>"


def render_tree_text(snapshot: Mapping[str, Any], below: str = "main") -> str:
    """Return a snapshot as plain text."""
    asked = [
        f"{each['session']} asks: {line}"
        for each in _filter_below(snapshot["questions"], below)
        for _, text in _list_parts(each)
        for line in text.split("\n")
    ]
    return render_text_table([*asked, *describe_tree(snapshot)], build_tree_table(snapshot, below))


def _filter_below(asked: Iterable[Mapping[str, Any]], below: str) -> Iterator[Mapping[str, Any]]:
    return (each for each in asked if _is_below(each["session"], below))


def _sort_in_tree_order(rows: Sequence[Any], parent: int) -> list[Any]:
    """Return rows with children after their parents, in the order of their spawns."""
    below: dict[int | None, list[int]] = {}
    for number, row in enumerate(rows):
        below.setdefault(row[parent], []).append(number)
    # A stack and no recursion: a tree may be deeper than Python's calls may be.
    ordered, left = [], below.get(None, [])[::-1]
    while left:
        number = left.pop()
        ordered.append(rows[number])
        left += below.get(number, [])[::-1]
    return ordered


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def _escape_dollars(html: str) -> str:
    return html.replace("$", "<span>$</span>")

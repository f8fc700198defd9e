"""What an HTML file refers to, and what is wrong with its markup; a program that can be killed.

It reads one request from its standard input and answers on its standard output, with the standard library
alone. The tools never import it: a hostile file costs its process, not theirs.
Not here: starting and ending the program (html_process.py), or judging a page as a browser shows it.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any

MAX_MEMORY_BYTES = 512 * 2**20
"""Address space of the program."""
MAX_LISTED = 400
"""Most references, ids or problems that are listed, of each."""
MAX_CHARS = 300
"""Longest reference, id or name in the answer."""
VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
MAY_STAY_OPEN = frozenset(
    {"html", "head", "body", "li", "dt", "dd", "p", "rt", "rp", "optgroup", "option", "colgroup", "caption"}
    | {"thead", "tbody", "tfoot", "tr", "td", "th"}
)
"""Elements whose end tag may be left out."""
REFERRING = {
    **dict.fromkeys(("a", "area", "link"), ("href",)),
    **dict.fromkeys(("img", "source"), ("src", "srcset")),
    **dict.fromkeys(("script", "iframe", "audio", "embed", "track", "input"), ("src",)),
    "video": ("src", "poster"),
    "object": ("data",),
    "use": ("href", "xlink:href"),
}
LOADED = frozenset(
    {"stylesheet", "icon", "apple-touch-icon", "mask-icon", "manifest", "preload", "modulepreload"}
)
"""Relations of a ``link`` whose target is loaded with the page."""


class Outline(HTMLParser):
    """Reads a file and keeps what it refers to."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.has_doctype = False
        self.ids: list[str] = []
        self.references: list[dict[str, Any]] = []
        self.problems: list[dict[str, Any]] = []
        self._seen: set[str] = set()
        self._open: list[tuple[str, int]] = []
        self._foreign = 0

    def handle_decl(self, decl: str) -> None:
        """Take a declaration."""
        self.has_doctype = self.has_doctype or decl.lower().startswith("doctype html")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the start of an element."""
        self._take(tag, attrs)
        if tag in {"svg", "math"}:
            self._foreign += 1
        if tag not in VOID:
            self._open.append((tag, self.getpos()[0]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element that ends with ``/>``; only foreign elements and void ones end so."""
        self._take(tag, attrs)
        if not self._foreign and tag not in VOID | {"svg", "math"}:
            self._blame(f"<{tag}/> does not end the element; write </{tag}>")
            self._open.append((tag, self.getpos()[0]))

    def handle_endtag(self, tag: str) -> None:
        """Take the end of an element."""
        if tag in VOID or not any(name == tag for name, _ in self._open):
            if tag not in {"p", "br"}:
                self._blame(f"</{tag}> ends nothing")
            return
        while True:
            name, line = self._open.pop()
            if name in {"svg", "math"}:
                self._foreign -= 1
            if name == tag:
                return
            if name not in MAY_STAY_OPEN:
                self._blame(f"<{name}> is not closed before </{tag}>", line)

    def finish(self) -> dict[str, Any]:
        """Return the answer: ``{has_doctype, ids, references, problems}``, the lists in the file's order."""
        self.close()
        for name, line in self._open:
            if name not in MAY_STAY_OPEN:
                self._blame(f"<{name}> is not closed", line)
        return {
            "has_doctype": self.has_doctype,
            "ids": self.ids[:MAX_LISTED],
            "references": self.references[:MAX_LISTED],
            "problems": sorted(self.problems, key=lambda each: each["line"])[:MAX_LISTED],
        }

    def _take(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names):
            self._blame(f"<{tag[:MAX_CHARS]}> has an attribute twice")
        values = {name: value or "" for name, value in reversed(attrs)}
        for id_ in {values.get("id", ""), values.get("name", "") if tag == "a" else ""} - {""}:
            if id_ in self._seen:
                self._blame(f"id {id_[:MAX_CHARS]!r} is used twice")
            elif len(self._seen) < MAX_LISTED:
                self._seen.add(id_)
                self.ids.append(id_[:MAX_CHARS])
        if tag == "link" and LOADED.isdisjoint(values.get("rel", "").lower().split()):
            return
        for attribute in REFERRING.get(tag, ()):
            if attribute in values and len(self.references) < MAX_LISTED:
                given = values[attribute].strip()
                urls = [part.split()[0] for part in given.split(",") if part.split()]
                for url in urls[:8] if attribute == "srcset" else [given]:
                    line = self.getpos()[0]
                    self.references.append({"element": tag, "url": url[:MAX_CHARS], "line": line})

    def _blame(self, words: str, line: int | None = None) -> None:
        if len(self.problems) < MAX_LISTED:
            self.problems.append({"line": line or self.getpos()[0], "text": words[: 2 * MAX_CHARS]})


def main() -> None:
    """Answer one request: a line of JSON ``{limit_s}``, then the file in UTF-8."""
    order = json.loads(sys.stdin.buffer.readline())
    signal.setitimer(signal.ITIMER_REAL, order["limit_s"])
    with suppress(OSError, ValueError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    outline = Outline()
    outline.feed(sys.stdin.buffer.read().decode("utf-8", "replace"))
    sys.stdout.write(json.dumps(outline.finish()))


if __name__ == "__main__":
    main()

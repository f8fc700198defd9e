"""The search of a session's tools: full text over names, descriptions and parameters, in memory.

SQLite's FTS5 ranks: words are stemmed, a word also finds longer ones that begin with it, and a name counts
most. Equal ranks are in the order of names, so the same tools and the same query always give the same answer.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import Final

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.truncation import cut_line
from sessiontree.programs.signatures import list_arguments
from sessiontree.programs.tool_list import CHILD_SIGNATURES, shorten_signature

MAX_LINE_CHARS: Final = 160
MAX_SIGNATURE_CHARS: Final = 600
MAX_WORDS: Final = 32
"""Words of a query that count."""
_MAKE: Final = "CREATE VIRTUAL TABLE tools USING fts5(name, does, takes, tokenize='porter unicode61')"
_FIND: Final = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 8, 3, 1), rowid"
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class HeldTool:
    """One tool, as a search reads it."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]
    """The JSON Schema of its parameters."""
    aliases: tuple[str, ...] = ()
    """Its other names."""


class ToolIndex:
    """A search of some tools.

    Args:
        tools: The tools.
        starter: The tool that starts children; a program calls it by other names.
    """

    def __init__(self, tools: Iterable[HeldTool], starter: str) -> None:
        self._tools = sorted(tools, key=lambda each: each.name)
        self._starter = starter
        # SQLite would refuse another thread than the one that made it, and searches may run in any.
        self._store = sqlite3.connect(":memory:", check_same_thread=False)
        self._store.execute(_MAKE)
        rows = [(at, *map(_make_storable, _build_columns(each))) for at, each in enumerate(self._tools)]
        self._store.executemany("INSERT INTO tools(rowid, name, does, takes) VALUES (?, ?, ?, ?)", rows)

    def find(
        self, query: str, limit: int, withheld: Collection[str] = ()
    ) -> tuple[list[dict[str, JsonValue]], int]:
        """Return the best tools for the words of a query, best first, and how many more have any of them.

        Each is ``name``, ``signature`` and ``description``, one line each. No tool of ``withheld`` is found.
        """
        # Quoted, because a model's words could be operators of the query language.
        words = [f'"{word}"*' for word in re.findall(r"\w+", _split_words(query))[:MAX_WORDS]]
        if not words:
            return [], 0
        # All rows are read although few are shown: tools that are withheld are removed after the ranking.
        with closing(self._store.execute(_FIND, (" OR ".join(words),))) as rows:
            found = [each for (at,) in rows if (each := self._tools[at]).name not in withheld]
        return [self._describe_tool(each) for each in found[:limit]], max(0, len(found) - limit)

    def close(self) -> None:
        """Free its memory; nothing is found any more."""
        self._store.close()

    def _describe_tool(self, tool: HeldTool) -> dict[str, JsonValue]:
        signature = (
            CHILD_SIGNATURES
            if tool.name == self._starter
            else shorten_signature(tool.name, tool.parameters, MAX_SIGNATURE_CHARS)
        )
        line = cut_line(" ".join(tool.description.split()), MAX_LINE_CHARS)
        return {"name": tool.name, "signature": signature, "description": line}


def _build_columns(tool: HeldTool) -> tuple[str, str, str]:
    """Return the words of a tool: of its names, of its description, and of its parameters."""
    names = " ".join(_split_words(each) for each in (tool.name, *tool.aliases))
    takes = " ".join(_split_words(name) for name, _, _ in list_arguments(tool.parameters))
    return names, tool.description, takes


def _make_storable(text: str) -> str:
    """Return a text without what SQLite can't keep."""
    return text.encode(errors="replace").decode()


def _split_words(name: str) -> str:
    """Return a name as words, with spaces where it has underscores or goes on with a capital."""
    return _HUMP.sub(" ", name).replace("_", " ")

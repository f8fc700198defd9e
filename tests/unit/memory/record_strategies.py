"""An embedder of a few numbers, records by chance, and what a search must find, by the plainest code."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from sessiontree.contracts.values.memory import (
    RECORD_TYPES,
    TRUSTS,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Source,
)

VOCABULARY: Final = ("retry", "lock", "parser", "journal", "дерево", "记忆", "maxRetries", "fox")
TREES: Final = ("t1", "t2", "t3")
SESSIONS: Final = ("main", "main/b1", "main/b10", "main/b1/w1", "main/b1/w2", "main/b2", "main/b1/b1/w1")
PATHS: Final = ("src/a.py", "src/a.pyx", "src", "src/sub/b.py", "srcs/c.py")


@dataclass(frozen=True, slots=True)
class ToyEmbedder:
    """Sixteen numbers that depend on the text alone and have nothing to do with its words."""

    identity: str = "toy-16"
    dimensions: int = 16

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a row of length 1 for each text."""
        rows = np.array([self._row(text) for text in texts], np.float32).reshape(-1, self.dimensions)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def _row(self, text: str) -> NDArray[np.float64]:
        chance = np.random.default_rng(list(text.encode("utf-8")))
        return chance.standard_normal(self.dimensions)


texts = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=6).map(" ".join)
scopes = st.builds(
    MemoryScope,
    st.sampled_from(TREES),
    st.sampled_from(SESSIONS),
    st.sampled_from(("a1", "a2")),
    st.sampled_from(("/w", "/w2")),
)


@st.composite
def sources(draw: st.DrawFn) -> str | None:
    """No source, a whole file, one line, or some lines."""
    path = draw(st.sampled_from((None, *PATHS)))
    if path is None:
        return None
    first = draw(st.none() | st.integers(1, 30))
    return str(Source(path, first, None if first is None else first + draw(st.integers(0, 9))))


new_records = st.builds(NewRecord, texts, st.sampled_from(RECORD_TYPES), sources(), st.sampled_from(TRUSTS))


@st.composite
def stored_records(draw: st.DrawFn) -> list[MemoryRecord]:
    """Records of several trees, ids in no order."""
    count = draw(st.integers(0, 25))
    numbers = draw(st.permutations(range(count)))
    return [
        MemoryRecord(
            f"{number:032x}",
            draw(st.sampled_from(RECORD_TYPES)),
            draw(texts),
            draw(sources()),
            draw(st.sampled_from(TRUSTS)),
            draw(scopes),
            draw(st.integers(0, 3)),
        )
        for number in numbers
    ]


def may_see(record: MemoryRecord, scope: MemoryScope | None, finished: Collection[str]) -> bool:
    """The rule in words: own path and ancestors in the own tree, or left by a finished like-minded tree."""
    if scope is None:
        return True
    own = record.scope
    if own.tree_id == scope.tree_id and f"{scope.session}/".startswith(f"{own.session}/"):
        return True
    return own.tree_id in finished and (own.agent_id, own.workspace) == (scope.agent_id, scope.workspace)


def nearest(records: Sequence[MemoryRecord], text: str, most: int) -> list[str]:
    """Return ids by inner product with a text, best first; records in the order of their storing."""
    embedder = ToyEmbedder()
    query = embedder.embed([text])[0]
    products = {record.id: float(np.vecdot(embedder.embed([record.text])[0], query)) for record in records}
    return sorted(products, key=lambda record_id: -products[record_id])[:most]

"""What a hybrid search and a store of memory cost, next to LanceDB's own hybrid search of the same table.

The records are made of words by Zipf's law, 10 to 40 each, with the default (hashing) embedder; searches ask
for 10 records by 4 words of one of them, without a filter where nothing else is said. LanceDB's search is the
same table asked through its async API: vector and full text, RRF, limit 10, all columns a hit needs, the
query embedded before the clock starts; ours embeds inside the clock. One of each in turn; medians of the
rounds' medians.

- `hybrid_ms`: in a session on Ray, from `memory_search` being executed to its result, at 10,000 records
  (`--quick`: 2,500): the call to memory's process, the search there, and the marked text made of it.
  `raw_rpc_us` is one call between two plain actors; `hybrid_ratio` is hybrid_ms over raw_hybrid_ms and one
  such call.
- `raw_hybrid_ms`, `store_hybrid_ms`: LanceDB's search and the store's own, both in this program.
- `raw_100k_ms`, `hybrid_100k_ms`, `speedup_100k`: both in this program at 100,000 records (`--quick`:
  2,000); `uss_100k_mib`: what a process of its own holds that opened that store and searched it, libraries
  and LanceDB's caches and all.
- `overlap_filtered`: mean share of LanceDB's best 10 under the same filter, its two lists as long as ours
  (40), that are among our best 10: scopes of sessions in 50 trees, a third of them finished.
- `after_singles_ratio`: a search 1 s after 1,000 stores, one after the other, over the same once tidied.
- `stores_per_s`: those 1,000 stores; `batched_stores_per_s`: 8 callers at once, each waiting for its own.
  Every store is acknowledged once it is on disk (fsync).
- `compaction_p99_ms`: 99th percentile of searches while the table is tidied.

LanceDB warns of each search of its own on standard error; ``LANCEDB_LOG=error`` in the environment ends that.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
from lancedb.rerankers import RRFReranker

from benchmarks.places import places
from benchmarks.raw_actor import RawActors
from benchmarks.report import Options, percentile, read_options, show
from benchmarks.rounds import Rounds
from sessiontree import MEMORY, PermissionTier, SessionTree, ToolContext, tool
from sessiontree.contracts.values.memory import MemoryQuery, MemoryRecord, MemoryScope, NewRecord
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.settings import MEMORY_DIR
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.models.scripted import ScriptedModel
from sessiontree_tools.memory import MemorySearch, MemorySearchParams

AGENT = "default"
SMALL, QUICK_SMALL = 10_000, 2_500
LARGE, QUICK_LARGE = 100_000, 2_000
TREES = 50
FINISHED = 17
WORDS = 5_000
LIMIT = 10
CANDIDATES = 40
COLUMNS = ["id", "text", "path", "session", "tree_id"]


class Corpus:
    """Makes records and questions; the same ones for the same seed."""

    def __init__(self, seed: int = 0, workspace: str = "/workspace") -> None:
        """Begin again."""
        self.workspace = workspace
        self._random = np.random.default_rng(seed)
        letters = random.Random(seed)
        syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
        self._words = np.array(
            ["".join(letters.choices(syllables, k=letters.randint(2, 4))) for _ in range(WORDS)]
        )
        odds = 1 / np.arange(1, WORDS + 1)
        self._odds = odds / odds.sum()
        self._made = 0
        self.questions: list[str] = []

    def text(self) -> str:
        """Return a text of 10 to 40 words."""
        return " ".join(self._random.choice(self._words, self._random.integers(10, 41), p=self._odds))

    def records(self, count: int) -> Iterator[MemoryRecord]:
        """Yield records of sessions in several trees; some of them leave a question."""
        for _ in range(count):
            n, text = self._made, self.text()
            if n % 97 == 0:
                self.questions.append(" ".join(text.split()[3:7]))
            session = "main" if n % 3 == 0 else f"main/b{n % 7}"
            scope = MemoryScope(f"tree{n % TREES}", session, AGENT, self.workspace)
            yield MemoryRecord(f"{n:032x}", "fact", text, f"src/{n % 400}.py", "session", scope, n)
            self._made += 1


async def fill(store: LanceMemoryStore, corpus: Corpus, count: int) -> None:
    """Put so many records into a store, a third of their trees finished, and tidy it."""
    for start in range(0, count, 5_000):
        await store.add(list(corpus.records(min(5_000, count - start))))
    for tree in range(FINISHED):
        await store.mark_finished(f"tree{tree}", agent_id=AGENT, workspace=corpus.workspace, ended_at_ms=tree)
    await store.tidy()


@asynccontextmanager
async def filled(corpus: Corpus, count: int) -> AsyncIterator[tuple[LanceMemoryStore, Path]]:
    """Yield a store of so many records and its directory."""
    with tempfile.TemporaryDirectory() as directory:
        async with await LanceMemoryStore.open(directory, HashingEmbedder()) as store:
            await fill(store, corpus, count)
            yield store, Path(directory)


@tool(tier=PermissionTier.READ_ONLY, capabilities=[MEMORY])
async def ask_memory(questions: list[str], ctx: ToolContext) -> list[float]:
    """Search memory for each question, one after the other; return the milliseconds of each."""
    searching, taken = MemorySearch(), []
    for question in questions:
        params = MemorySearchParams(query=question, max_results=LIMIT)
        taken.append(await taken_ms(partial(searching.execute, params, ctx)))
    return taken


async def from_a_session(count: int, rounds: int, each: int) -> Rounds:
    """Search so many records inside a session and raw, in turn."""
    taken, embedder = Rounds(), HashingEmbedder()
    with places() as (workspace, state):
        corpus = Corpus(workspace=str(workspace))
        async with await LanceMemoryStore.open(str(state / MEMORY_DIR), embedder) as store:
            await fill(store, corpus, count)
            for tree in range(FINISHED, TREES):
                await store.mark_finished(
                    f"tree{tree}", agent_id=AGENT, workspace=corpus.workspace, ended_at_ms=tree
                )
        running = SessionTree(
            workspace,
            model=ScriptedModel(["Nothing to say."]),
            tools=(ask_memory,),
            builtin_tools=False,
            state_dir=state,
            backend="ray",
        )
        async with running, RawActors() as raw:
            table = await (await lancedb.connect_async(state / MEMORY_DIR)).open_table("records")
            await raw_search(table, "warm up", embedder.embed(["warm up"])[0])
            await running.main.call("ask_memory", {"questions": corpus.questions[:each]})
            for n in range(rounds):
                taken.begin()
                chosen = corpus.questions[n * each : (n + 1) * each]
                inside = await running.main.call("ask_memory", {"questions": chosen})
                taken.add("hybrid", *json.loads(json.dumps(inside.output)))
                taken.add("rpc_us", *await raw.between_us(each))
                for text in chosen:
                    vector = embedder.embed([text])[0]
                    taken.add("raw", await taken_ms(partial(raw_search, table, text, vector)))
    return taken


async def raw_search(table: Any, text: str, vector: Any, *, lists: int = LIMIT, where: str = "") -> list[str]:
    """Return the ids LanceDB's own hybrid search finds, best first."""
    query = table.query()
    query = (query.where(where) if where else query).nearest_to(vector).nearest_to_text(text)
    rows = await query.rerank(RRFReranker()).select(COLUMNS).limit(lists).to_arrow()
    return list(rows["id"].to_pylist())[:LIMIT]


async def taken_ms(call: Callable[[], Awaitable[Any]]) -> float:
    """Return how many milliseconds a call took."""
    started = time.perf_counter()
    await call()
    return (time.perf_counter() - started) * 1e3


async def side_by_side(
    store: LanceMemoryStore, directory: Path, corpus: Corpus, rounds: int, each: int
) -> Rounds:
    """Search both ways, one of each in turn."""
    embedder = HashingEmbedder()
    table = await (await lancedb.connect_async(directory)).open_table("records")
    taken = Rounds()
    for text in corpus.questions[:3]:  # warm both
        await store.search(MemoryQuery(text, LIMIT), None)
        await raw_search(table, text, embedder.embed([text])[0])
    for n in range(rounds):
        taken.begin()
        for text in corpus.questions[n * each : (n + 1) * each]:
            vector, query = embedder.embed([text])[0], MemoryQuery(text, LIMIT)
            taken.add("raw", await taken_ms(partial(raw_search, table, text, vector)))
            taken.add("ours", await taken_ms(partial(store.search, query, None)))
    return taken


async def overlap(store: LanceMemoryStore, directory: Path, corpus: Corpus, questions: int) -> float:
    """Return the mean share of our hits that LanceDB finds too, with the scope as its filter."""
    embedder = HashingEmbedder()
    table = await (await lancedb.connect_async(directory)).open_table("records")
    left = ", ".join(f"'tree{tree}'" for tree in range(FINISHED))
    shares = []
    for n, text in enumerate(corpus.questions[-questions:]):
        tree, session = f"tree{n % TREES}", f"main/b{n % 7}"
        where = f"(tree_id = '{tree}' AND session IN ('main', '{session}')) OR tree_id IN ({left})"
        theirs = await raw_search(table, text, embedder.embed([text])[0], lists=CANDIDATES, where=where)
        scope = MemoryScope(tree, session, AGENT, corpus.workspace)
        ours = [hit.record.id for hit in await store.search(MemoryQuery(text, LIMIT), scope)]
        shares.append(len(set(ours) & set(theirs)) / max(1, len(theirs)))
    return statistics.mean(shares)


async def searches_ms(store: LanceMemoryStore, corpus: Corpus, count: int) -> float:
    """Return the median of some searches."""
    queries = [MemoryQuery(text, LIMIT) for text in corpus.questions[:count]]
    return statistics.median([await taken_ms(partial(store.search, query, None)) for query in queries])


async def singles(
    store: LanceMemoryStore, corpus: Corpus, count: int, during_tidying: int
) -> dict[str, float]:
    """Store one after the other, search, tidy while searching, search again; then several callers at once."""
    scope = MemoryScope("tree-s", "main", AGENT, corpus.workspace)
    texts = [corpus.text() for _ in range(2 * count)]
    started = time.perf_counter()
    for n in range(count):
        await store.store([NewRecord(texts[n])], scope, f"single {n}")
    stores_s = time.perf_counter() - started
    await asyncio.sleep(1)
    before_ms = await searches_ms(store, corpus, 20)
    await store.tidy()
    after_ms = await searches_ms(store, corpus, 20)

    async def caller(number: int) -> None:
        for n in range(number, count, 8):
            await store.store([NewRecord(texts[count + n])], scope, f"batched {n}")

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(caller(number))
    batched_s = time.perf_counter() - started
    during: list[float] = []
    while len(during) < during_tidying:
        tidying = asyncio.ensure_future(store.tidy())
        while not tidying.done():
            during.append(await searches_ms(store, corpus, 1))
        await tidying
        for n in range(20):
            await store.store([NewRecord(texts[n])], scope, f"again {len(during)} {n}")
    return {
        "after_singles_ratio": before_ms / after_ms,
        "compaction_p99_ms": percentile(during, 99),
        "stores_per_s": count / stores_s,
        "batched_stores_per_s": count / batched_s,
    }


HOLDING = """
import asyncio, sys
from pathlib import Path
from sessiontree.contracts.values.memory import MemoryQuery
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.store import LanceMemoryStore

async def main():
    async with await LanceMemoryStore.open(sys.argv[1], HashingEmbedder(), lock=False) as store:
        for text in sys.argv[2:]:
            await store.search(MemoryQuery(text), None)
        lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
        print(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024)

asyncio.run(main())
"""


async def uss_mib(directory: Path, questions: list[str]) -> float:
    """Return the MiB that belong to a process alone which opened a store and searched it."""
    holding = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDING, str(directory), *questions, stdout=PIPE
    )
    printed, _ = await holding.communicate()
    return float(printed)


async def measure(options: Options) -> dict[str, float]:
    """Return the figures."""
    rounds, each = (5, 4) if options.quick else (9, 11)
    count = QUICK_SMALL if options.quick else SMALL
    small, large = Corpus(), Corpus()
    async with filled(small, count) as (store, directory):
        near = await side_by_side(store, directory, small, rounds, each)
        shared = await overlap(store, directory, small, 10 if options.quick else 100)
        stored = await singles(store, small, *((40, 20) if options.quick else (1_000, 100)))
    session = await from_a_session(count, rounds, each)
    async with filled(large, QUICK_LARGE if options.quick else LARGE) as (store, directory):
        uss = await uss_mib(directory, large.questions[:50])
        far = await side_by_side(store, directory, large, rounds, each)
    raw_ms, rpc_us, hybrid_ms = session.median("raw"), session.median("rpc_us"), session.median("hybrid")
    return {
        "raw_hybrid_ms": raw_ms,
        "raw_rpc_us": rpc_us,
        "hybrid_ms": hybrid_ms,
        "hybrid_ratio": hybrid_ms / (raw_ms + rpc_us / 1e3),
        "store_hybrid_ms": near.median("ours"),
        "overlap_filtered": shared,
        **stored,
        "raw_100k_ms": far.median("raw"),
        "hybrid_100k_ms": far.median("ours"),
        "speedup_100k": far.median("raw") / far.median("ours"),
        "uss_100k_mib": uss,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options(__doc__.splitlines()[0] if __doc__ else "", arguments)
    show(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    main()

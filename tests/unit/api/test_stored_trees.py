"""What can't be imported is refused and leaves nothing; erasing reaches memory; pruning chooses by rules."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sessiontree import (
    ConfigError,
    JournalCorrupt,
    JournalError,
    JournalTooNew,
    MemoryFailed,
    ScriptedModel,
    SessionTree,
    StoredTrees,
    TreeNotFound,
)
from sessiontree.api.stored.journaled_trees import plan_prune, prune
from sessiontree.api.stored.tree_export import import_tree
from sessiontree.contracts.values.memory import MemoryScope, NewRecord
from sessiontree.journal.claim import JournalClaim, list_journal_dirs
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.place import StoreLock
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.runtime.replay.stored_trees import list_summaries
from tests.system.house.error_fixtures import has_cause

MODEL = ScriptedModel(["done"])
GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.ndjson"))
HASH_CHARS = len(',"hash":""}\n') + 64
LONG = "long " * 20_000


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of an export of a small tree with one text long enough for a blob."""
    place = tmp_path_factory.mktemp("exported")
    (place / "workspace").mkdir()

    async def write() -> None:
        async with SessionTree(
            place / "workspace", model=MODEL, state_dir=place / "state", backend="local"
        ) as tree:
            await tree.main.send(LONG)
            for _ in range(40):
                await tree.main.send(LONG[:4000])
            await StoredTrees(tree.state_dir).export(tree.tree_id, place / "tree.ndjson")

    asyncio.run(write())
    return (place / "tree.ndjson").read_text("ascii").splitlines(keepends=True)


def sealed(texts: list[str]) -> list[str]:
    """Return lines with right hashes: what somebody could write who wants to deceive."""
    chain, lines = hashlib.sha256(), []
    for text in texts:
        chain.update(text.encode("ascii"))
        lines.append(f'{text},"hash":"{chain.hexdigest()}"}}\n')
    return lines


def resealed(lines: list[str], number: int, change: Callable[[str], str]) -> list[str]:
    """Return lines of which one is changed, with right hashes again."""
    texts = [line[:-HASH_CHARS] for line in lines]
    changed = change(texts[number])
    assert changed != texts[number]
    texts[number] = changed
    return sealed(texts)


def flipped(lines: list[str]) -> list[str]:
    """Return lines with one letter changed."""
    return [*lines[:3], lines[3].replace('"kind"', '"kjnd"', 1), *lines[4:]]


def with_damage(lines: list[str]) -> list[str]:
    """Return the export as of a damaged tree."""
    return resealed(lines, -1, lambda text: text.replace('"damage":null', '"damage":"segment 9 is missing"'))


def of_another_tree(lines: list[str]) -> list[str]:
    """Return an export whose manifest names another tree than its row 0."""
    return resealed(lines, 0, lambda text: text.replace('"tree":"', '"tree":"x', 1))


REFUSED: dict[str, tuple[Callable[[list[str]], list[str]], type[Exception], str]] = {
    "empty": (lambda lines: [], JournalCorrupt, "line 1: .* cut off"),
    "foreign text": (lambda lines: ["# notes\n"], JournalCorrupt, "line 1: the line has no hash"),
    "foreign JSON": (lambda lines: sealed(['{"other_export":1']), JournalCorrupt, "not an export"),
    "two exports in one file": (lambda lines: [*lines, *lines], JournalCorrupt, "more follows the end"),
    "cut in a line": (lambda lines: [*lines[:4], lines[4][:-9]], JournalCorrupt, "line 5: .* cut off"),
    "cut at a line": (lambda lines: lines[:-1], JournalCorrupt, "cut off"),
    "a changed letter": (flipped, JournalCorrupt, "line 4: the line is altered"),
    "a missing line": (lambda lines: [*lines[:3], *lines[4:]], JournalCorrupt, "line 4: .* missing"),
    "a damaged tree": (with_damage, JournalCorrupt, "segment 9 is missing.*allow damaged"),
    "another tree's row 0": (of_another_tree, JournalCorrupt, "row 0 .* another tree"),
    "no row 0": (
        lambda lines: resealed(lines, 0, lambda text: text.replace('"row0":', '"row":', 1)),
        JournalCorrupt,
        "no 'row0' of type dict",
    ),
    "no id": (
        lambda lines: resealed(lines, 0, lambda text: text.replace('"tree":"', '"tree":7,"t":"', 1)),
        JournalCorrupt,
        "no 'tree' of type str",
    ),
    "a later format": (
        lambda lines: resealed(lines, 0, lambda text: text.replace('"version":1', '"version":2', 1)),
        JournalTooNew,
        "version 2",
    ),
    "a later fact": (
        lambda lines: resealed(lines, 2, lambda text: text.replace('"v":1', '"v":77', 1)),
        JournalTooNew,
        "record 2: .*version 77",
    ),
    "an unknown fact": (
        lambda lines: resealed(lines, 2, lambda text: text.replace('"kind":"', '"kind":"no_', 1)),
        JournalTooNew,
        "record 2: 'no_",
    ),
    "no fact": (
        lambda lines: resealed(lines, 2, lambda text: text.replace('"fact":', '"fact":[]', 1)),
        JournalCorrupt,
        "record 2 is not a fact",
    ),
    "only a manifest": (
        lambda lines: sealed([lines[0][:-HASH_CHARS], '{"end":true,"records":0,"damage":null']),
        JournalCorrupt,
        "no main session",
    ),
}


@pytest.mark.short(8)
@pytest.mark.parametrize("case", REFUSED)
def test_import_refuses_what_cannot_be_resumed(export: list[str], tmp_path: Path, case: str) -> None:
    """The error names file, line and cause; no tree, no journal and no claim is left."""
    make, error, words = REFUSED[case]
    path = tmp_path / "bad.ndjson"
    path.write_text("".join(make(export)), "ascii")
    with pytest.raises(error, match=rf"bad\.ndjson.*{words}") as refused:
        import_tree(path, tmp_path / "state")
    assert "nothing was imported" in str(refused.value)
    assert list_journal_dirs(tmp_path / "state") == ()


def test_import_refuses_binary_files_and_directories(export: list[str], tmp_path: Path) -> None:
    """Bytes that are not text are found by the hash; what is not a readable file, by what it is."""
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 100)
    with pytest.raises(JournalCorrupt, match=r"line 1: .*; give a file as an export wrote it"):
        import_tree(tmp_path / "binary", tmp_path / "state")
    for path, reason in (
        (tmp_path, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "gone", "No such file"),
    ):
        with pytest.raises(JournalError, match=f"{reason}.*nothing was imported"):
            import_tree(path, tmp_path / "state")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("tree_id", [Path("t1"), 5, None, b"t1", " "], ids=repr)
async def test_tree_id_must_be_a_text(export: list[str], tmp_path: Path, tree_id: Any) -> None:
    """No journal is called damaged because of it, and nothing is erased or written."""
    (tmp_path / "export").write_text("".join(export), "ascii")
    state = tmp_path / "state"
    imported = await StoredTrees(state).load(tmp_path / "export")
    for attempt in (
        StoredTrees(state).replay(tree_id),
        StoredTrees(state).fork(tree_id),
        StoredTrees(state).erase(tree_id),
        SessionTree.resume(tree_id, model=MODEL, state_dir=state, backend="local"),
    ):
        with pytest.raises(ConfigError, match=r"tree_id is .*; give text with something in it"):
            await attempt
    assert [tree.tree_id for tree in list_summaries(state)] == [imported]


async def test_stored_trees_are_listed_by_purpose(tmp_path: Path) -> None:
    """All of them, or those opened with exactly the purpose; a purpose must be text."""
    state = tmp_path / "state"
    made = []
    for purpose in ("one", "two"):
        async with SessionTree(
            tmp_path, model=MODEL, state_dir=state, backend="local", purpose=purpose
        ) as tree:
            await tree.finish("over")
            made.append(tree.tree_id)
    stored = StoredTrees(state)
    assert [tree.tree_id for tree in await stored.list()] == made
    assert [tree.purpose for tree in await stored.list("two")] == ["two"]
    assert await stored.list("on") == []
    with pytest.raises(ConfigError, match="purpose is 5"):
        await stored.list(5)  # type: ignore[arg-type]


async def test_stored_trees_are_by_default_those_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``SessionTree.resume`` finds them; an empty path is refused."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "platform"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    async with SessionTree(".", model=MODEL, backend="local") as tree:
        assert StoredTrees().state_dir == tree.state_dir
        assert [each.tree_id for each in await StoredTrees().list()] == [tree.tree_id]
    with pytest.raises(ConfigError, match="state_dir is empty"):
        StoredTrees("")


def test_import_of_a_damaged_tree_can_be_allowed(export: list[str], tmp_path: Path) -> None:
    """Its good beginning is imported, and the result says what was damaged."""
    (tmp_path / "export").write_text("".join(with_damage(export)), "ascii")
    summary = import_tree(tmp_path / "export", tmp_path / "state", damaged=True)
    assert summary.damage == "segment 9 is missing"
    with Journal.open(tmp_path / "state", read_only=True) as journal:
        assert journal.verify(summary.tree_id).ok


def test_import_keeps_records_blobs_and_creation_time(export: list[str], tmp_path: Path) -> None:
    """Exported again it gives the same lines; while a program writes the first journal it gets another."""
    (tmp_path / "export").write_text("".join(export), "ascii")
    claim = JournalClaim.take(tmp_path / "state")
    summary = import_tree(tmp_path / "export", tmp_path / "state")
    claim.release()
    (place,) = list_journal_dirs(tmp_path / "state")
    assert place == tmp_path / "state" / "journals" / "2"
    assert len(list((place / "blobs").iterdir())) >= 1
    with Journal.open(place, read_only=True) as journal, (tmp_path / "again").open("w", newline="\n") as out:
        assert journal.verify(summary.tree_id).ok
        assert journal.export(summary.tree_id, out) == summary
    assert (tmp_path / "again").read_text("ascii") == "".join(export)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_import_takes_the_golden_journals(path: Path, tmp_path: Path) -> None:
    """Each is imported, and exported again it gives the same lines."""
    summary = import_tree(path, tmp_path / "state")
    state, again = tmp_path / "state", tmp_path / "again"
    with Journal.open(state, read_only=True) as journal, again.open("w", newline="\n") as out:
        assert journal.export(summary.tree_id, out) == summary
    assert again.read_text("ascii") == path.read_text("ascii")


async def test_journal_grows_linearly_with_the_conversation(tmp_path: Path) -> None:
    """Twice the messages take twice the bytes: no fact repeats what earlier facts hold."""
    sizes = []
    async with SessionTree(tmp_path, model=MODEL, state_dir=tmp_path / "s", backend="local") as tree:
        for count in (1, 40, 40, 40):
            for _ in range(count):
                await tree.main.send(LONG[:500])
            await StoredTrees(tree.state_dir).export(tree.tree_id, tmp_path / "export")
            sizes.append((tmp_path / "export").stat().st_size)
    grown = [after - before for before, after in pairwise(sizes)]
    assert max(grown) < 1.1 * min(grown)


FULL = """
import resource, sys
from pathlib import Path
from sessiontree.api.stored.tree_export import import_tree
from sessiontree.contracts.errors import JournalUnwritable
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    import_tree(Path(sys.argv[1]), Path(sys.argv[2]))
except JournalUnwritable as error:
    print(error.reason)
"""


@pytest.mark.parametrize("limit", [70_000, 130_000], ids=["blob", "log"])
def test_import_on_a_full_disk_leaves_nothing(export: list[str], tmp_path: Path, limit: int) -> None:
    """Whichever file can't grow, neither a tree nor a long text of it remains; with room the import works."""
    (tmp_path / "export").write_text("".join(export), "ascii")
    command = [sys.executable, "-c", FULL, str(tmp_path / "export"), str(tmp_path / "state"), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    for place in list_journal_dirs(tmp_path / "state"):
        with Journal.open(place, read_only=True) as journal:
            assert journal.trees() == []
    assert not list(tmp_path.rglob("blobs/*"))
    assert import_tree(tmp_path / "export", tmp_path / "state").records == len(export) - 2


async def remembered(place: Path, *tree_ids: str) -> None:
    """Store one record for each tree."""
    async with await LanceMemoryStore.open(str(place), HashingEmbedder()) as store:
        for tree_id in tree_ids:
            scope = MemoryScope(tree_id, "main", "default", "/w")
            await store.store([NewRecord(f"what {tree_id} learned", "fact")], scope, f"call of {tree_id}")
            await store.mark_finished(tree_id, agent_id="default", workspace="/w", ended_at_ms=7)


async def known(place: Path) -> tuple[set[str], set[str]]:
    """Return the trees that memory has records of, and those it knows to have finished."""
    async with await LanceMemoryStore.open(str(place), HashingEmbedder(), lock=False) as store:
        with_records = {record.scope.tree_id async for part in store.parts() for record in part.records}
        return with_records, {tree.tree_id for tree in store.list_finished_trees()}


async def test_erase_reaches_memory(export: list[str], tmp_path: Path) -> None:
    """Records of the tree and its finish are gone, others stay; where memory is in use nothing is erased."""
    (tmp_path / "export").write_text("".join(export), "ascii")
    state = tmp_path / "state"
    tree_id = await StoredTrees(state).load(tmp_path / "export")
    await remembered(state / "memory", tree_id, "it's another")
    lock = StoreLock(state / "memory")
    try:
        with pytest.raises(MemoryFailed, check=has_cause("locked")):
            await StoredTrees(state).erase(tree_id)
    finally:
        lock.release()
    assert [tree.tree_id for tree in list_summaries(state)] == [tree_id]
    assert await StoredTrees(state).erase(tree_id) == 1
    assert await known(state / "memory") == ({"it's another"}, {"it's another"})
    await StoredTrees(state).load(tmp_path / "export")
    await remembered(state / "memory", tree_id)
    assert await StoredTrees(state).erase(tree_id, keep_memory=True) == 0
    assert await known(state / "memory") == ({"it's another", tree_id}, {"it's another", tree_id})


async def test_cancelled_erase_claims_nothing(
    export: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the thread that claims the journal is not cancelled."""
    (tmp_path / "export").write_text("".join(export), "ascii")
    tree_id = import_tree(tmp_path / "export", tmp_path / "state").tree_id
    loop, begun, may_claim, claimed = asyncio.get_running_loop(), asyncio.Event(), Event(), Event()
    take = JournalClaim.take

    def late(*given: Any) -> JournalClaim:
        loop.call_soon_threadsafe(begun.set)
        may_claim.wait(30)
        claim = take(*given)
        claimed.set()
        return claim

    with monkeypatch.context() as patch:
        patch.setattr(JournalClaim, "take", late)
        erasing = asyncio.create_task(StoredTrees(tmp_path / "state").erase(tree_id))
        await begun.wait()
        erasing.cancel()
        loop.call_later(0.01, may_claim.set)
        with pytest.raises(asyncio.CancelledError):
            await erasing
    assert claimed.is_set()
    JournalClaim.take(tmp_path / "state", tree_id).release()


async def test_erase_of_an_unknown_tree_makes_no_file(tmp_path: Path) -> None:
    """A state directory that is not there stays so."""
    with pytest.raises(Exception, match="no journal is here"):
        await StoredTrees(tmp_path / "state").erase("tree")
    assert not (tmp_path / "state").exists()
    Journal.open(tmp_path / "state").release()
    with pytest.raises(TreeNotFound):
        await StoredTrees(tmp_path / "state").erase("tree")


@pytest.fixture
def trees(export: list[str], tmp_path: Path) -> Iterator[Path]:
    """A state directory with three trees that can be resumed, imported one after the other."""
    texts = [line[:-HASH_CHARS] for line in export]
    tree_id = json.loads(export[0])["tree"]
    for number in (1, 2, 3):
        copy = [text.replace(tree_id, f"{number}{tree_id[1:]}") for text in texts]
        (tmp_path / "export").write_text("".join(sealed(copy)), "ascii")
        import_tree(tmp_path / "export", tmp_path / "state")
    yield tmp_path / "state"


def chosen(state: Path, **options: Any) -> list[int]:
    """Return the numbers of the trees that would be pruned."""
    return [int(tree.tree_id[0]) for tree in plan_prune(state, **options).trees]


def test_prune_chooses_by_age_and_number(trees: Path) -> None:
    """Both conditions must hold; the newest are kept; the oldest come first."""
    written = [tree.written_at_ms / 1000 for tree in list_summaries(trees)]
    assert chosen(trees, keep=0) == [1, 2, 3]
    assert chosen(trees, keep=2) == [1]
    assert chosen(trees, keep=7) == []
    assert chosen(trees, older_than_s=10, now_s=lambda: max(written) + 10.001) == [1, 2, 3]
    assert chosen(trees, older_than_s=10, now_s=lambda: min(written) + 9.999) == []
    assert chosen(trees, older_than_s=0, keep=1) == [1, 2]
    assert plan_prune(trees, keep=0, unfinished=False).trees == (), "trees that have not ended stay"


def test_prune_keeps_facts_below_a_size(trees: Path) -> None:
    """The least recently written trees go until the rest is small enough; other conditions hold too."""
    with Journal.open(trees, read_only=True) as journal:
        sizes = journal.count_tree_bytes()
    whole, newest = sum(sizes.values()), max(sizes.values())
    assert len(sizes) == 3
    assert min(sizes.values()) > 0
    assert chosen(trees, max_bytes=whole) == []
    assert chosen(trees, max_bytes=whole - 1) == [1]
    assert chosen(trees, max_bytes=newest) == [1, 2]
    assert chosen(trees, max_bytes=0) == [1, 2, 3]
    assert chosen(trees, max_bytes=0, keep=2) == [1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keep": -1},
        {"keep": True},
        {"keep": 1.5},
        {"older_than_s": -1},
        {"older_than_s": float("nan")},
        {"max_bytes": -1},
    ],
    ids=str,
)
def test_prune_refuses_senseless_conditions(trees: Path, options: dict[str, Any]) -> None:
    """Without a condition nothing is chosen, rather than everything."""
    with pytest.raises(ConfigError, match=r"older_than_s|keep|max_bytes"):
        plan_prune(trees, **options)


def test_prune_leaves_what_changed_since_it_was_chosen(trees: Path, export: list[str]) -> None:
    """A journal taken by a program meanwhile is left alone, and so is a tree that was written."""
    plan = plan_prune(trees, keep=0)
    claim = JournalClaim.take(trees)
    assert prune(plan) == []
    claim.release()
    first, second, third = (tree.tree_id for tree in plan.trees)

    async def write() -> None:
        journal = Journal.open(trees)
        journal.start(asyncio.get_running_loop())
        record = journal.read(second)[-1]
        text = json.dumps(record.to_json(), separators=(",", ":"))
        await journal.append(second, [(record.session, [Packed(record.cause, record.at_ms, text)])])[1]
        await journal.close()

    asyncio.run(write())
    assert prune(plan) == [first, third]
    assert [tree.tree_id for tree in list_summaries(trees)] == [second]
    assert os.listdir(trees / "blobs")  # noqa: PTH208 - the long text that the second tree still uses

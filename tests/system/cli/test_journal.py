"""``sessiontree journal``: the owner exports trees, imports them, and erases them."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ScriptedModel, SessionTree
from sessiontree.contracts.values.memory import MemoryScope, NewRecord
from sessiontree.journal.claim import JournalClaim
from sessiontree.journal.journal import Journal
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.runtime.replay.stored_trees import list_summaries
from tests.system.cli.command_fixtures import Done, Program

Ask = Callable[..., Done]


async def _fill(place: Path) -> tuple[str, str]:
    ids = []
    (place / "workspace").mkdir(parents=True)
    for purpose in ("first", "second"):
        async with SessionTree(
            place / "workspace",
            model=ScriptedModel(["done"]),
            state_dir=place / "state",
            backend="local",
            purpose=purpose,
        ) as tree:
            await tree.main.send(f"a word of the {purpose}")
            await tree.finish("over")
            ids.append(tree.tree_id)
    async with await LanceMemoryStore.open(str(place / "state" / "memory"), HashingEmbedder()) as store:
        scope = MemoryScope(ids[0], "main", "default", "/w")
        await store.store([NewRecord("what the first learned", "fact")], scope, "call")
    return ids[0], ids[1]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, str]]:
    """A place whose state directory nobody changes, and the ids of the two trees in it."""
    place = tmp_path_factory.mktemp("filled")
    return place, asyncio.run(_fill(place))


@pytest.fixture
def trees(filled: tuple[Path, tuple[str, str]], tmp_path: Path) -> tuple[str, str]:
    """The ids of two finished trees, of which the first left a record in memory."""
    place, ids = filled
    shutil.copytree(place / "state", tmp_path / "state")
    return ids


@pytest.fixture
def ask(program: Program, trees: tuple[str, str], tmp_path: Path) -> Ask:
    """Run a command on their journal inside this process."""

    def run(command: str, *arguments: str | Path, given: str = "") -> Done:
        place = () if "--state-dir" in arguments else ("--state-dir", tmp_path / "state")
        return program.call("journal", command, *arguments, *place, given=given)

    return run


def told(done: Done) -> dict[str, Any]:
    """Return the one object a command printed."""
    assert done.code == 0, done.err
    value: dict[str, Any] = json.loads(done.out)
    return value


def ids_in(place: Path) -> list[str]:
    """Return the ids of the trees in a state directory."""
    return [tree.tree_id for tree in list_summaries(place)]


def test_export_is_imported_elsewhere(ask: Ask, trees: tuple[str, str], tmp_path: Path) -> None:
    """The newest tree by default; through a file only its owner reads, or through pipes."""
    export, there = tmp_path / "tree.ndjson", tmp_path / "there"
    done = ask("export", export)
    assert done.code == 0
    assert done.out.startswith(f"tree {trees[1]}: ")
    assert f"exported to {export}" in done.out
    assert stat.S_IMODE(export.stat().st_mode) == 0o600
    written = told(ask("export", export, "--tree", trees[0], "--json"))
    assert written["tree_id"] == trees[0]
    assert written["file"] == str(export)
    assert written["damage"] is None
    assert ask("export", "--tree", trees[0]).out == export.read_text("ascii")
    imported = told(ask("import", export, "--state-dir", there, "--json"))
    assert imported == {
        "state_dir": str(there),
        "tree_id": trees[0],
        "records": written["records"],
        "damage": None,
    }
    done = ask("import", "-", "--state-dir", there, given=ask("export").out)
    assert done.lines == [f"tree {trees[1]}: {written['records']} facts imported into {there}"]
    assert sorted(ids_in(there)) == sorted(trees)


def test_export_tells_of_damage(ask: Ask, trees: tuple[str, str], tmp_path: Path) -> None:
    """The good beginning is written, the exit code is 1, and the import asks for a word more."""
    with Journal.open(tmp_path / "state") as journal:
        journal._writing()._writer._connection.execute(
            "UPDATE segments SET hash = zeroblob(32) WHERE tree_id = ? AND n = 3", (trees[0],)
        )
    export = tmp_path / "tree.ndjson"
    done = ask("export", export, "--tree", trees[0])
    assert (done.code, done.lines[-1][:20]) == (1, "the tree is damaged,")
    assert ask("export", "--tree", trees[0]).err.startswith("sessiontree: the tree is damaged: segment 3")
    done = ask("import", export, "--state-dir", tmp_path / "there")
    assert (done.code, done.out) == (2, "")
    assert "JournalCorrupt" in done.err
    assert "nothing was imported" in done.err
    assert ask("import", export, "--damaged", "--state-dir", tmp_path / "there").code == 0


def test_export_and_import_name_what_they_cannot_do(program: Program, ask: Ask, tmp_path: Path) -> None:
    """One line on standard error and exit code 2, whatever is wrong."""
    (tmp_path / "notes").write_text("notes")
    sealed = tmp_path / "sealed"
    sealed.write_text("x")
    sealed.chmod(0)
    for words, arguments in (
        ("name a file", ("export", "--json")),
        ("no tree here has an id that begins with 'gone'", ("export", "--tree", "gone")),
        ("not a regular file", ("export", tmp_path)),
        ("No such file", ("export", tmp_path / "no" / "file")),
        ("the line is cut off", ("import", tmp_path / "notes")),
        ("not a regular file", ("import", tmp_path)),
        ("No such file", ("import", tmp_path / "gone")),
    ):
        done = ask(*arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert words in done.err, done.err
        assert done.err.count("\n") == 1
    there = ("--state-dir", str(tmp_path / "there"))
    done = program.run("journal", "import", str(sealed), *there, restricted=True)
    assert (done.code, "Permission denied" in done.err) == (2, True)
    (tmp_path / "shut").mkdir(0o500)
    ask("export", tmp_path / "tree.ndjson")
    done = program.run(
        "journal",
        "import",
        str(tmp_path / "tree.ndjson"),
        "--state-dir",
        str(tmp_path / "shut" / "in"),
        restricted=True,
    )
    assert (done.code, "Permission denied" in done.err) == (2, True)


def test_erase_takes_tree_and_memory(ask: Ask, trees: tuple[str, str], tmp_path: Path) -> None:
    """Nobody to ask needs --yes; a journal in use is refused; memory stays where that is said."""
    done = ask("erase", trees[0])
    assert (done.code, "--yes" in done.err) == (2, True)
    claim = JournalClaim.take(tmp_path / "state")
    done = ask("erase", trees[0], "--yes")
    claim.release()
    assert (done.code, "JournalLocked" in done.err) == (2, True)
    assert ids_in(tmp_path / "state") == list(trees)
    assert told(ask("erase", trees[0], "--yes", "--json")) == {
        "state_dir": str(tmp_path / "state"),
        "erased": trees[0],
        "forgotten": 1,
    }
    assert ask("erase", trees[1], "--yes", "--keep-memory").lines == [
        f"tree {trees[1]} erased, with 0 records of memory"
    ]
    assert ids_in(tmp_path / "state") == []
    done = ask("erase", trees[0], "--yes")
    assert (done.code, "holds no tree" in done.err) == (2, True)


def test_prune_keeps_the_newest(ask: Ask, trees: tuple[str, str], tmp_path: Path) -> None:
    """A condition and a yes are needed; what is in use is left alone and named."""
    for arguments in ((), ("--keep", "1"), ("--keep", "1", "--json"), ("--keep", "-1", "--yes")):
        assert ask("prune", *arguments).code == 2
    claim = JournalClaim.take(tmp_path / "state")
    assert told(ask("prune", "--keep", "0", "--yes", "--json")) == {
        "state_dir": str(tmp_path / "state"),
        "erased": [],
        "in_use": [str(tmp_path / "state")],
    }
    assert "left alone" in ask("prune", "--keep", "0", "--yes").out
    claim.release()
    assert ask("prune", "--older-than", "1", "--yes").lines == ["0 trees erased"]
    assert told(ask("prune", "--keep", "1", "--yes", "--json"))["erased"] == [trees[0]]
    assert ids_in(tmp_path / "state") == [trees[1]]


@pytest.mark.slow
def test_erase_asks_at_a_terminal(program: Program, trees: tuple[str, str], tmp_path: Path) -> None:
    """What would go is shown first; anything but yes keeps it, with exit code 1."""
    place = ("--state-dir", str(tmp_path / "state"))
    with program.at_terminal("journal", "erase", trees[0], *place) as terminal:
        terminal.wait_for("and 1 record of memory? [y/N]")
        terminal.type("n\n")
        terminal.wait_for("nothing erased")
        assert terminal.end() == 1
    with program.at_terminal("journal", "prune", "--keep", "1", *place) as terminal:
        terminal.wait_for("erase 1 tree? [y/N]")
        assert trees[0] in terminal.said
        assert trees[1] not in terminal.said
        terminal.type("y\n")
        terminal.wait_for("1 tree erased")
        assert terminal.end() == 0
    assert ids_in(tmp_path / "state") == [trees[1]]

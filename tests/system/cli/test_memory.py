"""``sessiontree memory``: the owner looks at what is remembered, carries it elsewhere, and forgets."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from sessiontree.contracts.values.memory import MemoryScope, NewRecord
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.place import StoreLock
from sessiontree.memory.store import LanceMemoryStore
from tests.system.cli.command_fixtures import Done, Program
from tests.unit.memory.minilm_oracle import write_model
from tests.unit.memory.vector_server_fakes import serving

BRANCH = MemoryScope("t1", "main/b1", "default", "/w")
OTHER = MemoryScope("t2", "main", "other", "/elsewhere")
HOSTILE = "red \x1b[31m and \u202e turned\nsecond line"
SECRET = "hush-4711"

Ask = Callable[..., Done]


async def _fill(place: Path) -> None:
    async with await LanceMemoryStore.open(str(place), HashingEmbedder()) as store:
        new = [
            NewRecord("Retries are handled in the scheduler", "fact", "src/scheduler.py#L3-L9"),
            NewRecord("Images are resized before they are sent", "decision", "src/images.py#L20"),
            NewRecord(HOSTILE, "free", "src/images.py\x1b[2J", "foreign"),
        ]
        await store.store(new, BRANCH, "call1")
        await store.store([NewRecord("The owner prefers short answers", "preference")], OTHER, "call2")
        await store.mark_finished("t2", agent_id="other", workspace="/elsewhere", ended_at_ms=7)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of four records of two trees, which nobody changes."""
    place = tmp_path_factory.mktemp("filled") / "memory"
    anyio.run(_fill, place)
    return place


@pytest.fixture
def state(filled: Path, tmp_path: Path) -> Path:
    """A state directory with a copy of that memory."""
    place = tmp_path / "state-dir"
    shutil.copytree(filled, place / "memory")
    return place


@pytest.fixture
def ask(program: Program, state: Path) -> Ask:
    """Run a command on that memory inside this process."""

    def run(command: str, *arguments: str | Path, given: str = "") -> Done:
        return program.call("memory", command, *arguments, "--state-dir", state, given=given)

    return run


@pytest.fixture
def writer(state: Path) -> Iterator[None]:
    """Somebody who writes that memory meanwhile."""
    lock = StoreLock(state / "memory")
    try:
        yield
    finally:
        lock.release()


def told(done: Done) -> dict[str, Any]:
    """Return the one object a command printed."""
    assert done.code == 0, done.err
    value: dict[str, Any] = json.loads(done.out)
    return value


def texts(ask: Ask) -> list[str]:
    """Return all that is remembered."""
    return [record["text"] for record in told(ask("list", "--json"))["records"]]


def test_search_shows_what_fits_best_first(ask: Ask, state: Path, writer: None) -> None:
    """As lines with score, citation and text, and as one object; also alongside a writer."""
    done = ask("search", "where are retries handled?")
    assert done.lines[0].startswith("1.00 fact src/scheduler.py#L3-L9 (by t1:main/b1, session; ")
    assert done.lines[1] == "     Retries are handled in the scheduler"
    found = told(ask("search", "where are retries handled?", "--limit", "2", "--json"))
    assert found["uri"] == str(state / "memory")
    assert found["hits"][0]["source"] == "src/scheduler.py#L3-L9"
    assert len(found["hits"]) == 2
    assert found["hits"][0]["score"] == 1.0
    assert set(found["hits"][0]) == {
        "id", "type", "text", "source", "trust", "created_at_ms", "tree_id", "session", "agent_id",
        "workspace", "score"
    }  # fmt: skip


async def _tidy(place: Path) -> None:
    async with await LanceMemoryStore.open(str(place), HashingEmbedder()) as store:
        await store.tidy()


@pytest.mark.slow
@pytest.mark.parametrize(
    "query", ['"retries are handled"', '"retries" "handled"', ";retries(1);t=", "\udcff retries"]
)
def test_search_takes_any_text(ask: Ask, state: Path, query: str) -> None:
    """Quotes, operators and bytes that are no UTF-8, once the index was brought up to date."""
    anyio.run(_tidy, state / "memory")
    hits = told(ask("search", query, "--json"))["hits"]
    assert hits[0]["source"] == "src/scheduler.py#L3-L9"
    assert told(ask("search", '""', "--json"))["hits"] == []


@pytest.mark.slow
def test_search_and_list_are_narrowed(ask: Ask) -> None:
    """By type, by path and by tree; every tree's records are the owner's."""
    assert {hit["type"] for hit in told(ask("search", "sent", "--type", "decision", "--json"))["hits"]} == {
        "decision"
    }
    hits = told(ask("search", "are handled", "--path", "src/images.py", "--json"))["hits"]
    assert [hit["source"] for hit in hits] == ["src/images.py#L20"]
    listed = told(ask("list", "--json"))
    assert (listed["total"], listed["embedder"]) == (4, "hashing-384-v1")
    assert [record["tree_id"] for record in listed["records"]] == ["t1", "t1", "t1", "t2"]
    narrowed = told(ask("list", "--path", "src", "--type", "fact", "--type", "decision", "--json"))["records"]
    assert [record["type"] for record in narrowed] == ["fact", "decision"]
    assert [each["tree_id"] for each in told(ask("list", "--tree", "t2", "--json"))["records"]] == ["t2"]
    newest = told(ask("list", "--limit", "1", "--json"))
    assert newest["total"] == 4
    assert [record["tree_id"] for record in newest["records"]] == ["t2"]


@pytest.mark.covers("REL-L7")
@pytest.mark.parametrize("command", [("list",), ("search", "red and turned")])
def test_foreign_text_can_t_deceive_the_terminal(ask: Ask, command: tuple[str, ...]) -> None:
    """Escapes, and characters that turn the line, are shown as what they are."""
    done = ask(*command)
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    assert "red \\u{1b}[31m and \\u{202e} turned" in done.out
    assert "src/images.py\\u{1b}[2J" in done.out


@pytest.mark.covers("A42")
@pytest.mark.slow
def test_export_is_imported_elsewhere(ask: Ask, program: Program, tmp_path: Path, writer: None) -> None:
    """From file and stream, with a live writer; the file is private to its owner; twice adds nothing."""
    path, copy = tmp_path / "memory.ndjson", tmp_path / "copy"
    done = told(ask("export", path, "--json"))
    assert (done["records"], done["finished"], done["file"]) == (4, 1, str(path))
    assert done["by_type"] == {"decision": 1, "fact": 1, "free": 1, "preference": 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "4 records and 1 finished tree exported" in ask("export", path).out
    streamed = ask("export").out
    assert [json.loads(line) for line in streamed.splitlines()[1:-1]] == [
        json.loads(line) for line in path.read_text().splitlines()[1:-1]
    ]
    for given, file in (("", str(path)), (streamed, "-")):
        added = 0 if given else 4
        done = told(program.call("memory", "import", file, "--uri", copy, "--json", given=given))
        assert (done["records"], done["added"], done["finished"]) == (4, added, 1)
    assert texts(ask) == [
        record["text"] for record in told(program.call("memory", "list", "--uri", copy, "--json"))["records"]
    ]


def test_cut_export_makes_no_store(program: Program, ask: Ask, tmp_path: Path) -> None:
    """It is refused in one line that names the file, and nothing is begun for it."""
    path, copy = tmp_path / "memory.ndjson", tmp_path / "copy"
    ask("export", path)
    path.write_bytes(path.read_bytes()[:-20])
    done = program.call("memory", "import", path, "--uri", copy)
    assert done.code == 2
    assert done.err.startswith(
        f"sessiontree: MemoryFailed: memory '{path}': line 7: the file ends without an end line"
    )
    assert not copy.exists()


@pytest.mark.slow
def test_reindexed_under_another_embedder(ask: Ask, tmp_path: Path) -> None:
    """The records are the same; a search names the question's embedder, and learns which one it must name."""
    write_model(tmp_path / "model")
    before = texts(ask)
    named = f"minilm model_dir={tmp_path / 'model'}"
    done = told(ask("reindex", "--embedder", named, "--json"))
    assert (done["records"], done["before"]) == (4, "hashing-384-v1")
    assert done["after"].startswith("minilm-8-")
    assert texts(ask) == before
    unnamed = ask("search", "retries")
    assert unnamed.code == 2
    assert "ConfigError" in unnamed.err
    assert "--embedder" in unnamed.err
    assert told(ask("search", "retries", "--embedder", named, "--json"))["hits"][0]["type"] == "fact"
    wrong = ask("search", "retries", "--embedder", "hashing")
    assert "MemoryFailed" in wrong.err
    assert "4 records" in ask("reindex").out
    assert ask("search", "retries").code == 0


@pytest.mark.slow
def test_reindexed_by_a_server(ask: Ask, program: Program) -> None:
    """A model behind HTTP is named with its settings; the key comes from the environment and is not shown."""
    program.environment["THE_KEY"] = SECRET
    with serving() as server:
        named = f"http url={server.url} model=tiny dimensions=3 api_key_env=THE_KEY"
        done = ask("reindex", "--embedder", named)
        assert "4 records" in done.out
        assert "http-3-tiny" in done.out
        assert {asked.key for asked in server.asked} == {f"Bearer {SECRET}"}
        assert ask("search", "retries", "--embedder", named).code == 0
    gone = ask("search", "retries", "--embedder", named.replace("tiny", "tiny2"))
    assert gone.code == 2
    assert SECRET not in gone.err + done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("word2vec", "--embedder"),
        ("", "--embedder"),
        ("minilm", "model_dir: Field required"),
        ("minilm model_dir", "--embedder"),
        ("http url=http://h model=m dimensions=many", "dimensions"),
        (f"http url=http://me:{SECRET}@host model=m dimensions=3", "url"),
        ("hashing colour=red", "colour"),
        ("minilm model_dir=/nowhere", "/nowhere"),
        ("'", "--embedder"),
    ],
)
def test_wrong_embedder_is_one_line(ask: Ask, named: str, said: str) -> None:
    """It names the setting, and never quotes a secret."""
    done = ask("reindex", "--embedder", named)
    assert done.code == 2
    assert done.err.startswith("sessiontree: ConfigError: ")
    assert said in done.err
    assert SECRET not in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [("reindex",), ("import", "FILE"), ("forget", "--tree", "t1", "--yes")],
    ids=lambda each: each[0],
)
def test_who_writes_is_named(ask: Ask, writer: None, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """What needs the store for itself says which process has it, and changes nothing."""
    ask("export", tmp_path / "FILE")
    done = ask(*(tmp_path / word if word == "FILE" else word for word in arguments))
    assert done.code == 2
    assert "MemoryFailed" in done.err
    assert f"process {os.getpid()} " in done.err
    assert len(texts(ask)) == 4


@pytest.mark.slow
def test_forgotten_by_condition(ask: Ask) -> None:
    """By path and tree, by id; all conditions must hold; what does not fit stays."""
    assert told(ask("forget", "--tree", "t2", "--path", "src", "--yes", "--json"))["forgotten"] == []
    assert len(told(ask("forget", "--path", "src/images.py", "--yes", "--json"))["forgotten"]) == 1
    ids = [record["id"] for record in told(ask("list", "--json"))["records"]]
    assert told(ask("forget", "--id", ids[0], "--id", ids[2], "--yes", "--json"))["forgotten"] == [
        ids[0],
        ids[2],
    ]
    assert texts(ask) == [HOSTILE]
    assert ask("forget", "--tree", "t1", "--yes").lines == ["1 record forgotten"]
    assert texts(ask) == []


def test_nothing_is_forgotten_where_nobody_can_be_asked(ask: Ask) -> None:
    """Without a terminal and without --yes it refuses, whatever its input holds; or without condition."""
    for arguments, said in (
        (("--tree", "t1"), "--yes"),
        (("--tree", "t1", "--json"), "--yes"),
        (("--yes",), "--id"),
    ):
        done = ask("forget", *arguments, given="y\n")
        assert done.code == 2
        assert "ConfigError" in done.err
        assert said in done.err
    assert len(texts(ask)) == 4


@pytest.mark.short(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "code", "left"), [("y\n", 0, 1), ("n\n", 1, 4), ("\n", 1, 4), ("\x04", 1, 4)]
)
def test_person_is_asked(program: Program, ask: Ask, state: Path, answer: str, code: int, left: int) -> None:
    """What would go is shown, then the question; anything but a yes keeps it."""
    with program.at_terminal("memory", "forget", "--tree", "t1", "--state-dir", state) as terminal:
        terminal.wait_for("forget 3 records? [y/N]")
        assert "Retries are handled" in terminal.said
        assert "\x1b[2J" not in terminal.said
        terminal.type(answer)
        assert terminal.end() == code
    assert len(texts(ask)) == left


@pytest.mark.parametrize(
    "command", [("list",), ("search", "x"), ("export",), ("reindex",), ("forget", "--tree", "t", "--yes")]
)
def test_where_nothing_is_remembered_nothing_is_made(
    program: Program, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """One line, and no store."""
    place = tmp_path / "nowhere"
    done = program.call("memory", *command, "--uri", place)
    assert done.code == 2
    assert done.err.startswith(f"sessiontree: MemoryFailed: memory '{place}': the store does not exist")
    assert not place.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--limit", "0"),
        ("list", "--type", "rumour"),
        ("search", "x", "--limit", "101"),
        ("list", "--uri", ""),
        ("export", "--json"),
        ("import", "nowhere.ndjson"),
        ("export", "nowhere/memory.ndjson"),
    ],
)
def test_wrong_use_is_one_line(ask: Ask, arguments: tuple[str, ...]) -> None:
    """Exit code 2, and what is wrong."""
    done = ask(*arguments)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1


def test_workspace_has_a_memory_of_its_own(program: Program, tmp_path: Path) -> None:
    """Without any place the workspace's own is meant, below the user's state folder."""
    room = tmp_path / "room"
    room.mkdir()
    done = program.call("memory", "list", "--workspace", room)
    assert str(program.state_home / "sessiontree" / "room-") in done.err

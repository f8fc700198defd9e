"""``sessiontree doctor``: this installation, a state directory, and the runtime at work there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sessiontree import Runtime, ScriptedModel, SessionTree, script_call
from sessiontree.journal.journal import Journal
from sessiontree.journal.place import JournalLock, JournalPlace
from sessiontree.sandbox import detect_level
from sessiontree.version import VERSION
from sessiontree.workspace.git_files import find_git
from tests.system.cli.command_fixtures import Done, Program
from tests.system.cli.errand_program import errands
from tests.system.cli.lingering_fakes import linger

TEXT, MAYBE = {"type": "string"}, {"type": ["string", "null"]}
NUMBER, TEXTS = {"type": "integer"}, {"type": "array", "items": {"type": "string"}}


def exactly(**members: Any) -> dict[str, Any]:
    """Return the schema of an object that has these members and no others."""
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def listed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


ACTOR = exactly(
    name=TEXT, role=TEXT, pid=NUMBER, confinement=TEXT, tree_id=MAYBE, session=MAYBE, epoch=NUMBER, node=TEXT
)
RAY = exactly(
    ray_version=TEXT,
    private={"type": "boolean"},
    auth_mode={"enum": ["token", "disabled"]},
    token_path=MAYBE,
    token_mode=MAYBE,
    key_variables=TEXTS,
    directory=TEXT,
    directory_mode=TEXT,
    dashboard=TEXT,
    nodes=NUMBER,
    listening=listed(exactly(address=TEXT, port=NUMBER, process=TEXT, pid=NUMBER)),
    failed_starts=TEXTS,
)
STATE = exactly(
    directory=TEXT,
    mode=MAYBE,
    journal_mode=MAYBE,
    usable={"type": "boolean"},
    journal_bytes=NUMBER,
    trees={"type": ["integer", "null"]},
    damaged_trees=TEXTS,
    failure=MAYBE,
    writer={"type": ["integer", "null"]},
)
RUNTIME = {
    "anyOf": [
        {"type": "null"},
        exactly(
            release=TEXT,
            backend={"enum": ["ray", "local"]},
            trees=TEXTS,
            actors=listed(ACTOR),
            ray={"anyOf": [{"type": "null"}, RAY]},
        ),
    ]
}
TOLD = exactly(
    installation=exactly(
        version=TEXT, python=TEXT, executable=TEXT, ray=MAYBE, system=TEXT, kernel=TEXT, machine=TEXT
    ),
    room=exactly(
        shared_memory_bytes={"type": ["integer", "null"]}, descriptors={"type": ["integer", "null"]}
    ),
    confinement=exactly(
        offered=TEXT,
        full={"type": "boolean"},
        tried=MAYBE,
        trial_ms=NUMBER,
        failure=MAYBE,
        holds=TEXTS,
        leaves=TEXTS,
    ),
    commands=exactly(bubblewrap=MAYBE, kernel=TEXT, failure=MAYBE),
    speech=exactly(program=TEXT),
    containers=listed(exactly(engine=TEXT, program=MAYBE, failure=TEXT)),
    browser=exactly(program=MAYBE, missing=TEXT, is_ready={"type": "boolean"}),
    terminal=exactly(draws={"type": "boolean"}),
    programs=exactly(binary=TEXT, version=TEXT, missing=TEXT),
    git=exactly(program=MAYBE),
    state=STATE,
    runtime=RUNTIME,
    cluster={"type": "null"},
    others=listed(exactly(state=STATE, runtime=RUNTIME)),
    findings=listed(exactly(mark={"enum": ["wrong", "beware"]}, what=TEXT, do=TEXT)),
    fine={"type": "boolean"},
)


def read(done: Done, code: int = 0) -> Any:
    """Return what programs read."""
    assert (done.code, done.err) == (code, "")
    told = json.loads(done.out)
    jsonschema.validate(told, TOLD)
    assert told["fine"] == (code == 0)
    return told


def told_of(program: Program, state_dir: Path, code: int = 0) -> Any:
    """Return what programs read of a state directory."""
    return read(program.call("doctor", "--state-dir", state_dir, "--json"), code)


def marks(told: Any) -> list[str]:
    """Return the marks of all findings."""
    return [finding["mark"] for finding in told["findings"]]


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state directory with a journal of one tree that nobody has open."""
    place = tmp_path / "journal"
    asyncio.run(write_tree(place))
    return place


async def write_tree(place: Path) -> None:
    """Write a tree and let go of it."""
    journal = Journal.open(place)
    journal.start(asyncio.get_running_loop())
    await journal.create_tree("t1", {"purpose": "none"})
    await journal.close()


def test_without_a_state_directory_all_is_fine_and_nothing_is_made(program: Program, tmp_path: Path) -> None:
    """The first look, before anything ran: what is installed, and how far a trial was confined."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    told = read(program.call("doctor", workspace, "--json"))
    level = str(detect_level())
    assert told["installation"]["version"] == VERSION
    assert (told["confinement"]["offered"], told["confinement"]["tried"]) == (level, level)
    assert (told["commands"]["kernel"], told["commands"]["failure"]) == (level, None)
    assert Path(told["state"]["directory"]).is_relative_to(program.state_home)
    assert (told["state"]["mode"], told["state"]["trees"], told["state"]["journal_bytes"]) == (None, None, 0)
    assert (told["runtime"], told["findings"]) == (None, [])
    done = program.call("doctor", workspace)
    assert done.code == 0
    assert f"confinement: the kernel offers {level}; a trial gave {level} in " in done.out
    bubblewrap = told["commands"]["bubblewrap"]
    assert f"commands: each confined by bubblewrap {bubblewrap} and {level}: no network" in done.out
    assert told["browser"]["is_ready"]
    assert told["terminal"]["draws"]
    assert told["git"] == {"program": find_git()}
    assert f"\ngit: ready: {find_git()} lists" in done.out
    assert "\nterminal: ready: screens of commands are drawn\n" in done.out
    assert "\nprograms: ready: their interpreter runs confined\n" in done.out
    assert "\nbrowser: ready: /usr/bin/chromium, in a sandbox of its own\n" in done.out
    assert "  not there yet; the first tree makes it\nruntime: none is at work here\n" in done.out
    assert done.lines[-1] == "fine: sessions can run here; nothing to beware of"
    assert (list(workspace.iterdir()), program.state_home.exists()) == ([], False)


def test_container_engines_are_told(program: Program, tmp_path: Path) -> None:
    """One that answers, one that does not, and one that is not installed."""
    folder = tmp_path / "programs"
    folder.mkdir()
    program.environment["PATH"] = str(folder)
    assert "\ncontainers: podman is not installed; docker is not installed\n" in program.call("doctor").out
    for name, body in {"podman": "exit 0", "docker": "echo no daemon >&2; exit 1"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n", "utf-8")
        (folder / name).chmod(0o755)
    podman, docker = read(program.call("doctor", "--json"))["containers"]
    assert podman == {"engine": "podman", "program": str(folder / "podman"), "failure": ""}
    assert docker["failure"].endswith("does not work: no daemon")
    said = program.call("doctor").out
    assert "\ncontainers: podman answers; docker can't start any: " in said


@pytest.mark.slow
def test_ray_is_not_loaded(tmp_path: Path) -> None:
    """A look takes a moment, not the seconds that Ray's import takes."""
    looks = "\n".join(
        [
            "import sys",
            f"sys.argv = ['sessiontree', 'doctor', '--state-dir', {str(tmp_path / 'none')!r}]",
            "from sessiontree.cli.app import main",
            "try: main()",
            "except SystemExit as ended: assert not ended.code",
            "print(*sorted({name.partition('.')[0] for name in sys.modules}))",
        ]
    )
    done = subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, check=True)
    assert not {"ray", "lancedb", "pyarrow"} & set(done.stdout.splitlines()[-1].split())


def test_journal_at_rest_is_told(program: Program, state_dir: Path) -> None:
    """Its place, mode, size and trees; looking changes nothing in it."""
    before = (state_dir / "journal.db").read_bytes()
    state = told_of(program, state_dir)["state"]
    assert (state["mode"], state["journal_mode"], state["trees"]) == ("0700", "0600", 1)
    assert state["journal_bytes"] == (state_dir / "journal.db").stat().st_size
    assert (state["failure"], state["damaged_trees"], state["writer"]) == (None, [], None)
    shown = program.call("doctor", "--state-dir", state_dir).out
    assert re.search(
        r"^  mode 0700, journal of [\d.]+ kB, 1 tree, whole at a quick look$", shown, re.MULTILINE
    )
    assert (state_dir / "journal.db").read_bytes() == before


def cut(database: Path) -> None:
    """Damage the header."""
    with database.open("r+b") as file:
        file.write(b"\0" * 100)


def renew(database: Path) -> None:
    """Let it be of a later release."""
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()


def lose(database: Path) -> None:
    """Leave nothing but the log."""
    database.rename(database.with_name("journal.db-wal"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "what", "do"),
    [
        (cut, "its header is damaged", "restore it from a backup"),
        (renew, "it has schema 99, this release knows 1", "use a later release"),
        (lose, "the file is gone but its log remains", "restore both"),
    ],
)
def test_journal_nobody_can_open_is_wrong(
    program: Program, state_dir: Path, harm: Callable[[Path], None], what: str, do: str
) -> None:
    """Exit code 1, one finding that says what to do, and the rest is reported all the same."""
    harm(state_dir / "journal.db")
    told = told_of(program, state_dir, code=1)
    (finding,) = told["findings"]
    assert finding["mark"] == "wrong"
    assert what in finding["what"]
    assert finding["do"] == do
    assert told["state"]["trees"] is None
    assert told["confinement"]["tried"] == told["confinement"]["offered"]
    done = program.call("doctor", "--state-dir", state_dir)
    assert done.code == 1
    assert "  it can't be read" in done.lines
    assert done.lines[-2:] == [f"wrong: {finding['what']}; {do}", "1 wrong, 0 to beware of"]


def test_damaged_tree_is_told_and_others_go_on(program: Program, state_dir: Path) -> None:
    """A quick look sees altered first rows; they keep nobody else from running."""
    connection = sqlite3.connect(state_dir / "journal.db")
    with connection:
        connection.execute("""UPDATE trees SET row0 = '{"purpose":"another"}'""")
    connection.close()
    told = told_of(program, state_dir)
    assert (told["state"]["damaged_trees"], marks(told)) == (["t1"], ["beware"])


@pytest.mark.slow
def test_state_directory_that_is_none_is_wrong(program: Program, tmp_path: Path) -> None:
    """A file in its place is found before any tree is lost to it."""
    (tmp_path / "file").touch()
    (finding,) = told_of(program, tmp_path / "file", code=1)["findings"]
    assert finding["what"].endswith("it is not a directory")
    (finding,) = told_of(program, tmp_path / "file" / "below", code=1)["findings"]
    assert "can't be written by this user" in finding["what"]


@pytest.mark.slow
def test_state_directory_out_of_reach_is_wrong(program: Program, tmp_path: Path) -> None:
    """Neither reading nor writing is taken for granted; the doctor itself does not fail."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    done = program.run("doctor", "--state-dir", closed / "below", "--json", restricted=True)
    (finding,) = read(done, code=1)["findings"]
    assert "can't be written by this user" in finding["what"]
    closed.chmod(0)
    done = program.run("doctor", "--state-dir", closed / "below", "--json", restricted=True)
    place, listener = read(done, code=1)["findings"]
    assert place["what"].endswith("ermission denied")
    assert "--state-dir" in place["do"]
    assert "the control socket of its runtime can't be opened" in listener["what"]
    closed.chmod(0o700)


@pytest.mark.slow
def test_directory_open_to_others_is_told(program: Program, state_dir: Path) -> None:
    """A link to it changes nothing about its mode; sessions run all the same."""
    state_dir.chmod(0o755)
    link = state_dir.with_name("link")
    link.symlink_to(state_dir)
    told = told_of(program, link)
    (finding,) = told["findings"]
    assert (finding["mark"], finding["do"]) == ("beware", f"chmod 700 {link}")
    state_dir.chmod(0o700)
    assert told_of(program, link)["findings"] == []


def test_journals_of_other_programs_are_told_too(program: Program, state_dir: Path) -> None:
    """Each as the first one is; trees of all are listed."""
    other = state_dir / "journals" / "2"
    other.mkdir(parents=True, mode=0o700)
    shutil.copy(state_dir / "journal.db", other)
    told = told_of(program, state_dir)
    assert [each["state"]["directory"] for each in told["others"]] == [str(other)]
    assert told["others"][0]["state"]["trees"] == told["state"]["trees"]
    assert told["others"][0]["runtime"] is None
    assert f"state: {other}" in program.call("doctor", "--state-dir", state_dir).lines
    listed = json.loads(program.call("tree", "--list", "--state-dir", state_dir, "--json").out)["trees"]
    assert len(listed) == 2 * told["state"]["trees"]


@pytest.mark.slow
def test_lock_without_a_door_is_seen_and_left_alone(program: Program, state_dir: Path) -> None:
    """Whoever holds the journal is named, and holds it afterwards; once it is gone all is fine."""
    lock = JournalLock(JournalPlace(state_dir))
    told = told_of(program, state_dir, code=1)
    assert told["state"]["writer"] == os.getpid()
    (finding,) = told["findings"]
    assert f"process {os.getpid()} holds the journal" in finding["what"]
    shown = program.call("doctor", "--state-dir", state_dir).lines
    assert f"runtime: none answers; process {os.getpid()} holds the journal" in shown
    lock.release()
    assert told_of(program, state_dir)["state"]["writer"] is None


def test_authentication_turned_off_is_wrong(program: Program, tmp_path: Path) -> None:
    """A private Ray would refuse to start; that is reported before."""
    program.environment["RAY_AUTH_MODE"] = "disabled"
    (finding,) = told_of(program, tmp_path / "none", code=1)["findings"]
    assert "RAY_AUTH_MODE=disabled" in finding["what"]


def test_names_cannot_paint_the_terminal(program: Program, tmp_path: Path) -> None:
    """What a path holds is shown, not obeyed."""
    place = tmp_path / "red\x1b[31m"
    place.mkdir(mode=0o755)
    shown = program.call("doctor", "--state-dir", place).out
    assert "\x1b" not in shown
    assert "beware: other users can see what is" in shown


def test_workspace_that_is_none_ends_with_2(program: Program, tmp_path: Path) -> None:
    """As with every other command."""
    done = program.call("doctor", tmp_path / "nowhere")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("sessiontree: ConfigError: workspace ")


@pytest.mark.slow
def test_runtime_in_one_process_is_told(program: Program, tmp_path: Path) -> None:
    """With a live program: its process, the session that waits for an answer, and no Ray."""
    with errands(tmp_path, "sweep hall") as running:
        running.waiting()
        told = read(program.run("doctor", "--state-dir", running.state_dir, "--json"))
        runtime = told["runtime"]
        assert (runtime["release"], runtime["backend"], runtime["ray"]) == (VERSION, "local", None)
        assert (runtime["trees"], told["state"]["writer"]) == ([running.tree_id], running.process.pid)
        assert {actor["pid"] for actor in runtime["actors"]} == {running.process.pid}
        assert {actor["confinement"] for actor in runtime["actors"]} == {"structural"}
        (embodied,) = [actor for actor in runtime["actors"] if actor["session"] is not None]
        assert (embodied["session"], embodied["tree_id"]) == ("main", running.tree_id)
        assert embodied["epoch"] >= 1
        shown = program.call("doctor", "--state-dir", running.state_dir)
        assert f"runtime: release {VERSION}, open trees: {running.tree_id}" in shown.lines
        assert "ray: none; structural: all sessions share one process" in shown.lines
        row = (
            rf"^{embodied['name']} +host +{running.process.pid} +structural +main +{running.tree_id} +\d+ *$"
        )
        assert re.search(row, shown.out, re.MULTILINE)
        running.kill()
        assert told_of(program, running.state_dir)["runtime"] is None


@pytest.mark.slow
def test_runtime_that_does_not_answer_is_wrong(program: Program, tmp_path: Path) -> None:
    """A stopped program holds its journal: nobody else can go on there, and that is said."""
    with errands(tmp_path) as running:
        running.process.send_signal(signal.SIGSTOP)
        told = told_of(program, running.state_dir, code=1)
        running.process.send_signal(signal.SIGCONT)
        (finding,) = told["findings"]
        assert "did not answer within 3 s" in finding["what"]
        assert told["state"]["writer"] == running.process.pid
        assert told_of(program, running.state_dir)["runtime"]["trees"] == [running.tree_id]


@pytest.mark.slow
async def test_actor_of_ray_is_told_with_the_session_it_embodies(
    program: Program, ray_runtime: Runtime, tmp_path: Path
) -> None:
    """A Worker at work: on a confined process, on a Ray that wants a token and listens to nobody outside."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    model = ScriptedModel([script_call("linger", pipe=str(pipe)), "done"])
    tree = SessionTree(tmp_path, model=model, tools=[linger], runtime=ray_runtime)
    async with tree, asyncio.timeout(60):
        worker = await tree.main.spawn("worker", "linger")
        # opened once the Worker's tool has the other end
        with await asyncio.to_thread(pipe.open, "w"):
            told = read(
                await asyncio.to_thread(program.run, "doctor", "--state-dir", tree.state_dir, "--json")
            )
            shown = await asyncio.to_thread(program.run, "doctor", "--state-dir", tree.state_dir)
        await worker.result()
    runtime, ray = told["runtime"], told["runtime"]["ray"]
    assert runtime["backend"] == "ray"
    embodied = {actor["session"]: actor for actor in runtime["actors"] if actor["tree_id"] == tree.tree_id}
    actor = embodied[worker.session_id]
    assert actor["role"] == "observing"
    assert actor["epoch"] >= 1
    assert re.fullmatch(r"landlock-\d+\+seccomp", actor["confinement"])
    supervisor = runtime["actors"][0]
    assert (supervisor["role"], supervisor["confinement"]) == ("supervisor", "structural")
    assert len({actor["pid"], supervisor["pid"], os.getpid()}) == 3
    assert (ray["private"], ray["auth_mode"], ray["directory_mode"]) == (True, "token", "0700")
    assert (ray["listening"], ray["dashboard"], ray["token_path"]) == ([], "off", None)
    cells = [actor["name"], "observing", str(actor["pid"]), re.escape(actor["confinement"])]
    row = " +".join([*cells, worker.session_id, tree.tree_id, str(actor["epoch"])])
    assert re.search(f"^{row} *$", shown.out, re.MULTILINE)
    assert "  authentication: token, in no file: its processes hand it down" in shown.lines
    assert "  other machines may reach: nothing" in shown.lines
    assert told["findings"] == []


def test_address_that_is_not_one_ends_with_2(program: Program, tmp_path: Path) -> None:
    """Before anything is looked at."""
    for address in ("nowhere", "ray://10.0.0.1:10001", ""):
        done = program.call("doctor", "--state-dir", tmp_path, "--address", address, "--json")
        assert (done.code, done.out) == (2, ""), address
        assert "address" in done.err


@pytest.mark.slow
def test_address_where_no_ray_answers_is_wrong(program: Program, tmp_path: Path) -> None:
    """The rest is reported all the same."""
    with socket.socket() as taken:  # bound and not listening: it refuses
        taken.bind(("127.0.0.2", 0))
        address = f"127.0.0.2:{taken.getsockname()[1]}"
        told = read(program.run("doctor", "--state-dir", tmp_path, "--address", address, "--json"), 1)
    (finding,) = (each for each in told["findings"] if each["mark"] == "wrong")
    assert f"no Ray answers at address '{address}'" in finding["what"]
    assert told["cluster"] is None

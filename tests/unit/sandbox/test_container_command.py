"""Commands in a container: the words for the engine, and how a command ends."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError, SandboxSpec
from sessiontree.contracts.errors import ConfinementUnavailable, ExecutionError
from sessiontree.contracts.handles.ports import Finished
from sessiontree.sandbox.containers.container import Container, remove_containers
from sessiontree.sandbox.containers.container_command import ContainerCommand, MarkedOutput
from sessiontree.sandbox.containers.engine import MARK, SIGNALLER, exec_words, run_words
from sessiontree.sandbox.process_tree import find_process_identity
from tests.unit.sandbox.container_fixtures import IMAGE, StubEngine, engine

__all__ = ["engine"]
LABELS = {"sessiontree": "here"}
SHELLS = [words for words in (["dash"], ["bash"], ["busybox", "sh"], ["sh"]) if shutil.which(words[0])]
NOTHING = SandboxSpec(image=IMAGE)


@asynccontextmanager
async def running(engine: StubEngine, workspace: Path, **settings: object) -> AsyncIterator[Container]:
    """Yield a container that runs."""
    spec = engine.spec(**settings)
    container = Container(spec, "box", LABELS, [(str(workspace), spec.workdir, "rw")])
    await container.start()
    try:
        yield container
    finally:
        await container.close()


def command(
    engine: StubEngine,
    *,
    cleanup_s: float = 5.0,
    output_bytes: int = 1_000_000,
    on_output: Callable[[str], None] | None = None,
) -> ContainerCommand:
    """Return a command of the container."""
    return ContainerCommand(
        str(engine.program),
        "box",
        memory_bytes=1 << 20,
        output_bytes=output_bytes,
        cleanup_s=lambda: cleanup_s,
        keep_bytes=1000,
        on_output=on_output,
    )


async def outcome(
    engine: StubEngine, text: str, *, env: Mapping[str, str] | None = None, timeout_s: float = 60.0
) -> Finished:
    """Run one command line to its end."""
    return await command(engine).run(text, ".", env or {}, timeout_s)


@pytest.mark.parametrize(
    "image", ["", "-v", "--privileged", "a b", "a;b", "$(id)", "a\nb", "a`id`", "@x", "ä"]
)
def test_image_is_a_name_and_nothing_else(image: str) -> None:
    """No name is taken for an option, and none has what a shell would read."""
    with pytest.raises(ConfigError, match=r"image: .*should match"):
        SandboxSpec(image=image)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("workdir", "relative"),
        ("workdir", "/"),
        ("workdir", "/a/../b"),
        ("workdir", "/a:b"),
        ("workdir", "/proc/x"),
        ("user", "-u"),
        ("user", "a b"),
        ("program", "podman"),
        ("env", {"A=B": "c"}),
        ("env", {"A": "\0"}),
        ("memory_bytes", 1),
        ("engine", "lxc"),
        ("files", "copy"),
    ],
)
def test_what_would_mean_something_else_to_an_engine_is_refused(setting: str, value: object) -> None:
    """Every setting that becomes a word is checked where it is given."""
    given: dict[str, Any] = {"image": IMAGE, setting: value}
    with pytest.raises(ConfigError, match="SandboxSpec: "):
        SandboxSpec(**given)


def test_container_has_no_network_and_bounds_unless_its_owner_says_so() -> None:
    """The image is the word after the options, and the options end before it."""
    words = run_words(NOTHING, "box", LABELS, [("/w", "/workspace", "ro")])
    pairs = set(pairwise(words))
    assert {
        ("--network", "none"),
        ("--memory", f"{2048 << 20}b"),
        ("--memory-swap", f"{2048 << 20}b"),
        ("--pids-limit", "512"),
        ("--volume", "/w:/workspace:ro"),
        ("--security-opt", "no-new-privileges"),
        ("--label", "sessiontree=here"),
        ("--", IMAGE),
    } <= pairs
    assert "--http-proxy=false" in words
    open_words = run_words(
        SandboxSpec(image=IMAGE, network=True, memory_bytes=None, processes=None), "box", {}, []
    )
    assert not {"--network", "--memory", "--pids-limit"} & set(open_words)


def test_hostile_values_stay_single_words() -> None:
    """A variable and a command reach the engine as they are, whatever they hold."""
    bad = "$(touch /tmp/x) '; --privileged \n --network=host"
    words = exec_words("box", bad, {"A": bad}, bad, "m")
    assert words.count(f"A={bad}") == 1
    assert words[-2:] == [bad, bad]
    assert [word for word in words if "privileged" in word] == [f"A={bad}", bad, bad]


def test_reports_of_a_command_are_found_wherever_its_output_is_cut() -> None:
    """Whatever the pieces: the output between the reports is passed on, exactly and once."""
    chance = random.Random(7)
    output = b"one\n\nm1 exited x\nm1 exited" + bytes(chance.randbytes(50)) + b"\n"
    whole = b"aa started 12\n" + output + b"\naa exited 3\n" + b"later words"
    for _ in range(300):
        taken: list[bytes] = []
        marked, rest = MarkedOutput("aa", taken.append), whole
        while rest:
            size = chance.randint(1, 20)
            marked.add(rest[:size])
            rest = rest[size:]
        assert (marked.session, marked.code, b"".join(taken)) == ("12", 3, output)


def test_output_that_ends_without_a_report_is_kept() -> None:
    """A command that was killed has reported no end."""
    taken: list[bytes] = []
    marked = MarkedOutput("aa", taken.append)
    marked.add(b"aa started 1\nhalf a report\naa exi")
    marked.close()
    assert (marked.code, b"".join(taken)) == (None, b"half a report\naa exi")


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_signals_reach_marked_processes_in_every_shell(shell: list[str]) -> None:
    """A process that left its session is found by its mark; one of another command is spared."""
    marked = subprocess.Popen(["sleep", "1000"], env={MARK: "its", "A": "b\nc"}, start_new_session=True)
    spared = subprocess.Popen(["sleep", "1000"], env={MARK: "another"}, start_new_session=True)
    own = subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True)
    try:
        # A started program has no variables for a moment, until the kernel has laid out its memory.
        while b"its" not in Path(f"/proc/{marked.pid}/environ").read_bytes():
            assert marked.poll() is None
        words = [*shell, "-c", SIGNALLER, "sh", f"{MARK}=its", "KILL", str(own.pid)]
        done = subprocess.run(words, env={"PATH": "/usr/bin:/bin"}, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert (marked.wait(30), own.wait(30)) == (-9, -9)
        assert spared.poll() is None
    finally:
        for process in (marked, spared, own):
            process.kill()
            process.wait()


async def test_output_and_exit_code_are_the_commands(engine: StubEngine, tmp_path: Path) -> None:
    """Errors are in the output where they were written; nothing of the reports is."""
    heard: list[str] = []
    async with running(engine, tmp_path):
        run = command(engine, on_output=heard.append)
        finished = await run.run("echo out; echo err >&2; printf end; exit 7", ".", {}, 60)
        assert (finished.reason, finished.exit_code, finished.head) == ("exited", 7, "out\nerr\nend")
        assert "".join(heard) == "out\nerr\nend"
        assert (await outcome(engine, "pwd")).head == f"{tmp_path}\n"
        with pytest.raises(ExecutionError, match="no directory 'none' is there"):
            await command(engine).run("pwd", "none", {}, 60)
        assert (await outcome(engine, "sleep 1000 & echo begun")).head == "begun\n", "it is left running"
        assert (await outcome(engine, "kill -9 $$")).limit == "memory_bytes", "a guess, as for any killed one"


async def test_no_variable_of_this_process_reaches_a_command(
    engine: StubEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine hides nothing: it has the variables that it was given, and the command those of its call."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HTTPS_PROXY", "MY_SECRET", "PYTHONPATH"):
        monkeypatch.setenv(name, "sk-secret")
    async with running(engine, tmp_path, env={"FROM_SPEC": "1"}):
        told = (await outcome(engine, "env", env={"OWN": "a 'b' $c"})).head
    assert "sk-secret" not in told
    assert {"FROM_SPEC=1", "OWN=a 'b' $c"} <= set(told.splitlines())


async def test_command_out_of_time_ends_with_what_it_started(engine: StubEngine, tmp_path: Path) -> None:
    """It is asked to end, then killed; a process that left the session is, too."""
    text = "trap '' TERM; setsid sleep 1000 & echo $! >pid; sleep 1000"
    async with running(engine, tmp_path):
        finished = await command(engine, cleanup_s=0.3).run(text, ".", {}, 2.0)
        assert (finished.reason, finished.exit_code, finished.signal) == ("timeout", None, 9)
        soft = await outcome(
            engine, "trap 'echo bye; exit 5' TERM; while :; do sleep 0.1; done", timeout_s=2.0
        )
        # The shell may say first that its `sleep` was ended.
        assert (soft.reason, soft.exit_code, soft.head.removeprefix("Terminated\n")) == (
            "timeout",
            5,
            "bye\n",
        )
    assert find_process_identity(int((tmp_path / "pid").read_text())) is None


async def test_cancelled_command_ends_before_its_caller_goes_on(engine: StubEngine, tmp_path: Path) -> None:
    """As with a time-out; the caller gets its cancellation."""
    heard = asyncio.Event()
    async with running(engine, tmp_path):
        run = command(engine, cleanup_s=0.0, on_output=lambda _: heard.set())
        task = asyncio.create_task(run.run("echo $$ >pid; yes", ".", {}, 60))
        await asyncio.wait_for(heard.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert find_process_identity(int((tmp_path / "pid").read_text())) is None


async def test_command_that_writes_too_much_is_ended(engine: StubEngine, tmp_path: Path) -> None:
    """The bound is certain, and named."""
    async with running(engine, tmp_path):
        finished = await command(engine, output_bytes=10_000).run("yes", ".", {}, 60)
    assert (finished.reason, finished.limit, finished.allowed) == ("limit", "output_bytes", 10_000)


async def test_engine_that_can_start_nothing_says_why(engine: StubEngine) -> None:
    """No command has run then: the image is missing, the engine is, or it does not answer."""
    with pytest.raises(ConfinementUnavailable, match="none/such: image not known"):
        await Container(engine.spec(image="none/such"), "box", LABELS).start()
    with pytest.raises(ConfinementUnavailable, match="can't be executed"):
        await Container(engine.spec(program="/no/engine"), "box", LABELS).start()
    (engine.home / "broken").touch()
    with pytest.raises(ConfinementUnavailable, match=r"can't list its containers: .*service"):
        await remove_containers(engine.spec(), LABELS)


async def test_container_that_is_lost_under_a_command_is_no_result(
    engine: StubEngine, tmp_path: Path
) -> None:
    """The command may have run; a command in a container that is gone has not."""
    begun = asyncio.Event()
    async with running(engine, tmp_path) as container:
        run = command(engine, on_output=lambda _: begun.set())
        task = asyncio.create_task(run.run("echo begun; sleep 1000", ".", {}, 60))
        await asyncio.wait_for(begun.wait(), 60)
        assert await remove_containers(engine.spec(), LABELS) == 1
        with pytest.raises(ConfinementUnavailable, match="may have run"):
            await task
        with pytest.raises(ConfinementUnavailable, match="no such container"):
            await outcome(engine, "echo")
        async with asyncio.timeout(60):  # its watch may hear of it later than the command does
            while not container.lost:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
    assert engine.containers == []


async def test_container_ends_with_its_input(engine: StubEngine, tmp_path: Path) -> None:
    """So it does when the process that keeps it is killed; what the engine still lists is found by label."""
    async with running(engine, tmp_path):
        assert (await outcome(engine, "sleep 1000 & echo $! >pid")).exit_code == 0
        assert engine.containers == ["box"]
    assert engine.containers == []
    assert find_process_identity(int((tmp_path / "pid").read_text())) is None

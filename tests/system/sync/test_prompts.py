"""Approval requests are asked on the threads that wait: whichever blocks, one at a time, and in any depth."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sessiontree import (
    ApprovalAnswer,
    ApprovalRequest,
    CallbackChannel,
    ConfigError,
    FunctionModel,
    Limits,
    ModelRequest,
    PermissionDenied,
    ScriptedModel,
    SessionKind,
    SessionTreeError,
    TerminalChannel,
    script_call,
    sync,
)
from sessiontree.models.answers import Answer
from sessiontree.sync import SessionTree
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.system.sync.tree_fixtures import PATIENCE_S, Caller, Opener

PATIENT = Limits(approval_patience_s=None)
"""Sessions wait for their answers as long as it takes."""


def reply(request: ModelRequest) -> Answer:
    """Launch what the message says and report it; Workers count."""
    last = request.messages[-1].text
    if request.kind is SessionKind.WORKER:
        return str(len(last))
    return (
        script_call("launch", text=last.removeprefix("launch "))
        if last.startswith("launch ")
        else f"so: {last}"
    )


MODEL = FunctionModel(reply)


def waits_in_the_tree(tree: SessionTree, count: int) -> None:
    """Wait without reading, so that this thread is asked nothing, until so many requests wait."""
    deadline = threading.Event()
    for _ in range(int(PATIENCE_S * 200)):
        if len(tree.approvals.pending()) == count:
            return
        deadline.wait(0.005)
    raise AssertionError(f"there never were {count} requests")


@pytest.mark.covers("A15")
@pytest.mark.parametrize("waiting", ["send", "call", "stream", "result", "map", "events", "progress"])
def test_every_call_that_waits_for_sessions_is_asked_on_its_own_thread(
    open_tree: Opener, waiting: str
) -> None:
    """The approver runs where the program blocks, whatever it blocks in."""
    asked: list[int] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(threading.get_ident())
        return True

    def agent(request: ModelRequest) -> Answer:
        if request.kind is SessionKind.BRANCH and request.turn == 1:
            return script_call("launch", text="b")
        return reply(request)

    with open_tree(FunctionModel(agent), tools=TOOLS, approver=approve, limits=PATIENT) as tree:
        ways: dict[str, Callable[[], Any]] = {
            "send": lambda: tree.main.send("launch x"),
            "call": lambda: tree.main.call("launch", {"text": "x"}),
            "stream": lambda: list(tree.main.stream("launch x")),
            "result": lambda: tree.main.spawn("branch", "go").result(),
            "map": lambda: tree.main.map("branch", ["go"]),
            "events": lambda: begin_and(lambda: next(record for record in tree.events() if asked)),
            "progress": lambda: begin_and(lambda: next(event for event in progress if asked)),
        }
        progress = tree.progress()

        def begin_and(wait: Callable[[], Any]) -> None:
            sent = tree.main.stream("launch x")
            wait()
            sent.result()

        ways[waiting]()
    assert asked == [threading.get_ident()]
    assert len(effects(open_tree.workspace)) == 1


def test_while_nothing_blocks_a_request_waits_in_the_tree(open_tree: Opener) -> None:
    """Nobody is asked behind the program's back; calls that wait for nothing ask nothing either."""
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.request_id)
        return True

    with open_tree(MODEL, tools=TOOLS, approver=approve, limits=PATIENT) as tree:
        sent = tree.main.stream("launch x")
        waits_in_the_tree(tree, 1)
        tree.main.status()
        tree.receipt()
        tree.main.history()
        tree.main.spawn("worker", "abc")
        assert asked == []
        (pending,) = tree.approvals.pending()
        assert sent.result() == "so: appended x"
        assert asked == [pending.request.request_id]
        assert tree.approvals.pending() == []


def test_request_answered_elsewhere_is_not_asked_any_more(open_tree: Opener) -> None:
    """What waited for a blocked thread is withdrawn when the program answers it in the tree."""
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.request_id)
        return True

    with open_tree(MODEL, tools=TOOLS, approver=approve, limits=PATIENT) as tree:
        sent = tree.main.stream("launch x")
        waits_in_the_tree(tree, 1)
        tree.approvals.pending()[0].approve()
        assert sent.result().startswith("so: ")
    assert asked == []
    assert len(effects(open_tree.workspace)) == 1


def test_approver_may_use_the_tree_and_be_asked_again_meanwhile(open_tree: Opener) -> None:
    """Within an approver sync calls work, also such as need an approval themselves."""
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        text = str(request.arguments["text"])
        asked.append(text)
        assert tree.main.status().session_id == "main"
        assert request.request_id in {each.request.request_id for each in tree.approvals.pending()}
        if text == "outer":
            counted = tree.main.map("worker", ["four"], result_type=int)
            scout = tree.main.spawn("branch", "launch inner")
            return counted[0].output == 4 and scout.result().summary.startswith("so: ")
        return True

    with open_tree(MODEL, tools=TOOLS, approver=approve, limits=PATIENT) as tree:
        assert tree.main.send("launch outer").startswith("so: ")
    assert asked == ["outer", "inner"]
    assert [text for _, text in effects(open_tree.workspace)] == ["inner", "outer"]


def test_approver_may_close_the_tree(open_tree: Opener) -> None:
    """The call that was waiting ends by a typed error; nothing ran."""

    def approve(request: ApprovalRequest) -> bool:
        tree.close()
        return True

    with open_tree(MODEL, tools=TOOLS, approver=approve, limits=PATIENT) as tree:
        main = tree.main
        with pytest.raises(SessionTreeError):
            main.send("launch x")
    assert effects(open_tree.workspace) == []


def test_several_threads_block_and_each_request_is_asked_once(open_tree: Opener) -> None:
    """Requests are asked one at a time, on threads that block, in whatever order those came."""
    asked: list[tuple[str, int]] = []
    inside = threading.Lock()

    def approve(request: ApprovalRequest) -> bool:
        assert inside.acquire(blocking=False), "two at a time"
        asked.append((str(request.arguments["text"]), threading.get_ident()))
        inside.release()
        return True

    with open_tree(MODEL, tools=TOOLS, approver=approve, limits=PATIENT) as tree:
        branches = [tree.main.spawn("branch", f"launch {number}") for number in range(6)]
        callers = [Caller(branch.result) for branch in branches]
        for caller in callers:
            assert caller.outcome().summary.startswith("so: ")
    assert sorted(text for text, _ in asked) == [str(number) for number in range(6)]
    assert {thread for _, thread in asked} <= {caller.ident for caller in callers}


def test_spawned_sessions_own_approver_is_asked_the_same_way(open_tree: Opener) -> None:
    """The callable given to spawn answers for its subtree on the blocked thread."""
    asked: list[int] = []

    def approve(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(threading.get_ident())
        return ApprovalAnswer(False, "not in my branch")

    with open_tree(MODEL, tools=TOOLS, limits=PATIENT) as tree:
        branch = tree.main.spawn("branch", "launch x", approver=approve)
        child = tree.session(branch.session_id).spawn("branch", "launch y")
        assert "not in my branch" in branch.result().summary
        assert "not in my branch" in child.result().summary
    assert asked == [threading.get_ident()] * 2


def test_async_approver_runs_on_the_loop_whether_or_not_anything_blocks(open_tree: Opener) -> None:
    """It needs no thread; the sync tree is closed to it, since it runs on the tree's own loop."""
    refusals: list[str] = []

    async def approve(request: ApprovalRequest) -> bool:
        await asyncio.sleep(0)
        try:
            tree.main.status()
        except ConfigError as error:
            refusals.append(str(error))
        return True

    with open_tree(MODEL, tools=TOOLS, approver=approve) as tree:
        tree.main.call("launch")
        assert len(refusals) == 1
        assert "own event loop" in refusals[0]


def test_plain_approver_that_returns_something_to_await_has_it_awaited(open_tree: Opener) -> None:
    """Called on the blocked thread, awaited on the loop."""
    called: list[int] = []

    async def later() -> bool:
        await asyncio.sleep(0)
        return True

    def approve(request: ApprovalRequest) -> Any:
        called.append(threading.get_ident())
        return later()

    with open_tree(MODEL, tools=TOOLS, approver=approve) as tree:
        tree.main.call("launch")
    assert called == [threading.get_ident()]


@pytest.mark.parametrize("failure", [ValueError("broken"), StopIteration(), asyncio.CancelledError()])
def test_approver_that_fails_has_said_no(open_tree: Opener, failure: BaseException) -> None:
    """As in the async classes; the program goes on."""

    def approve(request: ApprovalRequest) -> bool:
        raise failure

    with open_tree(MODEL, tools=TOOLS, approver=approve) as tree:
        with pytest.raises(PermissionDenied, match="the approver failed"):
            tree.main.call("launch")
        assert tree.main.send("hello") == "so: hello"


def test_approver_that_leaves_it_open_leaves_it_in_the_tree(open_tree: Opener) -> None:
    """None is no answer: the request is still there for whoever looks."""
    with open_tree(MODEL, tools=TOOLS, approver=lambda request: None, limits=PATIENT) as tree:
        calling = Caller(lambda: tree.main.call("launch"))
        waits_in_the_tree(tree, 1)
        tree.approvals.pending()[0].approve()
        assert calling.outcome().text.startswith("appended")


def test_functions_of_a_callback_channel_are_asked_the_same_way(open_tree: Opener) -> None:
    """Its approver runs on the blocked thread, its listener on the loop."""
    asked: list[int] = []
    heard: list[tuple[str, int]] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(threading.get_ident())
        return True

    channel = CallbackChannel(approve, lambda text: heard.append((text, threading.get_ident())))
    script = ScriptedModel([script_call("message", text="psst"), script_call("launch"), "done"])
    with open_tree(script, tools=TOOLS, channel=channel) as tree:
        assert tree.channel is channel
        assert tree.main.send("go") == "done"
    assert asked == [threading.get_ident()]
    assert [text for text, _ in heard] == ["psst"]
    assert heard[0][1] != threading.get_ident()


class Keyboard(io.StringIO):
    """Input that notes which thread reads it, and may wait for a key."""

    def __init__(self, typed: str) -> None:
        super().__init__(typed)
        self.threads: list[int] = []
        self.reading = threading.Event()
        self.key = threading.Event()
        self.key.set()

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        self.threads.append(threading.get_ident())
        self.reading.set()
        self.key.wait(PATIENCE_S)
        return super().readline()


class Screen(io.StringIO):
    """Output that notes when a question on it is void."""

    def __init__(self) -> None:
        super().__init__()
        self.is_void = threading.Event()

    def write(self, text: str, /) -> int:
        if "the question was withdrawn" in text:
            self.is_void.set()
        return super().write(text)


@pytest.mark.parametrize("made", [TerminalChannel, sync.TerminalChannel])
def test_terminal_asks_on_the_thread_that_waits(open_tree: Opener, made: type[TerminalChannel]) -> None:
    """Both terminals read there; unknown answers are asked again, and the end of input means no."""
    keyboard, screen = Keyboard("what?\ny\n"), io.StringIO()
    with open_tree(MODEL, tools=TOOLS, channel=made(keyboard, screen)) as tree:
        assert tree.main.call("launch", {"text": "x"}).text == "appended x"
        with pytest.raises(PermissionDenied, match="input ended"):
            tree.main.call("launch", {"text": "y"})
    assert keyboard.threads == [threading.get_ident()] * 3
    assert screen.getvalue().count("allow?") == 3
    assert [text for _, text in effects(open_tree.workspace)] == ["x"]


def test_terminal_without_streams_uses_input(
    open_tree: Opener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Input and output are taken as they stand, whoever replaced them: a notebook, a debugger."""
    monkeypatch.setattr("sys.stdin", io.StringIO("a\n"))
    with open_tree(MODEL, tools=TOOLS, channel=sync.TerminalChannel()) as tree:
        tree.main.call("launch", {"text": "x"})
        tree.main.call("launch", {"text": "y"})
    assert "wants to call launch" in capsys.readouterr().out
    assert [text for _, text in effects(open_tree.workspace)] == ["x", "y"]


def test_question_withdrawn_at_the_terminal_answers_nothing(open_tree: Opener) -> None:
    """The screen says so, and the line that is typed then is for nobody."""
    keyboard, screen = Keyboard("y\nn\n"), Screen()
    keyboard.key.clear()
    with open_tree(
        MODEL, tools=TOOLS, channel=sync.TerminalChannel(keyboard, screen), limits=PATIENT
    ) as tree:
        calling = Caller(lambda: tree.main.call("launch", {"text": "x"}))
        assert keyboard.reading.wait(PATIENCE_S)
        tree.approvals.pending()[0].deny("answered elsewhere")
        assert screen.is_void.wait(PATIENCE_S)
        keyboard.key.set()
        with pytest.raises(PermissionDenied, match="answered elsewhere"):
            calling.outcome()
        with pytest.raises(PermissionDenied, match="said no at the terminal"):
            tree.main.call("launch", {"text": "y"})
    assert effects(open_tree.workspace) == []


def test_one_terminal_serves_two_trees(open_tree: Opener) -> None:
    """Questions of two trees, asked on two threads, do not mix."""
    keyboard, screen = Keyboard("y\ny\n"), io.StringIO()
    terminal = sync.TerminalChannel(keyboard, screen)
    with (
        open_tree.runtime() as runtime,
        open_tree(MODEL, tools=TOOLS, channel=terminal, runtime=runtime) as first,
        open_tree(MODEL, tools=TOOLS, channel=terminal, runtime=runtime) as second,
    ):
        callers = [Caller(lambda tree=tree: tree.main.call("launch")) for tree in (first, second)]  # type: ignore[misc]
        for caller in callers:
            assert caller.outcome().text.startswith("appended")
    assert screen.getvalue().count("allow?") == 2

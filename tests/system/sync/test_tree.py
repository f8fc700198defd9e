"""What programs do with sync trees, from opening to taking one up again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AnswerTooLate,
    AsyncFunctionModel,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    ScriptedModel,
    SessionClosed,
    SessionFailed,
    SessionKind,
    SessionStatus,
    SessionTreeError,
    SpawnRefused,
    TreeNotFound,
    script_call,
)
from sessiontree import Runtime as AsyncRuntime
from sessiontree.contracts.facts.tree_facts import ApprovalWaiting
from sessiontree.contracts.reports.events import Done, TextDelta
from sessiontree.contracts.values.messages import AssistantMessage
from sessiontree.journal.replay import read_fact
from sessiontree.models.answers import Answer, to_message
from sessiontree.sync import QueueChannel, SessionTree, StoredTrees
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.signal_fixtures import Flag, Turnstile
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.system.house.error_fixtures import has_cause
from tests.system.sync.tree_fixtures import Caller, Opener


def reply(request: ModelRequest) -> Answer:
    """Workers count, everybody else says what was heard."""
    last = request.messages[-1].text
    return str(len(last)) if request.kind is SessionKind.WORKER else f"heard {last}"


async def reply_later(request: ModelRequest) -> Answer:
    """Reply the same, with the text as a delta."""
    return reply(request)


MODEL = FunctionModel(reply)
WAITING = AsyncFunctionModel(reply_later)


def until_asked(tree: SessionTree, count: int = 1) -> None:
    """Read facts until so many requests were shown to a person."""
    for record in tree.events():
        count -= isinstance(read_fact(record.text), ApprovalWaiting)
        if count == 0:
            return


@pytest.mark.covers("C12")
def test_program_without_await_runs_a_tree_from_start_to_receipt(open_tree: Opener) -> None:
    """Sending, spawning, mapping, calling, looking and finishing give what their async originals give."""
    with open_tree(MODEL, tools=TOOLS) as tree:
        assert tree.main.send("hello") == "heard hello"
        branch = tree.main.spawn("branch", "look around", label="scout")
        result = branch.result()
        assert (result.status, result.summary) == (SessionStatus.COMPLETED, "heard look around")
        counted = tree.main.map("worker", ["a", "bbb", "cc"], result_type=int, concurrency=2)
        assert [each.output for each in counted] == [1, 3, 2]
        assert tree.main.call("append", {"text": "one"}).text == "appended one"
        assert tree.main.status().session_id == "main"
        assert [message.text for message in tree.main.history()] == ["hello", "heard hello"]
        assert tree.session(branch.session_id).status().status is SessionStatus.COMPLETED
        receipt = tree.finish("over")
        assert [line.session_id for line in receipt] == ["main", "main/b1", "main/w1", "main/w2", "main/w3"]
        assert receipt == tree.receipt()
    assert [text for _, text in effects(open_tree.workspace)] == ["one"]


def test_program_without_await_gets_final_answers_and_results_as_they_come(open_tree: Opener) -> None:
    """``run`` returns the answer; ``as_completed`` is an ordinary loop, which may be left."""
    with open_tree(MODEL, tools=TOOLS) as tree:
        assert tree.run("look around").summary == "heard look around"
        with pytest.raises(ConfigError, match="ttl_s is -1"):
            tree.run("x", ttl_s=-1)
        found = list(tree.main.as_completed("worker", ["a", "bbb"], labels=["one", "three"], result_type=int))
        assert {each.label: each.output for each in found} == {"one": 1, "three": 3}
        with pytest.raises(ConfigError, match="labels"):
            next(tree.main.as_completed("worker", ["a"], labels=[]))
        assert len(tree.receipt()) == 4
        for result in tree.main.as_completed("worker", ["a", "bb", "ccc"], concurrency=1):
            assert result.index == 0
            break


def test_leaving_the_loop_cancels_the_other_children(open_tree: Opener, board: Switchboard) -> None:
    """The children that nobody waits for any more end; the tree goes on."""
    gate = Turnstile(board)

    async def reply(request: ModelRequest) -> Answer:
        if request.messages[0].text == "wait":
            await gate.acquire()
        return "done"

    with open_tree(AsyncFunctionModel(reply)) as tree:
        for result in tree.main.as_completed("worker", ["wait", "go", "wait"]):
            assert result.index == 1
            break
        ended = [tree.session(f"main/w{number}").result().status for number in (1, 2, 3)]
        assert [str(status) for status in ended] == ["cancelled", "completed", "cancelled"]
        assert tree.main.send("still there?") == "done"


def test_cancelling_gives_the_receipt_of_what_was_cancelled(open_tree: Opener, board: Switchboard) -> None:
    """A handle cancels its subtree, the tree cancels all."""
    gate = Turnstile(board)

    async def never(request: ModelRequest) -> Answer:
        await gate.acquire()
        return "late"

    with open_tree(AsyncFunctionModel(never)) as tree:
        branch = tree.main.spawn("branch", "wait")
        assert [line.status for line in branch.cancel("enough")] == [SessionStatus.CANCELLED]
        assert [line.session_id for line in tree.cancel()] == ["main", "main/b1"]
        with pytest.raises(SessionClosed):
            tree.main.send("still there?")


def test_interrupted_session_is_heard_again(open_tree: Opener, board: Switchboard) -> None:
    """Whoever waits for a reply gets the typed error; the next message is answered at once."""
    gate, asked = Turnstile(board), Flag(board)

    async def slow(request: ModelRequest) -> Answer:
        if request.turn == 1:
            asked.set()
            await gate.acquire()
        return f"turn {request.turn}"

    with open_tree(AsyncFunctionModel(slow)) as tree:
        reply = tree.main.stream("wait")
        assert asked.wait_blocking(20)
        assert [line.status for line in tree.main.interrupt("enough")] == [SessionStatus.SUSPENDED]
        with pytest.raises(SessionFailed, check=has_cause("interrupted"), match="enough"):
            reply.result()
        assert tree.main.send("go on") == "turn 2"


def test_stream_yields_every_piece_and_then_has_the_whole(open_tree: Opener, board: Switchboard) -> None:
    """Pieces come while the model still speaks; none is lost between saying and listening."""
    gate = Turnstile(board)

    class Speaker:
        name = "speaker"

        async def complete(self, request: ModelRequest, emit: Any) -> AssistantMessage:
            for word in ("one ", "two ", "three"):
                emit(TextDelta(word))
                await gate.acquire()
            return to_message("one two three", request.turn)

    with open_tree(Speaker()) as tree:
        reply = tree.main.stream("count")
        heard = []
        for piece in reply:
            heard.append(piece)
            gate.release()
        assert heard == ["one ", "two ", "three"]
        assert reply.result() == reply.result() == "one two three"
        gate.release(3)
        assert "".join(tree.main.stream("again", mode="steer")) == "one two three"


def test_errors_are_those_of_the_async_classes(open_tree: Opener) -> None:
    """What was wrong is reported by type, in the calling thread, and the tree goes on."""
    with pytest.raises(ConfigError):
        open_tree(MODEL, approvals="perhaps")
    with open_tree(
        ScriptedModel({"main": [script_call("launch"), "done"]}), tools=TOOLS, approvals="never"
    ) as tree:
        with pytest.raises(ConfigError):
            tree.main.send("  ")
        with pytest.raises(ConfigError):
            tree.main.stream("x", mode="shout")  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            tree.main.map("worker", ["x"], concurrency=0)
        with pytest.raises(SpawnRefused):
            tree.main.spawn(SessionKind.MAIN, "no second one")
        with pytest.raises(PermissionDenied):
            tree.main.call("launch")
        with pytest.raises(SessionFailed):
            tree.main.map("worker", ["no script"], on_error="raise")
        assert tree.main.send("go") == "done"


def test_requests_are_answered_by_programs_that_look(open_tree: Opener) -> None:
    """Without an approver a request waits in the tree, for any thread to answer."""
    script = ScriptedModel(
        [script_call("launch", text="a"), "done", script_call("launch", text="b"), "refused"]
    )
    with open_tree(script, tools=TOOLS) as tree:
        sending = Caller(lambda: tree.main.send("go"))
        until_asked(tree)
        (pending,) = tree.approvals.pending()
        assert pending.request.arguments == {"text": "a"}
        pending.approve()
        assert sending.outcome() == "done"
        with pytest.raises(AnswerTooLate):
            pending.deny()
        sending = Caller(lambda: tree.main.send("again"))
        until_asked(tree, 2)
        tree.approvals.pending()[0].deny("not twice")
        assert sending.outcome() == "refused"
    assert [text for _, text in effects(open_tree.workspace)] == ["a"]


def test_messages_wait_in_a_queue_for_threads(open_tree: Opener) -> None:
    """The default channel of a sync tree can be read by blocking."""
    with open_tree(ScriptedModel([script_call("message", text="look here"), "done"])) as tree:
        assert isinstance(tree.channel, QueueChannel)
        tree.main.send("tell me")
        assert tree.channel.messages.get(timeout=60) == "look here"


def test_events_are_a_plain_iterator_that_can_be_taken_up(open_tree: Opener) -> None:
    """All facts in order, from any number on; the iterator ends with Main."""
    with open_tree(MODEL) as tree:
        tree.main.send("hello")
        first = []
        for record in tree.events():
            first.append(record.seq)
            if len(first) == 3:
                break
        tree.finish("over")
        rest = [record.seq for record in tree.events(after=first[-1])]
        assert first + rest == list(range(1, first[-1] + len(rest) + 1))


def test_progress_is_read_by_blocking_and_ends_with_the_tree(open_tree: Opener) -> None:
    """A reader gets what comes after it began; one that still waits is let go when the tree closes."""
    tree = open_tree(WAITING).start()
    with tree.progress("main") as progress:
        tree.main.send("hello")
        assert progress.next().event.delta == "heard hello"  # type: ignore[union-attr]
        progress.catch_up()
        assert isinstance(progress.drain()[-1].event, Done)
        assert (progress.tree_id, progress.session, progress.dropped) == (tree.tree_id, "main", 0)

    reader = tree.progress()
    watching = Caller(lambda: [event.session for event in reader])
    tree.main.spawn("branch", "x").result()
    last = tree.progress()
    waiting = Caller(last.next)
    tree.close()
    assert set(watching.outcome()) == {"main/b1"}
    with pytest.raises(SessionTreeError):
        waiting.outcome()
    last.close()


def test_tree_is_taken_up_again(open_tree: Opener) -> None:
    """What was said before is in the history; an unknown tree is refused and holds nothing."""
    with open_tree(MODEL) as tree:
        tree.main.send("remember")
    with open_tree.resume(tree.tree_id, MODEL) as again:
        assert again.tree_id == tree.tree_id
        assert again.main.history()[0].text == "remember"
        assert again.main.send("and?") == "heard and?"
    with pytest.raises(TreeNotFound):
        open_tree.resume("nobody", MODEL)


def test_runtime_serves_several_trees(open_tree: Opener, tmp_path: Path) -> None:
    """Closing a tree leaves its siblings; closing the runtime ends them; an async runtime is refused."""
    with open_tree.runtime() as runtime:
        assert runtime.state_dir == open_tree.state_dir
        with open_tree(MODEL, runtime=runtime) as first:
            second = open_tree(MODEL, runtime=runtime).start()
            assert first.state_dir == second.state_dir == runtime.state_dir
            first.main.send("one")
        assert second.main.send("two") == "heard two"
        again = open_tree.resume(first.tree_id, MODEL, runtime=runtime)
        assert again.main.send("three") == "heard three"
    with pytest.raises(SessionTreeError):
        second.main.send("four")
    for tree in (second, again, first):
        tree.close()
    other = object.__new__(AsyncRuntime)
    with pytest.raises(ConfigError, match=r"sessiontree\.sync\.Runtime"):
        open_tree(MODEL, runtime=other)


def test_tree_that_is_not_open_says_so(open_tree: Opener) -> None:
    """Before and after, every call is refused by type; closing is harmless, opening twice is not."""
    tree = open_tree(MODEL)
    with pytest.raises(SessionTreeError, match="not open"):
        tree.main.send("too early")
    tree.close()
    with tree:
        main = tree.main
        with pytest.raises(ConfigError, match="open already"):
            tree.start()
        assert main.send("still open") == "heard still open"
    for late in (
        lambda: main.send("x"),
        main.status,
        lambda: next(tree.events()),
        tree.progress,
        tree.receipt,
    ):
        with pytest.raises(SessionTreeError, match="not open"):
            late()
    tree.close()
    with pytest.raises(ConfigError, match="resume"):
        tree.start()


def test_error_in_the_block_closes_the_tree(open_tree: Opener) -> None:
    """The error is the program's, and the journal is free for the next."""
    with pytest.raises(LookupError, match="mine"), open_tree(MODEL) as tree:
        raise LookupError("mine")
    open_tree.resume(tree.tree_id, MODEL).close()


def test_tree_closed_by_one_thread_ends_the_calls_of_others(open_tree: Opener, board: Switchboard) -> None:
    """Whoever waits in a tree that closes gets a typed error, and the loop ends with the last of them."""
    gate = Turnstile(board)
    begun = Turnstile(board)

    async def never(request: ModelRequest) -> Answer:
        begun.release()
        await gate.acquire()
        return "late"

    tree = open_tree(AsyncFunctionModel(never)).start()
    main = tree.main
    calls = [
        Caller(lambda: main.send("hello")),
        Caller(main.spawn("branch", "wait").result),
        Caller(lambda: main.map("worker", ["x", "y"])),
        Caller(lambda: list(tree.events())),
        Caller(lambda: list(main.stream("and?"))),
    ]
    for _ in range(4):
        asyncio.run(begun.acquire())
    closing = [Caller(tree.close) for _ in range(2)]
    for each in closing:
        each.outcome()
    for each in calls:
        with pytest.raises(SessionTreeError):
            each.outcome()


def test_many_threads_use_one_tree(open_tree: Opener) -> None:
    """Each gets its own replies."""
    with open_tree(MODEL) as tree:
        branches = [tree.main.spawn("branch", f"b{number}") for number in range(4)]
        results = [Caller(branch.result) for branch in branches]
        statuses = [Caller(tree.main.status) for _ in range(4)]
        assert [each.outcome().summary for each in results] == [f"heard b{number}" for number in range(4)]
        assert {each.outcome().session_id for each in statuses} == {"main"}


@pytest.mark.parametrize("inside_a_loop", [False, True])
def test_trees_are_forked_and_replayed(open_tree: Opener, inside_a_loop: bool) -> None:
    """As with ``await``: both trees go on, a stored one is forked too, and each is the same again."""
    place = open_tree.state_dir

    def use() -> None:
        with open_tree(MODEL) as tree:
            tree.main.send("hello")
            with tree.fork() as fork:
                assert str(fork.main.send("other")) == "heard other"
                assert str(tree.main.send("again")) == "heard again"
            assert len(tree.main.history()) == 4
        stored = StoredTrees(place).fork(fork.tree_id)
        with open_tree.resume(stored, MODEL) as again:
            assert [message.text for message in again.main.history()][2:] == ["other", "heard other"]
        for tree_id in (tree.tree_id, fork.tree_id, stored):
            assert StoredTrees(place).replay(tree_id).matches

    async def within() -> None:
        use()

    if inside_a_loop:
        asyncio.run(within())
    else:
        use()


@pytest.mark.parametrize("inside_a_loop", [False, True])
def test_stored_trees_are_exported_erased_imported_and_pruned(
    open_tree: Opener, tmp_path: Path, inside_a_loop: bool
) -> None:
    """As with ``await``, also on a thread whose loop runs, as in a notebook's cell."""
    export, place = tmp_path / "tree.ndjson", open_tree.state_dir

    def use() -> None:
        with open_tree(MODEL) as tree:
            tree.main.send("hello")
            live = StoredTrees(tree.state_dir).export(tree.tree_id, export)
            tree.finish("over")
        assert StoredTrees(tree.state_dir).export(tree.tree_id, export) > live
        assert StoredTrees(place).erase(tree.tree_id) == 0
        with pytest.raises(TreeNotFound):
            StoredTrees(place).erase(tree.tree_id)
        assert StoredTrees(place).load(export) == tree.tree_id
        with open_tree.resume(tree.tree_id, MODEL) as again:
            assert again.receipt()[0].summary == "over"
        assert StoredTrees(place).prune(older_than_s=3600) == []
        assert StoredTrees(place).prune(keep=0) == [tree.tree_id]

    async def within() -> None:
        use()

    if inside_a_loop:
        asyncio.run(within())
    else:
        use()

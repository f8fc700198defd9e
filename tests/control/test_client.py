"""The control socket's client: what another process gets of a live runtime, or of none."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from sessiontree import SessionTree
from sessiontree.api.backend import OwnerPort
from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.errors import (
    ApprovalClosed,
    ConfigError,
    JournalError,
    SessionClosed,
    SessionNotFound,
    TreeNotFound,
)
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.tree_facts import ApprovalDecided
from sessiontree.control.client import ControlClient
from sessiontree.control.place import open_control_socket
from sessiontree.control.questions import LONGEST_READ_S
from sessiontree.control.server import ControlServer
from sessiontree.runtime.replay import fact_of
from sessiontree.runtime.replies import Reply
from sessiontree.runtime.supervisor_api import Owner
from sessiontree.version import VERSION
from tests.control.errands import errands

LONGEST_S = 60.0


async def first_request(client: ControlClient, tree_id: str) -> ApprovalRequest:
    """Wait until a request waits for a person."""
    seq = 0
    async with asyncio.timeout(LONGEST_S):
        while not (pending := await client.pending(tree_id)):
            records = await client.read_tree(tree_id, seq, LONGEST_READ_S)
            seq = records[-1].seq if records else seq
    return pending[0]


async def test_what_is_answered_is_what_the_owner_says(tree: SessionTree, client: ControlClient) -> None:
    """Every question has the same answer through the control socket as beside the supervisor."""
    owner: Any = tree._backend.owner
    assert isinstance(owner, Owner)
    tree_id = tree.tree_id
    assert await client.send(tree_id, "main", "hello", "follow_up", "m1") == Reply("heard: hello", None)
    assert await client.open_trees() == [tree_id]
    assert await client.report(tree_id, "main") == owner.report(tree_id, "main")
    assert await client.receipt(tree_id) == owner.receipt(tree_id)
    assert await client.record_of(tree_id, "main") == owner.record_of(tree_id, "main")
    assert await client.last_seq(tree_id) == owner.last_seq(tree_id)
    assert await client.room(tree_id, "main") == owner.room(tree_id, "main")
    assert await client.read(tree_id, 2, 3, 0.0) == await owner.read(tree_id, 2, 3, 0.0)
    assert await client.actors() == owner.actors()
    assert await client.security() is None
    assert await client.is_open(tree_id)
    assert not await client.is_open("t0")
    assert not await client.is_over(tree_id)
    reply = await client.call(tree_id, "main", "c1", "session_status", {})
    assert (reply.outcome, reply.message.is_error) == ("ok", False)


async def test_what_protects_an_engine_is_told(tree: SessionTree, tmp_path: Path) -> None:
    """It is looked up for each question, and comes as it is."""
    backend: Any = tree._backend
    told: list[dict[str, JsonValue]] = [
        {"listening": []},
        {"listening": [{"port": 8265}], "auth_mode": "token"},
    ]
    looked_up = iter(told)
    place = tmp_path / "elsewhere"
    place.mkdir()
    server = ControlServer(Owner(backend.supervisor, lambda: next(looked_up)), place)
    server.start()
    async with await ControlClient.connect(place) as client:
        assert [await client.security(), await client.security()] == told
        assert client.release == VERSION
    await server.close()


def test_the_client_is_an_owner_from_afar() -> None:
    """Every method of the port that is not the creating program's alone is there, taking the same first."""
    for name, method in vars(OwnerPort).items():
        if name.startswith("_") or name in {"spawn", "is_ending", "tidings", "hook_failed"}:
            continue
        wanted = list(inspect.signature(method).parameters)
        found = list(inspect.signature(getattr(ControlClient, name)).parameters)
        assert inspect.iscoroutinefunction(getattr(ControlClient, name))
        assert found == wanted[: len(found)], name
        assert set(wanted[len(found) :]) <= {"again", "sender"}, name  # who comes in is the program itself


async def test_a_request_is_answered_once_and_names_who_did(tree: SessionTree, client: ControlClient) -> None:
    """The first answer decides; any other is told how; the journal says which process it was."""
    sending = asyncio.create_task(client.send(tree.tree_id, "main", "sweep hall", "follow_up", "m1"))
    request = await first_request(client, tree.tree_id)
    assert request == (await client.shown(tree.tree_id, request.request_id))
    assert (request.tool, request.arguments, request.tier) == ("sweep", {"place": "hall"}, "Elevated")
    async with await ControlClient.connect(tree.state_dir) as other:
        answers = [
            asyncio.create_task(each.decide(tree.tree_id, request.request_id, ApprovalAnswer(approve=True)))
            for each in (client, other)
        ]
        await asyncio.wait(answers)
    failed = [error for each in answers if (error := each.exception()) is not None]
    assert [(type(error), error.args) for error in failed] == [
        (ApprovalClosed, (request.request_id, "approved"))
    ]
    assert await sending == Reply("done: swept hall", None)
    facts = [fact_of(each.text) for each in await client.read_tree(tree.tree_id, 0, 0.0)]
    (decided,) = [fact for fact in facts if isinstance(fact, ApprovalDecided)]
    assert re.fullmatch(r"person \(uid \d+, pid \d+\)", decided.by)
    assert await client.shown(tree.tree_id, request.request_id) is None


async def test_a_no_reaches_the_model_with_its_reason(tree: SessionTree, client: ControlClient) -> None:
    """A denial through the control socket is a person's denial."""
    sending = asyncio.create_task(client.send(tree.tree_id, "main", "sweep hall", "follow_up", "m1"))
    request = await first_request(client, tree.tree_id)
    await client.decide(tree.tree_id, request.request_id, ApprovalAnswer(approve=False, reason="wet paint"))
    reply = await sending
    assert "wet paint" in reply.text
    assert "person (uid" in reply.text


async def test_a_stop_gives_the_receipt_to_both(tree: SessionTree, client: ControlClient) -> None:
    """Whoever stops a tree gets how every session ended; the creating program sees the same end."""
    await client.send(tree.tree_id, "main", "delegate sweep attic", "follow_up", "m1")
    await first_request(client, tree.tree_id)
    lines = await client.stop(tree.tree_id, "main", "enough")
    assert [(line.session_id, line.status) for line in lines] == [
        ("main", SessionStatus.CANCELLED),
        ("main/b1", SessionStatus.CANCELLED),
    ]
    assert lines == tree.receipt()
    assert await client.is_over(tree.tree_id)
    assert (await tree.main.result()) == (await client.result(tree.tree_id, "main"))


async def test_errors_arrive_as_what_they_are(tree: SessionTree, client: ControlClient) -> None:
    """Typed errors of the tree are raised with their fields; wrong arguments are named."""
    with pytest.raises(SessionNotFound) as missing:
        await client.report(tree.tree_id, "main/b7")
    assert missing.value.session_id == "main/b7"
    with pytest.raises(TreeNotFound):
        await client.pending("t0")
    with pytest.raises(ConfigError, match="mode"):
        await client.send(tree.tree_id, "main", "x", "shout", "m1")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="wait_s"):
        await client.read(tree.tree_id, 0, 1, 21.0)
    with pytest.raises(ConfigError, match="status"):
        await client.stop(tree.tree_id, "main", "x", SessionStatus.ACTIVE)
    with pytest.raises(ConfigError, match="can't be asked to 'create'"):
        await client._asking.ask("create")
    with pytest.raises(ConfigError, match="no JSON form"):
        await client.call(tree.tree_id, "main", "c", "read", {"x": float("nan")})
    with pytest.raises(ConfigError, match="too much to say at once"):
        await client.send(tree.tree_id, "main", "x" * (8 * 2**20), "follow_up", "m2")
    assert await client.open_trees() == [tree.tree_id]


async def test_many_questions_are_answered_as_they_come(tree: SessionTree, client: ControlClient) -> None:
    """One that waits holds up no other, and one nobody waits for any more is taken back."""
    waiting = asyncio.create_task(client.result(tree.tree_id, "main"))
    for number in range(200):
        text = f"{number}"
        assert (await client.send(tree.tree_id, "main", text, "follow_up", text)).text == f"heard: {number}"
        if number >= 100:
            never = asyncio.create_task(client.result(tree.tree_id, "main"))
            await asyncio.sleep(0)
            never.cancel()
            await asyncio.wait({never})
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_every_reader_of_the_tree_gets_every_fact(tree: SessionTree, client: ControlClient) -> None:
    """Any number may follow a tree, beside the desk of the creating program; none takes from another."""

    async def follow(reader: ControlClient) -> list[int]:
        seqs: list[int] = []
        while True:
            for record in await reader.read_tree(tree.tree_id, seqs[-1] if seqs else 0, LONGEST_READ_S):
                assert record.session == ""
                seqs.append(record.seq)
                if '"session_ended"' in record.text and '"main"' in record.text:
                    return seqs

    async with await ControlClient.connect(tree.state_dir) as other:
        following = [asyncio.create_task(follow(each)) for each in (client, other, other)]
        for number in range(20):
            await tree.main.send(f"{number}")
        await tree.cancel()
        async with asyncio.timeout(LONGEST_S):
            await asyncio.wait(following)
    own = [record.seq async for record in tree.events() if record.session == ""]
    assert [each.result() for each in following] == [own, own, own]


async def test_where_no_runtime_is_at_work_that_is_said(tmp_path: Path) -> None:
    """Nobody is found; connecting says what to do."""
    assert await ControlClient.find(tmp_path) is None
    with pytest.raises(JournalError, match="no runtime is at work here; resume") as caught:
        await ControlClient.connect(tmp_path)
    assert caught.value.path == str(tmp_path)


async def test_a_runtime_that_does_not_answer_is_said_so(tmp_path: Path) -> None:
    """One that is stopped by a signal is neither absent nor waited for without end."""
    listener = open_control_socket(tmp_path)
    try:
        with pytest.raises(JournalError, match=r"does not answer within 0\.05 s"):
            await ControlClient.find(tmp_path, timeout_s=0.05)
    finally:
        listener.close()


async def test_a_runtime_that_ends_tells_whoever_waits(tmp_path: Path, state_dir: Path) -> None:
    """Questions under way end typed; later ones say that nobody is there; a new client finds nobody."""
    tree = await errands(tmp_path, state_dir).start()
    async with await ControlClient.connect(state_dir) as client:
        waiting = [
            asyncio.create_task(client.result(tree.tree_id, "main")),
            asyncio.create_task(client.send(tree.tree_id, "main", "sweep hall", "follow_up", "m1")),
        ]
        await first_request(client, tree.tree_id)
        reading = asyncio.create_task(client.read_tree(tree.tree_id, 10**6, LONGEST_READ_S))
        await client.open_trees()
        await tree.close()
        await asyncio.wait([*waiting, reading])
        assert [type(each.exception()) for each in waiting] == [SessionClosed, SessionClosed]
        assert reading.result() == []
        with pytest.raises(JournalError, match="ended, or hung up"):
            while True:
                await client.open_trees()
        assert not client.is_connected
    assert await ControlClient.find(state_dir) is None


async def test_a_client_that_is_closed_says_so(tree: SessionTree) -> None:
    """Whoever waits is told, and so is whoever asks later; the runtime goes on."""
    client = await ControlClient.connect(tree.state_dir)
    waiting = asyncio.create_task(client.result(tree.tree_id, "main"))
    await client.open_trees()
    await client.close()
    await client.close()
    with pytest.raises(JournalError, match="closed here"):
        await waiting
    with pytest.raises(JournalError, match="closed here"):
        await client.open_trees()
    assert await tree.main.send("still there") == "heard: still there"

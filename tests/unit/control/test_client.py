"""The control socket's client: what another process gets of a live runtime, or of none."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from sessiontree import SessionTree
from sessiontree.contracts.errors import (
    AnswerTooLate,
    ConfigError,
    JournalError,
    SessionClosed,
    SessionNotFound,
    SessionTreeError,
    TreeNotFound,
)
from sessiontree.contracts.facts.tree_facts import ApprovalDecided
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.control.client import ControlClient
from sessiontree.control.protocol import open_control_socket
from sessiontree.control.server import ControlServer
from sessiontree.journal.replay import read_fact
from sessiontree.runtime.supervisor.local_supervisor import LocalSupervisor
from sessiontree.runtime.transport.supervisor_api import MAX_READ_WAIT_S, Reply
from sessiontree.version import VERSION
from tests.unit.control.tree_program import errands

MAX_S = 60.0


async def first_request(client: ControlClient, tree_id: str) -> ApprovalRequest:
    """Wait until a request waits for a person."""
    seq = 0
    async with asyncio.timeout(MAX_S):
        while not (pending := await client.supervisor.pending(tree_id)):
            records = await client.supervisor.read_tree(tree_id, seq, MAX_READ_WAIT_S)
            seq = records[-1].seq if records else seq
    return pending[0]


async def test_what_is_answered_is_what_the_owner_says(tree: SessionTree, client: ControlClient) -> None:
    """Every question has the same answer through the control socket as alongside the supervisor."""
    supervisor = tree._backend.supervisor
    tree_id = tree.tree_id
    assert await client.supervisor.send(tree_id, "main", "hello", "follow_up", "m1") == Reply(
        "heard: hello", None
    )
    assert await client.supervisor.open_trees() == [tree_id]
    assert await client.supervisor.report(tree_id, "main") == await supervisor.report(tree_id, "main")
    assert await client.supervisor.receipt(tree_id) == await supervisor.receipt(tree_id)
    assert await client.supervisor.record_of(tree_id, "main") == await supervisor.record_of(tree_id, "main")
    assert await client.supervisor.last_seq(tree_id) == await supervisor.last_seq(tree_id)
    assert await client.supervisor.room(tree_id, "main") == await supervisor.room(tree_id, "main")
    assert await client.supervisor.read(tree_id, 2, 3, 0.0) == await supervisor.read(tree_id, 2, 3, 0.0)
    assert await client.supervisor.actors() == await supervisor.actors()
    assert await client.supervisor.security() is None
    assert await client.supervisor.is_open(tree_id)
    assert not await client.supervisor.is_open("t0")
    assert not await client.supervisor.is_over(tree_id)
    reply = await client.supervisor.call(tree_id, "main", "c1", "session_status", {})
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
    server = ControlServer(LocalSupervisor(backend.core, lambda: next(looked_up)).answers, place)
    server.start()
    async with await ControlClient.connect(place) as client:
        assert [await client.supervisor.security(), await client.supervisor.security()] == told
        assert client.release == VERSION
    await server.close()


async def test_request_is_answered_once_and_names_who_did(tree: SessionTree, client: ControlClient) -> None:
    """The first answer decides; any other learns how; the journal says which process it was."""
    sending = asyncio.create_task(
        client.supervisor.send(tree.tree_id, "main", "sweep hall", "follow_up", "m1")
    )
    request = await first_request(client, tree.tree_id)
    assert request == (await client.supervisor.shown(tree.tree_id, request.request_id))
    assert (request.tool, request.arguments, request.tier) == ("sweep", {"place": "hall"}, "Elevated")
    async with await ControlClient.connect(tree.state_dir) as other:
        answers = [
            asyncio.create_task(
                each.supervisor.decide(tree.tree_id, request.request_id, ApprovalAnswer(approve=True))
            )
            for each in (client, other)
        ]
        await asyncio.wait(answers)
    failed = [error for each in answers if (error := each.exception()) is not None]
    assert [(type(error), error.args) for error in failed] == [
        (AnswerTooLate, ("approval", request.request_id, "approved"))
    ]
    assert await sending == Reply("done: swept hall", None)
    facts = [read_fact(each.text) for each in await client.supervisor.read_tree(tree.tree_id, 0, 0.0)]
    (decided,) = [fact for fact in facts if isinstance(fact, ApprovalDecided)]
    assert re.fullmatch(r"person \(uid \d+, pid \d+\)", decided.by)
    assert await client.supervisor.shown(tree.tree_id, request.request_id) is None


async def test_no_reaches_the_model_with_its_reason(tree: SessionTree, client: ControlClient) -> None:
    """A denial through the control socket is a person's denial."""
    sending = asyncio.create_task(
        client.supervisor.send(tree.tree_id, "main", "sweep hall", "follow_up", "m1")
    )
    request = await first_request(client, tree.tree_id)
    await client.supervisor.decide(
        tree.tree_id, request.request_id, ApprovalAnswer(approve=False, reason="wet paint")
    )
    reply = await sending
    assert "wet paint" in reply.text
    assert "person (uid" in reply.text


async def test_stop_gives_the_receipt_to_both(tree: SessionTree, client: ControlClient) -> None:
    """Whoever stops a tree gets how every session ended; the creating program sees the same end."""
    await client.supervisor.send(tree.tree_id, "main", "delegate sweep attic", "follow_up", "m1")
    await first_request(client, tree.tree_id)
    lines = await client.supervisor.stop(tree.tree_id, "main", "enough")
    assert [(line.session_id, line.status) for line in lines] == [
        ("main", SessionStatus.CANCELLED),
        ("main/b1", SessionStatus.CANCELLED),
    ]
    assert lines == tree.receipt()
    assert await client.supervisor.is_over(tree.tree_id)
    assert (await tree.main.result()) == (await client.supervisor.result(tree.tree_id, "main"))


async def test_errors_arrive_as_what_they_are(tree: SessionTree, client: ControlClient) -> None:
    """Typed errors of the tree are raised with their fields; wrong arguments are named."""
    with pytest.raises(SessionNotFound) as missing:
        await client.supervisor.report(tree.tree_id, "main/b7")
    assert missing.value.session_id == "main/b7"
    with pytest.raises(TreeNotFound):
        await client.supervisor.pending("t0")
    with pytest.raises(ConfigError, match="mode"):
        await client.supervisor.send(tree.tree_id, "main", "x", "shout", "m1")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="wait_s"):
        await client.supervisor.read(tree.tree_id, 0, 1, 21.0)
    with pytest.raises(ConfigError, match="status"):
        await client.supervisor.stop(tree.tree_id, "main", "x", SessionStatus.ACTIVE)
    with pytest.raises(ConfigError, match="no operation 'create'"):
        await client._asking.ask("create", {})
    with pytest.raises(ConfigError, match="no JSON form"):
        await client.supervisor.call(tree.tree_id, "main", "c", "read", {"x": float("nan")})
    with pytest.raises(ConfigError, match="too long for one request"):
        await client.supervisor.send(tree.tree_id, "main", "x" * (8 * 2**20), "follow_up", "m2")
    assert await client.supervisor.open_trees() == [tree.tree_id]


@pytest.mark.slow
async def test_many_questions_are_answered_as_they_come(tree: SessionTree, client: ControlClient) -> None:
    """One that waits holds up no other, and one nobody waits for any more is taken back."""
    waiting = asyncio.create_task(client.supervisor.result(tree.tree_id, "main"))
    for number in range(200):
        text = f"{number}"
        assert (
            await client.supervisor.send(tree.tree_id, "main", text, "follow_up", text)
        ).text == f"heard: {number}"
        if number >= 100:
            never = asyncio.create_task(client.supervisor.result(tree.tree_id, "main"))
            await asyncio.sleep(0)
            never.cancel()
            await asyncio.wait({never})
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_every_reader_of_the_tree_gets_every_fact(tree: SessionTree, client: ControlClient) -> None:
    """Any number may follow a tree, alongside the desk of the creating program; none takes from another."""

    async def follow(reader: ControlClient) -> list[int]:
        seqs: list[int] = []
        while True:
            for record in await reader.supervisor.read_tree(
                tree.tree_id, seqs[-1] if seqs else 0, MAX_READ_WAIT_S
            ):
                assert record.session == ""
                seqs.append(record.seq)
                if '"session_ended"' in record.text and '"main"' in record.text:
                    return seqs

    async with await ControlClient.connect(tree.state_dir) as other:
        following = [asyncio.create_task(follow(each)) for each in (client, other, other)]
        for number in range(20):
            await tree.main.send(f"{number}")
        await tree.cancel()
        async with asyncio.timeout(MAX_S):
            await asyncio.wait(following)
    own = [record.seq async for record in tree.events() if record.session == ""]
    assert [each.result() for each in following] == [own, own, own]


async def test_where_no_runtime_is_at_work_that_is_said(tmp_path: Path) -> None:
    """Nobody is found; connecting says what to do."""
    assert await ControlClient.find(tmp_path) is None
    with pytest.raises(JournalError, match="no runtime is running here; resume") as caught:
        await ControlClient.connect(tmp_path)
    assert caught.value.path == str(tmp_path)


async def test_runtime_that_does_not_answer_is_said_so(tmp_path: Path) -> None:
    """One that is stopped by a signal is neither absent nor waited for without end."""
    listener = open_control_socket(tmp_path)
    try:
        with pytest.raises(JournalError, match=r"did not answer within 0\.05 s"):
            await ControlClient.find(tmp_path, timeout_s=0.05)
    finally:
        listener.close()


async def test_runtime_that_ends_tells_whoever_waits(tmp_path: Path, state_dir: Path) -> None:
    """Questions under way end typed; later ones say that nobody is there; a new client finds nobody."""
    tree = await errands(tmp_path, state_dir).start()
    async with await ControlClient.connect(state_dir) as client:
        waiting = [
            asyncio.create_task(client.supervisor.result(tree.tree_id, "main")),
            asyncio.create_task(
                client.supervisor.send(tree.tree_id, "main", "sweep hall", "follow_up", "m1")
            ),
        ]
        await first_request(client, tree.tree_id)
        reading = asyncio.create_task(client.supervisor.read_tree(tree.tree_id, 10**6, MAX_READ_WAIT_S))
        await client.supervisor.open_trees()
        await tree.close()
        await asyncio.wait([*waiting, reading])
        assert [type(each.exception()) for each in waiting] == [SessionClosed, SessionClosed]
        assert reading.result() == []
        with pytest.raises(JournalError, match="ended, or hung up"):
            while True:
                await client.supervisor.open_trees()
        assert not client.is_connected
    assert await ControlClient.find(state_dir) is None


async def test_client_that_is_closed_says_so(tree: SessionTree) -> None:
    """Whoever waits is informed, and so is whoever asks later; the runtime goes on."""
    client = await ControlClient.connect(tree.state_dir)
    waiting = asyncio.create_task(client.supervisor.result(tree.tree_id, "main"))
    await client.supervisor.open_trees()
    await client.close()
    await client.close()
    with pytest.raises(JournalError, match="closed here"):
        await waiting
    with pytest.raises(JournalError, match="closed here"):
        await client.supervisor.open_trees()
    assert await tree.main.send("still there") == "heard: still there"


async def test_answer_of_no_known_form_is_an_error_of_its_request(tmp_path: Path) -> None:
    """The connection goes on to be read, so that nobody waits for ever."""
    listener = open_control_socket(tmp_path)
    try:
        line: socket.socket | None = None

        async def answer() -> None:
            nonlocal line
            loop = asyncio.get_running_loop()
            line, _ = await loop.sock_accept(listener.listener)
            line.setblocking(False)
            await loop.sock_sendall(line, b'{"protocol":1,"release":"x","pid":1}\n')
            asked = await loop.sock_recv(line, 9_999)
            number = json.loads(asked)["id"]
            odd = [7, "x", [], {}]
            said = [{"id": odd}, {"id": number, "items": 7}, [number], "x"]
            await loop.sock_sendall(line, b"".join(json.dumps(each).encode() + b"\n" for each in said))

        answering = asyncio.create_task(answer())
        async with await ControlClient.connect(tmp_path) as client, asyncio.timeout(MAX_S):
            with pytest.raises(SessionTreeError, match="items of no list"):
                await client.supervisor.open_trees()
            await answering
            assert client.is_connected
        assert line is not None
        line.close()
    finally:
        listener.close()

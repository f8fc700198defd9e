"""Every question that the control socket takes, and how the supervisor answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, get_args

from sessiontree.contracts.approvals import ApprovalAnswer
from sessiontree.contracts.client_call import ClientAnswer
from sessiontree.contracts.errors import ClientAnswerRefused, ConfigError
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.stimuli import SendMode
from sessiontree.control import values
from sessiontree.control.requests import Given, SocketRequest, Told
from sessiontree.runtime.supervisor_api import Owner

LONGEST_READ_S = 20.0
READ_AT_ONCE = 512
_ENDINGS = (SessionStatus.CANCELLED.value, SessionStatus.COMPLETED.value)

Question: TypeAlias = Callable[[Owner, Given, str], Awaitable[Told]]
"""Takes the owner, the arguments, and the words for who asks."""


async def answer(owner: Owner, request: SocketRequest, who: str) -> Told:
    """Answer a question on behalf of a person.

    Raises:
        ConfigError: there is no such question, or an argument is not as it must be.
        SessionTreeError: as the owner's methods do.
    """
    question = QUESTIONS.get(request.ask)
    if question is None:
        raise ConfigError(
            f"the runtime can't be asked to {request.ask[:80]!r}; it knows {', '.join(QUESTIONS)}"
        )
    return await question(owner, request.given, who)


async def _open_trees(owner: Owner, given: Given, who: str) -> Told:
    return Told(items=owner.open_trees())


async def _report(owner: Owner, given: Given, who: str) -> Told:
    return Told(values.report_to_wire(owner.report(given.text("tree_id"), given.text("session"))))


async def _receipt(owner: Owner, given: Given, who: str) -> Told:
    return Told(items=map(values.line_to_wire, owner.receipt(given.text("tree_id"))))


async def _pending(owner: Owner, given: Given, who: str) -> Told:
    return Told(items=map(values.request_to_wire, owner.pending(given.text("tree_id"))))


async def _shown(owner: Owner, given: Given, who: str) -> Told:
    request = owner.shown(given.text("tree_id"), given.text("request_id"))
    return Told(None if request is None else values.request_to_wire(request))


async def _decide(owner: Owner, given: Given, who: str) -> Told:
    answered = ApprovalAnswer(given.truth("approve"), given.text("reason", ""), given.truth("always"))
    await owner.decide(given.text("tree_id"), given.text("request_id"), answered, who)
    return Told()


async def _client_calls(owner: Owner, given: Given, who: str) -> Told:
    return Told(items=map(values.client_call_to_wire, owner.client_calls(given.text("tree_id"))))


async def _answer(owner: Owner, given: Given, who: str) -> Told:
    client_id = given.text("client_id")
    try:
        answered = ClientAnswer.from_wire(given.object("answer"))
    except (KeyError, TypeError, ValueError) as error:
        raise ClientAnswerRefused(client_id, f"it is no answer: {error}") from error
    await owner.answer(given.text("tree_id"), client_id, answered, given.words("answer_id"))
    return Told()


async def _send(owner: Owner, given: Given, who: str) -> Told:
    mode: Any = given.one_of("mode", get_args(SendMode))
    tree_id, session, message_id = given.text("tree_id"), given.text("session"), given.words("message_id")
    return Told(
        values.reply_to_wire(await owner.send(tree_id, session, given.words("text"), mode, message_id))
    )


async def _call(owner: Owner, given: Given, who: str) -> Told:
    tree_id, session, call_id = given.text("tree_id"), given.text("session"), given.words("call_id")
    reply = await owner.call(tree_id, session, call_id, given.words("tool"), given.object("arguments"))
    return Told(values.call_to_wire(reply))


async def _result(owner: Owner, given: Given, who: str) -> Told:
    return Told((await owner.result(given.text("tree_id"), given.text("session"))).to_wire())


async def _stop(owner: Owner, given: Given, who: str) -> Told:
    status = SessionStatus(given.one_of("status", _ENDINGS))
    lines = await owner.stop(given.text("tree_id"), given.text("session"), given.text("reason"), status)
    return Told(items=map(values.line_to_wire, lines))


async def _interrupt(owner: Owner, given: Given, who: str) -> Told:
    lines = await owner.interrupt(given.text("tree_id"), given.text("session"), given.text("reason"))
    return Told(items=map(values.line_to_wire, lines))


async def _read(owner: Owner, given: Given, who: str) -> Told:
    records = await owner.read(
        given.text("tree_id"),
        given.count("after_seq"),
        given.count("max_n", READ_AT_ONCE),
        given.seconds("wait_s", LONGEST_READ_S),
    )
    return Told(items=map(values.record_to_wire, records))


async def _read_tree(owner: Owner, given: Given, who: str) -> Told:
    """Answer with the tree's own facts; any number of readers may wait, and each gets all of them."""
    tree_id, after = given.text("tree_id"), given.count("after_seq")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + given.seconds("wait_s", LONGEST_READ_S)
    while True:
        records = await owner.read(tree_id, after, READ_AT_ONCE, max(0.0, deadline - loop.time()))
        own = [record for record in records if not record.session]
        if own or not records:
            return Told(items=map(values.record_to_wire, own))
        after = records[-1].seq
        await asyncio.sleep(0)  # many facts are there already: let others have their turn


async def _record_of(owner: Owner, given: Given, who: str) -> Told:
    after_seq, max_n = (given.count(name) if name in given.members else 0 for name in ("after_seq", "max_n"))
    record = owner.record_of(given.text("tree_id"), given.text("session"), after_seq, max_n)
    return Told(values.history_to_wire(record), record.facts)


async def _last_seq(owner: Owner, given: Given, who: str) -> Told:
    return Told(owner.last_seq(given.text("tree_id")))


async def _room(owner: Owner, given: Given, who: str) -> Told:
    return Told(owner.room(given.text("tree_id"), given.text("session")))


async def _is_over(owner: Owner, given: Given, who: str) -> Told:
    return Told(owner.is_over(given.text("tree_id")))


async def _is_open(owner: Owner, given: Given, who: str) -> Told:
    return Told(owner.is_open(given.text("tree_id")))


async def _actors(owner: Owner, given: Given, who: str) -> Told:
    return Told(items=map(values.actor_to_wire, owner.actors()))


async def _security(owner: Owner, given: Given, who: str) -> Told:
    security = await owner.security()
    return Told(None if security is None else dict(security))


QUESTIONS: Mapping[str, Question] = {
    "open_trees": _open_trees,
    "report": _report,
    "receipt": _receipt,
    "pending": _pending,
    "shown": _shown,
    "decide": _decide,
    "client_calls": _client_calls,
    "answer": _answer,
    "send": _send,
    "call": _call,
    "result": _result,
    "stop": _stop,
    "interrupt": _interrupt,
    "read": _read,
    "read_tree": _read_tree,
    "record_of": _record_of,
    "last_seq": _last_seq,
    "room": _room,
    "is_over": _is_over,
    "is_open": _is_open,
    "actors": _actors,
    "security": _security,
}
"""What can be asked; creating, resuming, spawning and letting go are the creating program's alone."""

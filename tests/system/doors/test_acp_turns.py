"""An editor and a tree, through a real client: turns, permissions, questions and histories."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from acp.schema import AcceptElicitationResponse

from sessiontree import FunctionModel, ModelRequest, ScriptedModel, script_call
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, Usage
from sessiontree.doors.acp.editor_session import EditorSession
from sessiontree.doors.conversations import Conversation
from sessiontree.journal.record import read_kind
from tests.behaviour.effect_fakes import effects
from tests.system.doors.editor_fixtures import EditorFake, OpenEditor, open_editor, refusal_of

LAUNCH = script_call("launch", text="x")


async def test_turn_is_shown_and_loaded_as_it_was(tmp_path: Path) -> None:
    """A new process shows the history that the editor saw, with the same ids, before it answers."""
    replies: Any = [
        ["I look.", script_call("look", text="a"), script_call("write", path="b.txt", content="b\n")],
        "All is done.",
        "And again.",
    ]
    async with open_editor(tmp_path, ScriptedModel(replies)) as editor:
        session = await editor.begin()
        assert await editor.prompt(session, "one") == "end_turn"
        assert editor.fake.text == "I look.All is done."
        assert editor.fake.calls == {
            "main:1.0": ["pending", "completed"],
            "main:1.1": ["pending", "in_progress", "completed"],
        }
        diff = next(each for each in editor.fake.updates if getattr(each, "kind", "") == "edit").content[0]
        assert (diff.type, diff.path, diff.new_text) == ("diff", str(editor.workspace / "b.txt"), "b\n")
        assert await editor.prompt(session, "two") == "end_turn"
        seen = editor.fake.shown()
    async with open_editor(tmp_path, ScriptedModel(["more"])) as editor:
        (listed,) = (await editor.connection.list_sessions(cwd=str(editor.workspace))).sessions
        assert (listed.session_id, listed.title, listed.cwd) == (session, "one", str(editor.workspace))
        await editor.connection.load_session(session_id=session, cwd=str(editor.workspace))
        loaded = editor.fake.shown()
        heard = [text for key, text in loaded if key.startswith("user_message_chunk")]
        assert heard == ["one", "two"]
        assert [each for each in loaded if not each[0].startswith("user_")] == seen
        await editor.connection.close_session(session_id=session)
        editor.fake.updates.clear()
        await editor.connection.resume_session(session_id=session, cwd=str(editor.workspace))
        assert editor.fake.updates == []
        assert await editor.prompt(session) == "end_turn"


async def test_permission_decides_about_one_call(tmp_path: Path) -> None:
    """Allowed once it runs once; a no binds the call; *always* covers what follows."""
    chosen = iter(["allow_once", "reject_once", "allow_always"])

    async def choose(call: Any) -> str:
        return next(chosen)

    calls: Any = [script_call("launch", text=text) for text in "abcd"]
    model = ScriptedModel([calls[0], calls[1], calls[2], calls[3], "done"])
    async with open_editor(tmp_path, model, EditorFake(choose)) as editor:
        assert await editor.prompt(await editor.begin()) == "end_turn"
        assert [text for _, text in effects(editor.workspace)] == ["a", "c", "d"]
        assert editor.fake.options == [["allow_once", "allow_always", "reject_once"]] * 3
        asked = editor.fake.asked[0]
        assert (asked.tool_call_id, asked.status, asked.title) == ("main:1.0", "pending", "launch a")
        assert asked.field_meta["sessiontree"]["tier"] == "Elevated"
        assert '{"text":"a"}' in asked.content[0].content.text
        assert editor.fake.calls["main:2.0"][-1] == "failed"
        assert editor.fake.calls["main:1.0"] == [
            "pending",
            "pending",
            "in_progress",
            "in_progress",
            "completed",
        ]


@pytest.mark.parametrize("option", ["allow_everything", "reject_always", "allow"])
async def test_choice_that_was_not_offered_is_a_no(tmp_path: Path, option: str) -> None:
    """A client that answers with another id has not allowed anything."""

    async def choose(call: Any) -> str:
        return option

    async with open_editor(tmp_path, ScriptedModel([LAUNCH, "done"]), EditorFake(choose)) as editor:
        assert await editor.prompt(await editor.begin()) == "end_turn"
        assert effects(editor.workspace) == []


def climb(request: ModelRequest) -> Any:
    """Spawn a Branch three times over; the last one launches."""
    depth = request.session_id.count("/")
    if any(message.to_wire()["role"] == "toolResult" for message in request.messages):
        return f"done at {depth}"
    return LAUNCH if depth == 3 else script_call("sessions_spawn", kind="branch", task=f"go below {depth}")


async def test_child_three_levels_below_asks_in_the_editor(tmp_path: Path) -> None:
    """The request names its path; children are tool calls; the prompt ends with the last report."""
    async with open_editor(tmp_path, FunctionModel(climb)) as editor:
        session = await editor.begin()
        assert await editor.prompt(session) == "end_turn"
        (asked,) = editor.fake.asked
        path = "main/b1/b1/b1"
        assert asked.title == f"{path}: launch x"
        assert asked.field_meta["sessiontree"]["session"] == path
        assert asked.tool_call_id == f"{path}:1.0"
        assert [text for _, text in effects(editor.workspace)] == ["x"]
        calls = editor.fake.calls
        for child in ("main/b1", "main/b1/b1", path):
            assert (calls[f"session:{child}"][0], calls[f"session:{child}"][-1]) == (
                "in_progress",
                "completed",
            )
        assert calls[f"{path}:1.0"][-1] == "completed"


async def test_several_requests_are_asked_at_once(tmp_path: Path) -> None:
    """Each is answered once, in any order; one that is decided elsewhere is withdrawn."""
    answers: dict[str, asyncio.Future[str]] = {}
    all_asked = asyncio.Event()

    async def choose(call: Any) -> str:
        answers[call.raw_input["text"]] = asyncio.get_running_loop().create_future()
        if len(answers) == 3:
            all_asked.set()
        return await answers[call.raw_input["text"]]

    calls: Any = [script_call("launch", text=text) for text in "abc"]
    async with open_editor(tmp_path, ScriptedModel([calls, "done"]), EditorFake(choose)) as editor:
        session = await editor.begin()
        prompt = asyncio.create_task(editor.prompt(session))
        await all_asked.wait()
        answers["c"].set_result("allow_once")
        answers["a"].set_result("reject_once")
        heard = listen_for(editor, "$/cancel_request")
        conversation = await editor.find(session)
        await wait_for_facts(conversation, "approval_decided", 2)
        (left,) = conversation.tree.approvals.pending()
        assert left.request.arguments == {"text": "b"}
        await left.approve(sender="acp")
        assert await prompt == "end_turn"
        assert await heard
        assert sorted(text for _, text in effects(editor.workspace)) == ["b", "c"]
        answers["b"].set_result("reject_once")  # too late: the answer counts for nothing
        await editor.connection.list_sessions(cwd=str(editor.workspace))
        assert len(effects(editor.workspace)) == 2


async def wait_for_facts(conversation: Conversation, kind: str, count: int) -> None:
    """Wait until a tree has so many facts of a kind."""
    facts = conversation.tree.events()
    async for record in facts:
        count -= read_kind(record.text) == kind
        if count == 0:
            break
    await facts.aclose()


def listen_for(editor: OpenEditor, method: str) -> asyncio.Future[bool]:
    """Return what is true once the agent has sent a notification of this method."""
    heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def note(event: Any) -> None:
        if event.message.get("method") == method and not heard.done():
            heard.set_result(True)

    editor.connection._conn.add_observer(note)
    return heard


async def test_cancelled_prompt_ends_what_it_asked(tmp_path: Path) -> None:
    """The prompt answers ``cancelled``; nothing waits, nothing ran, and the next prompt is answered."""
    never = asyncio.Event()

    async def choose(call: Any) -> str:
        await never.wait()
        return ""

    async with open_editor(tmp_path, ScriptedModel([LAUNCH, "next"]), EditorFake(choose)) as editor:
        session = await editor.begin()
        prompt = asyncio.create_task(editor.prompt(session))
        await editor.fake.has_asked.wait()
        await editor.connection.cancel(session_id=session)
        assert await prompt == "cancelled"
        conversation = await editor.find(session)
        assert conversation.tree.approvals.pending() == []
        assert await editor.prompt(session) == "end_turn"
        assert editor.fake.text.endswith("next")
        assert effects(editor.workspace) == []


class AbsentFake(EditorFake):
    """Closes requests for a permission without a choice, and shows forms that nobody fills in."""

    def __init__(self) -> None:
        super().__init__(self._close)
        self.hears_that_it_waits = asyncio.Event()

    async def _close(self, call: Any) -> str:
        return ""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        await super().session_update(session_id, update)
        if "the request waits in the tree" in self.text:
            self.hears_that_it_waits.set()

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> AcceptElicitationResponse:
        self.has_asked.set()
        return await asyncio.Future()


async def test_permission_that_is_closed_without_a_choice_waits_in_the_tree(tmp_path: Path) -> None:
    """The person hears of it; an answer on another surface ends the prompt."""
    fake = AbsentFake()
    async with open_editor(tmp_path, ScriptedModel([LAUNCH, "next"]), fake) as editor:
        session = await editor.begin()
        prompt = asyncio.create_task(editor.prompt(session))
        await fake.hears_that_it_waits.wait()
        conversation = await editor.find(session)
        (waiting,) = conversation.tree.approvals.pending()
        await waiting.approve(sender="acp")
        assert await prompt == "end_turn"
        assert effects(editor.workspace) != []


async def test_form_of_a_question_that_is_answered_elsewhere_is_withdrawn(tmp_path: Path) -> None:
    """Its editor hears that no answer is needed any more."""
    model = ScriptedModel([script_call("ask_user", questions=QUESTIONS[1:2]), "done"])
    async with open_editor(tmp_path, model, AbsentFake(), forms=True) as editor:
        session = await editor.begin()
        withdrawn = listen_for(editor, "$/cancel_request")
        prompt = asyncio.create_task(editor.prompt(session))
        await editor.fake.has_asked.wait()
        conversation = await editor.find(session)
        (waiting,) = conversation.tree.questions.pending()
        await waiting.answer("Ada", sender="acp")
        assert await prompt == "end_turn"
        assert await withdrawn


QUESTIONS: Any = [
    {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue", "description": "calm"}]},
    {"question": "What name?"},
    {"question": "Which days?", "options": [{"label": "mon"}, {"label": "tue"}], "multi_select": True},
]


async def test_question_is_a_form(tmp_path: Path) -> None:
    """Its fields are the questions; the model reads the answers."""
    model = ScriptedModel([script_call("ask_user", questions=QUESTIONS), "done"])
    fake = EditorFake()
    fake.form_answer = {"answer_1": "blue", "answer_2": "Ada", "answer_3": ["mon", "tue"], "other": 5}
    async with open_editor(tmp_path, model, fake, forms=True) as editor:
        session = await editor.begin()
        assert await editor.prompt(session) == "end_turn"
        ((message, mode),) = fake.forms
        assert "Which colour?" in message
        assert (mode.session_id, list(mode.requested_schema.properties)) == (
            session,
            ["answer_1", "text_1", "answer_2", "answer_3", "text_3"],
        )
        ended = next(each for each in fake.updates if getattr(each, "status", "") == "completed")
        answers = json.loads(ended.content[0].content.text)
        assert [each["chosen"] or each["text"] for each in answers["answers"]] == [
            ["blue"],
            "Ada",
            ["mon", "tue"],
        ]


async def test_question_waits_if_the_editor_has_no_forms(tmp_path: Path) -> None:
    """It is said as a message, and is answered on another surface."""
    model = ScriptedModel([script_call("ask_user", questions=QUESTIONS[1:2]), "done"])
    async with open_editor(tmp_path, model) as editor:
        session = await editor.begin()
        prompt = asyncio.create_task(editor.prompt(session))
        conversation = await editor.find(session)
        await wait_for_facts(conversation, "client_call_opened", 1)
        waiting = conversation.tree.questions.pending()
        await waiting[0].answer("Ada", sender="acp")
        assert await prompt == "end_turn"
        assert "What name?" in editor.fake.text
        assert editor.fake.forms == []


async def test_sessions_are_where_they_may_be(tmp_path: Path) -> None:
    """Directories outside, foreign ids and sessions of others are refused with an error that says why."""
    async with open_editor(tmp_path, ScriptedModel(["one"])) as editor:
        inside = str(editor.workspace)
        connection = editor.connection
        (tmp_path / "file").touch()
        for cwd in ("", "relative", str(tmp_path), str(tmp_path / "file"), "/nowhere/at/all", inside + "\0"):
            code, said = await refusal_of(connection.new_session(cwd=cwd))
            assert (code, "cwd" in said) == (-32602, True)
        session = await editor.begin()
        for name in ("t0123456789abcdef", "", "../x", "x" * 10_000):
            code, _ = await refusal_of(connection.load_session(session_id=name, cwd=inside))
            assert code == -32002
            code, _ = await refusal_of(editor.prompt(name))
            assert code == -32002
        below = editor.workspace / "below"
        below.mkdir()
        code, said = await refusal_of(connection.load_session(session_id=session, cwd=str(below)))
        assert (code, "works in" in said) == (-32602, True)
        assert await editor.prompt(session) == "end_turn"


async def test_editor_gets_no_more_than_its_tier(tmp_path: Path) -> None:
    """Above the tier nothing runs, and nobody is asked."""
    replies: Any = [script_call("append", text="a"), LAUNCH, script_call("look", text="b"), "done"]
    async with open_editor(tmp_path, ScriptedModel(replies), tier="ReadOnly") as editor:
        assert await editor.prompt(await editor.begin()) == "end_turn"
        assert (effects(editor.workspace), editor.fake.asked) == ([], [])
        assert [states[-1] for states in editor.fake.calls.values()] == ["failed", "failed", "completed"]


async def test_tier_can_be_lowered_and_never_passes_the_rights(tmp_path: Path) -> None:
    """A prompt at a lower tier changes nothing, in children either; what was chosen holds after a restart."""

    def reply(request: ModelRequest) -> Any:
        heard = [message.to_wire()["role"] for message in request.messages]
        if heard[-1] == "toolResult":
            return "done"
        if request.session_id == "main" and request.messages[-1].text == "spawn":
            return script_call("sessions_spawn", kind="branch", task="write")
        return [script_call(tool, text=request.session_id) for tool in ("append", "sly")]

    async with open_editor(tmp_path, FunctionModel(reply), tier="Workspace") as editor:
        new = await editor.connection.new_session(cwd=str(editor.workspace))
        session, (option,) = new.session_id, new.config_options
        assert (option.id, option.current_value) == ("tier", "Workspace")
        assert [each.value for each in option.options] == ["ReadOnly", "Workspace"]
        for chosen in ("System", "Elevated", "", "readonly"):
            code, _ = await refusal_of(editor.connection.set_session_mode(session_id=session, mode_id=chosen))
            assert code == -32602
        await editor.connection.set_config_option(session_id=session, config_id="tier", value="ReadOnly")
        for text in ("go", "spawn"):
            assert await editor.prompt(session, text) == "end_turn"
        assert effects(editor.workspace) == []
    async with open_editor(tmp_path, FunctionModel(reply), tier="Workspace") as editor:
        loaded = await editor.connection.load_session(session_id=session, cwd=str(editor.workspace))
        assert (loaded.config_options[0].current_value, loaded.modes.current_mode_id) == ("ReadOnly",) * 2
        assert await editor.prompt(session) == "end_turn"
        assert effects(editor.workspace) == []
        await editor.connection.set_session_mode(session_id=session, mode_id="Workspace")
        assert await editor.prompt(session) == "end_turn"
        assert [text for _, text in effects(editor.workspace)] == ["main", "main"]


PHASES = """
phase("read")
phase("write")
"done"
"""


async def test_phases_of_a_program_are_the_plan(tmp_path: Path) -> None:
    """Each phase is an entry; the last one is under way until the program has ended."""
    model = ScriptedModel([script_call("program", code=PHASES), "done"])
    async with open_editor(tmp_path, model) as editor:
        assert await editor.prompt(await editor.begin()) == "end_turn"
        plans = [
            [(entry.content, entry.status) for entry in each.entries]
            for each in editor.fake.updates
            if each.session_update == "plan"
        ]
        assert plans[-1] == [("read", "completed"), ("write", "completed")]
        assert plans[0][-1][1] == "in_progress"


async def test_usage_is_that_of_context_and_tree(tmp_path: Path) -> None:
    """``used`` is the newest context of Main; the cost is that of all turns, also after a load."""

    def reply(request: ModelRequest) -> AssistantMessage:
        usage = Usage(input_tokens=100 * request.turn, output_tokens=5, cost_usd=0.25)
        return AssistantMessage((TextContent("yes"),), usage=usage)

    async with open_editor(tmp_path, FunctionModel(reply)) as editor:
        session = await editor.begin()
        for _ in range(2):
            assert await editor.prompt(session) == "end_turn"
        await editor.connection.load_session(session_id=session, cwd=str(editor.workspace))
        found = [
            (each.used, each.size, each.cost.amount, each.cost.currency)
            for each in editor.fake.updates
            if each.session_update == "usage_update"
        ]
        assert found == [(105, 1_000, 0.25, "USD"), (205, 1_000, 0.5, "USD")] * 2


async def test_turn_that_fails_is_an_error(tmp_path: Path) -> None:
    """The prompt is answered with an error that says why, and the session goes on."""

    def reply(request: ModelRequest) -> str:
        if request.messages[-1].text == "fail":
            raise ValueError("broken on purpose")
        return "fine"

    async with open_editor(tmp_path, FunctionModel(reply)) as editor:
        session = await editor.begin()
        code, said = await refusal_of(editor.prompt(session, "fail"))
        assert (code, "broken on purpose" in said) == (-32603, True)
        assert await editor.prompt(session, "go") == "end_turn"


async def test_request_that_no_editor_has_shown_is_asked_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is loaded again between the request and its call in the editor."""
    asked: asyncio.Queue[EditorSession] = asyncio.Queue()
    ask = EditorSession.ask

    async def note(session: EditorSession, request: Any) -> Any:
        asked.put_nowait(session)
        return await ask(session, request)

    monkeypatch.setattr(EditorSession, "ask", note)
    async with open_editor(tmp_path, ScriptedModel(["one"])) as editor:
        session = await editor.begin()
        channel: Any = (await editor.find(session)).tree.channel
        asking = asyncio.create_task(channel.ask(SimpleNamespace(request_id="not shown yet")))
        first = await asked.get()
        await editor.connection.load_session(cwd=str(editor.workspace), session_id=session)
        async with asyncio.timeout(20):
            assert await asked.get() is not first
        asking.cancel()
        await asyncio.wait([asking])

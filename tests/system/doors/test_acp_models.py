"""The model of a session in the editor: what may be chosen, when a choice counts, and how long it holds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest
from acp.schema import EnvVariable, McpServerStdio

from sessiontree import Configuration, FunctionModel, ScriptedModel, script_call
from sessiontree.cli.door import list_models
from sessiontree.contracts.facts.session_facts import ModelChanged, Opened
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, Usage
from tests.system.doors.editor_fixtures import EditorFake, OpenEditor, open_editor, refusal_of

HERE: Final = ["plain", "clever"]
BACKENDS: Final = ["local", pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.long])]


def model(name: str) -> FunctionModel:
    """Return a model that says its name."""
    answer = AssistantMessage((TextContent(f"{name} answers."),), "stop", Usage(10, 2))
    return FunctionModel(lambda _: answer, name=name)


def chosen(options: Any) -> str:
    """Return the value of the option of the model."""
    return str(next(each.current_value for each in options if each.id == "model"))


async def names_of(editor: OpenEditor, session: str) -> list[str]:
    """Return Main's models in the order of the journal."""
    records = await (await editor.find(session)).log.feed.list_records()
    facts = [fact for each in records if each.session == "main" for fact in each.facts]
    return [fact.model for fact in facts if isinstance(fact, Opened | ModelChanged)]


async def choose(editor: OpenEditor, session: str, value: str) -> Any:
    """Choose a model, and return the options then."""
    set_option = editor.connection.set_config_option
    return (await set_option(session_id=session, config_id="model", value=value)).config_options


@pytest.mark.parametrize("backend", BACKENDS)
async def test_chosen_model_answers_from_the_next_turn_on(tmp_path: Path, backend: Any) -> None:
    """Before the first turn and between two; the journal has each change; a new process keeps the last."""
    given: Any = {"others": [model("clever")], "backend": backend}
    async with open_editor(tmp_path, model("plain"), **given) as editor:
        new = await editor.connection.new_session(cwd=str(editor.workspace))
        session = new.session_id
        option = next(each for each in new.config_options if each.id == "model")
        assert (option.category, option.current_value) == ("model", "plain")
        assert [each.value for each in option.options] == sorted(HERE)
        for value in ("clever", "plain", "clever"):
            assert chosen(await choose(editor, session, value)) == value
            assert await editor.prompt(session) == "end_turn"
        assert editor.fake.text == "clever answers.plain answers.clever answers."
        assert await names_of(editor, session) == ["clever", "plain", "clever"]
    async with open_editor(tmp_path, model("plain"), **given) as editor:
        loaded = await editor.connection.load_session(session_id=session, cwd=str(editor.workspace))
        assert chosen(loaded.config_options) == "clever"
        assert await editor.prompt(session) == "end_turn"
        assert editor.fake.text.endswith("plain answers.clever answers.clever answers.")
        assert (await names_of(editor, session))[-1] == "clever"
    async with open_editor(tmp_path, model("plain")) as editor:  # the owner has taken it away
        loaded = await editor.connection.load_session(session_id=session, cwd=str(editor.workspace))
        assert [each.id for each in loaded.config_options] == ["tier"]
        assert await editor.prompt(session) == "end_turn"
        assert editor.fake.text.endswith("plain answers.")


async def test_choice_is_refused_while_a_turn_goes_on(tmp_path: Path) -> None:
    """The turn goes on with its model; what is not offered is never taken; the lowered tier stays."""
    fake = EditorFake()
    replies: Any = [script_call("launch", text="x"), "done", "again"]
    usual = ScriptedModel(replies, name="plain")
    async with open_editor(tmp_path, usual, fake, others=[model("clever")]) as editor:
        session = await editor.begin()
        refused: list[Any] = []

        async def refuse(_: Any) -> str:
            refused.append(await refusal_of(choose(editor, session, "clever")))
            return "reject_once"

        fake.choose = refuse
        assert await editor.prompt(session) == "end_turn"
        assert refused == [(-32600, "a turn goes on; the model can be changed once it has ended")]
        for value in ("", "Clever", "openai:gpt-5"):
            code, details = await refusal_of(choose(editor, session, value))
            assert (code, details) == (-32602, "a model of this session is one of plain, clever")
        await editor.connection.set_config_option(session_id=session, config_id="tier", value="ReadOnly")
        options = await choose(editor, session, "clever")
        assert [each.current_value for each in options] == ["ReadOnly", "clever"]
        assert await editor.prompt(session) == "end_turn"
        assert fake.text == "doneclever answers."
        assert await names_of(editor, session) == ["plain", "clever"]


async def test_prompt_right_after_a_choice_waits_for_it(tmp_path: Path) -> None:
    """An editor need not wait for the answer to a choice before it sends the next prompt."""
    async with open_editor(tmp_path, model("plain"), others=[model("clever")]) as editor:
        session = await editor.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(choose(editor, session, "clever"))
            prompt = group.create_task(editor.prompt(session))
        assert (prompt.result(), editor.fake.text) == ("end_turn", "clever answers.")


async def test_servers_that_an_editor_lends_are_not_started(tmp_path: Path) -> None:
    """The person sees which are not used; none of their commands runs."""
    ran = tmp_path / "ran"
    lent = McpServerStdio(name="files\u202e", command="/usr/bin/touch", args=[str(ran)], env=[])
    lent.env.append(EnvVariable(name="KEY", value="very-secret"))
    async with open_editor(tmp_path, model("plain")) as editor:
        new = await editor.connection.new_session(cwd=str(editor.workspace), mcp_servers=[lent])
        assert await editor.prompt(new.session_id) == "end_turn"
        assert editor.fake.text.startswith(
            "MCP servers that the editor lends are not used here (files\\u{202e}). "
        )
        assert editor.fake.text.endswith("plain answers.")
        assert "very-secret" not in editor.fake.text
        assert not ran.exists()


CONFIG: Final = """
model = "usual"

[models.usual]
model = "openai:gpt-5-mini"
key_file = "PLACE/key"

[models.clever]
model = "openai:gpt-5"
key_file = "PLACE/key"

[models.keyless]
model = "anthropic:claude-sonnet-4-5"
key_file = "PLACE/missing"

[agents.fixed.config]
model = "clever"
"""


def test_models_of_the_configuration_are_the_choices(tmp_path: Path) -> None:
    """First what answers where nobody chooses; an agent with its own model has that alone."""
    for name, text in (("owner.toml", CONFIG), ("key", "secret")):
        (tmp_path / name).write_text(text.replace("PLACE", str(tmp_path)))
        (tmp_path / name).chmod(0o600)
    configured = Configuration.load(tmp_path / "owner.toml")
    assert [(each.name, each.own_name) for each in list_models(configured, None, "default")] == [
        ("usual", "openai:gpt-5-mini"),
        ("clever", "openai:gpt-5"),
    ]
    assert [each.name for each in list_models(configured, "clever", "default")] == ["clever", "usual"]
    (only,) = list_models(configured, None, "fixed")
    assert only.own_name == "openai:gpt-5"

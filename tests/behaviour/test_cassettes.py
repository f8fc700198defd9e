"""Trees over a cassette: many sessions record to one file at once, and replay it without a provider."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from sessiontree import (
    Limits,
    PermissionTier,
    ProviderModel,
    RecordedModel,
    SessionFailed,
    Tool,
    ToolContext,
    ToolResult,
)
from sessiontree.contracts.values.messages import AssistantMessage, ThinkingContent
from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest
from tests.behaviour.tree_fixtures import Opener

KEY = "sk-sentinel-" + "7vB3kQ" * 4
MANY = {"local": 24, "ray": 6}


class Weigh(Tool[BaseModel]):
    """Weighs a thing."""

    name = "weigh"
    description = "Weigh a thing."
    tier = PermissionTier.READ_ONLY

    class Params(BaseModel):
        """What to weigh."""

        thing: str

    async def execute(self, params: BaseModel, ctx: ToolContext) -> ToolResult:
        return ToolResult(f"{params.model_dump()['thing']} weighs 7 g; the scale's key is {KEY}")


def weighing(request: FakeRequest) -> FakeReply:
    """Weigh what the task names, then report it; a thought and a password come along."""
    said = str(request.body)
    if "tool_result" in said:
        return FakeReply(f"It weighs 7 g. password={KEY}")
    thing = next(word for word in said.split() if word.startswith("thing-")).strip("'\".}],")
    return FakeReply(thinking="On the scale.", calls=(FakeCall("weigh", f'{{"thing": "{thing}"}}'),))


async def weighed(open_tree: Opener, model: RecordedModel) -> list[tuple[str, int]]:
    """Return what Workers say about as many things, the thoughts of each, and the tokens of each."""
    many = MANY[open_tree.backend]
    async with open_tree(model, tools=[Weigh()], limits=Limits(max_children=64)) as tree:
        tasks = [f"Weigh thing-{number} ." for number in range(many)]
        results = await tree.main.map("worker", tasks, concurrency=many)
        await tree.main.send("Weigh thing-99 yourself.")
        replies = [each async for each in tree.main.transcript() if isinstance(each, AssistantMessage)]
        assert isinstance(replies[0].content[0], ThinkingContent)
    return [(each.summary, each.usage.tokens) for each in results]


async def test_tree_replays_what_it_recorded(open_tree: Opener, tmp_path: Path) -> None:
    """Many sessions record at once; without a provider each gets its replies again."""
    path = tmp_path / "cassettes" / "weigh.json"
    async with FakeProvider(weighing) as fake:
        model = ProviderModel("anthropic:claude-sonnet-5", api_key=KEY, base_url=fake.url("anthropic"))
        recorded = await weighed(open_tree, RecordedModel(path, model))
        asked = fake.counts.requests
    assert asked == 2 * (MANY[open_tree.backend] + 1)
    text = written(path)
    assert KEY not in text
    assert len(text.splitlines()) == 1 + asked
    replayed = await weighed(open_tree, RecordedModel(path))
    assert [each[1] for each in replayed] == [each[1] for each in recorded]
    assert {each[0] for each in replayed} == {"It weighs 7 g. password=‹redacted›"}
    assert written(path) == text


def written(path: Path) -> str:
    """Return a file's text."""
    return path.read_text("utf-8")


async def test_question_that_is_new_fails_the_run(open_tree: Opener, tmp_path: Path) -> None:
    """The sender reads which question was nearest and where the two differ; nothing is retried."""
    path = tmp_path / "weigh.json"
    async with FakeProvider([FakeReply("7 g.")]) as fake:
        model = ProviderModel("openai:gpt-5", api_key=KEY, base_url=fake.url("openai"))
        async with open_tree(RecordedModel(path, model)) as tree:
            assert await tree.main.send("Weigh thing-1 now.") == "7 g."
    async with open_tree(RecordedModel(path)) as tree:
        with pytest.raises(SessionFailed, match=r"line 2; .*recorded 'Weigh thing-1 now\.', asked 'Weigh th"):
            await tree.main.send("Weigh thing-2 now.")

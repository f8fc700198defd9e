"""An app is one value for what no journal holds; keywords are its short form; unknown options are named."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    App,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    Runtime,
    ScriptedModel,
    SessionTree,
    UserMessage,
    script_call,
    sync,
    tool,
)

Opener = Callable[..., Any]


@tool(tier=PermissionTier.READ_ONLY)
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def reply(request: ModelRequest) -> Any:
    """Use the tool once, then say what it returned; fail where another tool is offered."""
    assert [each.name for each in request.tools] == ["double"]
    last = request.messages[-1]
    return script_call("double", number=21) if isinstance(last, UserMessage) else last.text


APP = App(model=FunctionModel(reply), tools=[double], agents={"other": AgentSpec()}, builtin_tools=False)
"""A module's constant, as programs keep it."""


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """Where each tree is kept and served."""
    return {"state_dir": tmp_path / "state", "backend": "local"}


async def test_one_app_opens_resumes_and_forks_trees(tmp_path: Path, options: dict[str, Any]) -> None:
    """Each of them has its model, its tools and its agents, and no other tool."""
    async with SessionTree(tmp_path, APP, agent="other", **options) as tree:
        assert await tree.main.send("go") == "42"
        async with await tree.fork() as fork:
            assert await fork.main.send("go") == "42"
    async with await SessionTree.resume(tree.tree_id, APP, **options) as again:
        assert await again.main.send("go") == "42"


def test_one_app_opens_and_resumes_trees_without_await(tmp_path: Path, options: dict[str, Any]) -> None:
    """The twin takes the same value in the same place."""
    with sync.SessionTree(tmp_path, APP, **options) as tree:
        assert tree.main.send("go") == "42"
    with sync.SessionTree.resume(tree.tree_id, APP, **options) as again:
        assert again.main.send("go") == "42"


def test_app_keeps_copies() -> None:
    """It is frozen; lists and mappings that the program changes later, and iterators, are read once."""
    tools, agents = [double], {"one": AgentSpec()}
    app = App(model="openai:gpt-5", tools=iter(tools), agents=agents, skills=["here"])
    tools.clear()
    agents.clear()
    assert (app.tools, app.agents, app.skills) == ((double,), {"one": AgentSpec()}, ("here",))
    assert replace(app, model=None).tools == (double,)
    with pytest.raises(FrozenInstanceError):
        app.model = None  # type: ignore[misc]


def test_app_is_pickled_if_its_parts_are() -> None:
    """A process that imports the same modules gets an equal one."""
    app = App(model="openai:gpt-5", agents={"one": AgentSpec()}, web=None, skills="here")
    assert pickle.loads(pickle.dumps(app)) == app


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tools": double}, "tools: give a list of tools"),
        ({"tools": [5]}, "5"),
        ({"hooks": [object()]}, "hook"),
    ],
    ids=["a tool", "a number", "no hook"],
)
def test_wrong_parts_are_refused_where_the_app_is_made(given: dict[str, Any], said: str) -> None:
    """Not in the first tree that takes it."""
    with pytest.raises(ConfigError, match=said):
        App(**given)


MEMBERS: dict[str, Any] = {
    "model": ScriptedModel(["done"]),
    "models": {},
    "tools": (),
    "agents": {},
    "plugins": {},
    "web": None,
    "hooks": (),
    "skills": None,
    "builtin_tools": False,
}


@pytest.mark.parametrize("member", MEMBERS)
async def test_app_and_one_of_its_members_are_refused(
    tmp_path: Path, options: dict[str, Any], member: str
) -> None:
    """Whichever of them would win, the other one would be lost in silence."""
    both = {member: MEMBERS[member], **options}
    with pytest.raises(ConfigError, match=f"app and {member} are given"):
        SessionTree(tmp_path, APP, **both)
    with pytest.raises(ConfigError, match=f"app and {member} are given"):
        await SessionTree.resume("t0", APP, **both)
    with pytest.raises(ConfigError, match=f"app and {member} are given"):
        sync.SessionTree(tmp_path, APP, **both)


@pytest.mark.parametrize(
    "app", [ScriptedModel(["done"]), "openai:gpt-5", [double]], ids=["model", "name", "tools"]
)
def test_what_is_no_app_is_refused(tmp_path: Path, app: Any) -> None:
    """A model in its place is a mistake that is easily made; the error shows an app."""
    with pytest.raises(ConfigError, match=r"app: give an App, such as App\(model="):
        SessionTree(tmp_path, app)


@pytest.mark.parametrize("given", [(), (App(),)], ids=["nothing", "an empty app"])
def test_tree_needs_a_model(tmp_path: Path, given: tuple[Any, ...]) -> None:
    """An app without one is for suites."""
    with pytest.raises(ConfigError, match="no model is given"):
        SessionTree(tmp_path, *given)


@pytest.mark.parametrize("kind", [SessionTree, sync.SessionTree], ids=lambda kind: kind.__module__)
@pytest.mark.parametrize(
    ("option", "meant"), [("limit", "limits"), ("aprover", "approver"), ("modle", "model"), ("apps", "app")]
)
def test_unknown_options_of_a_tree_are_named(tmp_path: Path, kind: Any, option: str, meant: str) -> None:
    """With the name that is probably meant, also where that is a parameter of its own."""
    with pytest.raises(ConfigError, match=f"takes no option '{option}'; did you mean '{meant}'"):
        kind(tmp_path, **{"model": MEMBERS["model"], option: None})


@pytest.mark.parametrize("kind", [Runtime, sync.Runtime], ids=lambda kind: kind.__module__)
def test_unknown_options_of_a_runtime_are_named(tmp_path: Path, kind: Any) -> None:
    """Before it claims a journal."""
    with pytest.raises(ConfigError, match="Runtime takes no option 'slot'; did you mean 'slots'"):
        kind(tmp_path / "state", slot=4)
    assert not (tmp_path / "state").exists()


async def test_options_of_new_trees_are_no_options_of_resume() -> None:
    """The journal holds them."""
    with pytest.raises(ConfigError, match=r"SessionTree\.resume takes no option 'budget'"):
        await SessionTree.resume("t0", APP, budget=None)  # type: ignore[call-arg]


async def test_unknown_options_of_children_are_named(tmp_path: Path, options: dict[str, Any]) -> None:
    """Nothing is started."""
    async with SessionTree(tmp_path, APP, **options) as tree:
        main: Any = tree.main
        with pytest.raises(ConfigError, match="spawn takes no option 'lable'; did you mean 'label'"):
            await main.spawn("worker", "task", lable="one")
        with pytest.raises(ConfigError, match="map takes no option 'label'; did you mean 'labels'"):
            await main.map("worker", ["task"], label="one")
        with pytest.raises(ConfigError, match="as_completed takes no option 'result_typ'"):
            main.as_completed("worker", ["task"], result_typ=int)
        run: Any = tree.run
        with pytest.raises(ConfigError, match="run takes no option 'ttl'; did you mean 'ttl_s'"):
            await run("task", ttl=5)
        assert len(tree.receipt()) == 1

"""Whatever had become durable when the power went, the tree goes on from there to its one end."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sessiontree import SessionTree
from sessiontree.contracts.facts.session_facts import CallIntended, CallResolved
from sessiontree.contracts.facts.tree_facts import ApprovalDecided, ApprovalRequested
from sessiontree.contracts.recorded.codec import to_wire
from sessiontree.journal.record import Packed
from sessiontree.journal.replay import read_fact
from tests.behaviour import household_fakes as household
from tests.behaviour.effect_fakes import LOG, TOOLS, Append, effects
from tests.behaviour.fact_fixtures import facts_of
from tests.unit.runtime.runtime_fakes import Chunks, FaultyRuntime, recorded, write_prefix

LIE = ('"repeatable":false', '"repeatable":true')
CHANGING = {tool.name for tool in TOOLS if isinstance(tool, Append)}


@dataclass(frozen=True)
class Written:
    """A household's journal, append by append."""

    tree_id: str
    row0: dict[str, Any]
    appends: tuple[Chunks, ...]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The module's one recording is made on the loop of its tests."""
    return "asyncio"


@pytest.fixture(scope="module")
async def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """One run of the household from beginning to end."""
    directory = tmp_path_factory.mktemp("whole")
    workspace = directory / "workspace"
    workspace.mkdir()
    async with FaultyRuntime(directory / "state") as runtime:
        recorder = recorded(runtime)
        tree = SessionTree(workspace, model=household.WAITING, tools=TOOLS, approvals="auto", runtime=runtime)
        async with tree:
            await tree.main.send("go")
            await household.finished(tree)
        return Written(tree.tree_id, to_wire(tree._config), tuple(recorder.appends))


def intents(appends: tuple[Chunks, ...]) -> tuple[dict[str, str], set[str]]:
    """Return call id to text of all intended effects, and the ids of those that have their result."""
    intended: dict[str, str] = {}
    resolved: set[str] = set()
    for chunks in appends:
        for session, packed in chunks:
            for each in packed:
                fact = read_fact(each.text)
                if isinstance(fact, CallIntended) and fact.call.tool in CHANGING:
                    intended[f"{session}#{fact.call.key}"] = str(fact.call.arguments["text"])
                elif isinstance(fact, CallResolved):
                    resolved.add(f"{session}#{fact.key}")
    return intended, resolved


async def resumed_from(written: Written, cut: int, happened: bool, directory: Path) -> None:
    """Resume from the first appends, in a workspace as it may have been then; check the end it comes to.

    Args:
        written: The whole journal.
        cut: How many appends had become durable.
        happened: Whether effects that were intended and have no result had happened by then.
        directory: Where to lay the files.
    """
    appends = written.appends[:cut]
    intended, resolved = intents(appends)
    pending = _pending(appends)
    workspace = Path(written.row0["workspace"])
    before = [each for each in intended if each in resolved or happened]
    (workspace / LOG).write_text("".join(f"{each} {intended[each]}\n" for each in before))
    await write_prefix(directory / "state", written.tree_id, written.row0, list(appends))
    tree = await SessionTree.resume(
        written.tree_id,
        model=household.MODEL,
        tools=TOOLS,
        state_dir=directory / "state",
        backend="local",
    )
    async with tree, asyncio.timeout(60):
        if not tree.main.history():
            tree.main.send("go")
        await household.finished(tree)
        assert household.outcome(tree) == household.RESULTS
        missing = Counter() if happened else Counter(intended[each] for each in pending)
        assert household.done(workspace) == household.EFFECTS - missing
        assert len({call_id for call_id, _ in effects(workspace)}) == len(effects(workspace))
        unknown = [fact for fact in await facts_of(tree, CallResolved) if fact.outcome == "unknown"]
        assert len(unknown) == len(pending)
        asked = Counter(fact.question.request_id for fact in await facts_of(tree, ApprovalRequested))
        decided = Counter(fact.request_id for fact in await facts_of(tree, ApprovalDecided))
        assert asked == decided
        assert max(asked.values()) == 1


@pytest.mark.covers("DUR5")
@pytest.mark.slow
async def test_tree_goes_on_from_a_few_of_its_prefixes(written: Written, tmp_path: Path) -> None:
    """Every seventh append, with and without what may have happened: the same end."""
    for cut in range(1, len(written.appends) + 1, 7):
        await resumed_from(written, cut, bool(cut % 2), tmp_path / str(cut))


@pytest.mark.covers("REL-S18", "REL-S42")
@pytest.mark.slow
@pytest.mark.parametrize("happened", [True, False], ids=["had happened", "had not happened"])
async def test_tree_goes_on_from_every_prefix(written: Written, tmp_path: Path, happened: bool) -> None:
    """REL-S42: after each single append, in either world, no effect happens twice and none is forgotten."""
    assert len(written.appends) > 30
    for cut in range(1, len(written.appends) + 1):
        await resumed_from(written, cut, happened, tmp_path / str(cut))


@pytest.mark.covers("REL-S42")
async def test_effect_that_is_repeated_is_found(written: Written, tmp_path: Path) -> None:
    """The check fails where a journal says of an effect, falsely, that it may be repeated."""
    pretending = tuple(
        [(session, [_lying(each) for each in packed]) for session, packed in chunks]
        for chunks in written.appends
    )
    cut = next(cut for cut in range(1, len(pretending)) if _pending(pretending[:cut]))
    with pytest.raises(AssertionError):
        await resumed_from(Written(written.tree_id, written.row0, pretending), cut, True, tmp_path)


def _lying(packed: Packed) -> Packed:
    return Packed(packed.cause, packed.at_ms, packed.text.replace(*LIE))


def _pending(appends: tuple[Chunks, ...]) -> set[str]:
    intended, resolved = intents(appends)
    return intended.keys() - resolved

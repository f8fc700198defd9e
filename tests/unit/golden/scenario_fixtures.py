"""A run that leaves facts of as many kinds as possible, and how the golden journal is made of it.

``python -m tests.unit.golden.scenario_fixtures`` plays it and writes two files next to this one, named after
the release: the journal (``.ndjson``), and what it replays to (``.json``). The tree is a fork. It is closed
while a call waits for a person and another one for the program, so that a test can resume it.

Record again as long as the release is not out. Journals of releases stay unchanged, because every later
release must read them.
"""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from pathlib import Path

from pydantic import BaseModel

from sessiontree import (
    ApprovalRequest,
    Budget,
    ClientTool,
    ContextOverflow,
    FunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    Rule,
    SessionKind,
    SessionTree,
    script_call,
    tool,
)
from sessiontree.contracts.facts.tree_facts import ClientCallOpened
from sessiontree.contracts.values.messages import AssistantMessage
from sessiontree.journal.journal import Journal
from sessiontree.models.answers import Answer
from sessiontree.version import VERSION
from tests.behaviour.fact_fixtures import asked, until
from tests.unit.golden.replay_fixtures import summary_of

HERE = Path(__file__).parent
GOLDEN = HERE / f"{VERSION}.ndjson"
"""The journal of this release."""
LONG = "x" * 3_000
ROOM = 13_000
"""Characters that the model takes."""
WAITING_S = 60.0
CENTURY_S = 3.2e9
ENDLESS = Limits(
    approval_expiry_s=CENTURY_S,
    approval_patience_s=None,
    branch_ttl_s=CENTURY_S,
    tool_timeout_s=CENTURY_S,
)
"""What waits in the recorded tree waits still, whenever a test resumes the tree."""
LINES = {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]}


class Question(BaseModel):
    """What to ask."""

    text: str


ASK = ClientTool("ask", "Ask the program.", Question, tier=PermissionTier.READ_ONLY)


@tool(tier=PermissionTier.ELEVATED)
def launch(target: str) -> str:
    """Do something that cannot be undone.

    Args:
        target: What.
    """
    return f"launched {target}"


TOOLS = (launch, ASK)
RULES_OF_MAIN = (
    Rule(tool="launch", where={"/target": "north"}, answer="approve"),
    Rule(tool="launch", where={"/target": "south"}, answer="deny"),
)


def pass_on(request: ApprovalRequest) -> str:
    """Leave every request to the parent."""
    return "escalate"


JUDGE = f"{__name__ if __name__ != '__main__' else 'tests.unit.golden.scenario_fixtures'}:{pass_on.__name__}"
MAIN: dict[str, Answer] = {
    "begin": [
        script_call("sessions_spawn", kind="branch", task="climb", label="climber"),
        script_call("sessions_spawn", kind="worker", task="stumble"),
        script_call("read", path="a.txt"),
    ],
    "launch": script_call("launch", target="west"),
}
"""What Main answers, by the first word of the newest message; it repeats other words."""
OTHERS: dict[str, list[Answer]] = {
    "climb": [script_call("launch", target="north"), script_call("launch", target="south"), "climbed"],
    "stumble": [*(script_call("read", path="a.txt", offset=offset) for offset in "xyz"), "stumbled"],
    "type": ["not json", '{"lines": 2}'],
    "spend": [script_call("read", path="a.txt"), script_call("read", path="a.txt"), "never said"],
    "fly": [script_call("launch", target="moon"), "flown"],
    "question": [script_call("ask", text="which way?"), "asked"],
    "judge": ["ready"],
}
"""What the other sessions answer, by task and turn."""


class GoldenModel:
    """Answers by the script; it takes ``ROOM`` characters, and its first summary is empty."""

    def __init__(self) -> None:
        self.summaries = 0

    def __call__(self, request: ModelRequest) -> Answer:
        """Return the next answer."""
        heard = [each.text for each in request.messages if not isinstance(each, AssistantMessage)]
        size = sum(map(len, heard))
        if size > ROOM:
            raise ContextOverflow(f"{size} characters > {ROOM} maximum")
        if request.summarises:
            self.summaries += 1
            return f"{len(heard)} messages" if self.summaries > 1 else ""
        if heard[0] in OTHERS:
            script = OTHERS[heard[0]]
            return script[min(request.turn, len(script)) - 1]
        word = heard[-1].split()[0]
        return MAIN.get(word, f"heard {word}")


async def play(place: Path) -> str:
    """Play the scenario in a directory and return the id of the fork."""
    workspace = place / "workspace"
    workspace.mkdir()
    (workspace / "a.txt").write_text("one\ntwo\n")
    tree = SessionTree(
        workspace,
        model=FunctionModel(GoldenModel(), "golden"),
        tools=TOOLS,
        limits=ENDLESS,
        approver=RULES_OF_MAIN,
        state_dir=place / "state",
        backend="local",
        purpose="golden",
    )
    async with asyncio.timeout(WAITING_S), tree:
        judge = await tree.main.spawn(SessionKind.BRANCH, "judge", approver=JUDGE)
        await judge.spawn(SessionKind.BRANCH, "fly")
        await tree.main.spawn(SessionKind.BRANCH, "question")
        await _play_children(tree)
        await tree.main.call("write", {"path": "b.txt", "content": "b"})
        await tree.main.call("message", {"text": "hello"})
        for number in range(6):
            await tree.main.send(f"m{number} {LONG}")
        sent = asyncio.ensure_future(tree.main.send("launch"))
        for pending in await asked(tree, 2):
            if pending.request.session_id == "main":
                await pending.deny()
        await sent
        async with await tree.fork() as fork:
            await asked(fork, 3)
            await until(fork, ClientCallOpened, count=2)
        await tree.cancel("the tree is over")
    return fork.tree_id


async def _play_children(tree: SessionTree) -> None:
    await tree.main.send("begin")
    for session_id in ("main/b3", "main/w1"):
        await tree.session(session_id).result()
    typed = await tree.main.spawn(SessionKind.WORKER, "type", result_type=LINES)
    await typed.result()
    spender = await tree.main.spawn(SessionKind.WORKER, "spend", budget=Budget(tool_calls=1))
    await spender.result()


def record() -> None:
    """Write this release's golden journal and what it must replay to."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        tree_id = asyncio.run(play(place))
        with Journal.open(place / "state", read_only=True) as journal:
            out = io.StringIO()
            journal.export(tree_id, out)
    summary = summary_of(out.getvalue().splitlines(keepends=True))
    GOLDEN.write_text(out.getvalue())
    GOLDEN.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    record()

"""One turn of a session, with the machine that every session has and nothing around it: read this first.

A session is a state, a list of facts, and two functions. ``react`` decides: it takes a stimulus, and returns
facts (what happened) and instructions (what is to be done now). ``evolve`` applies a fact to the state and
decides nothing. All rules are in the first one. A host only carries out instructions and reports back.

Here the host is the class below. It has a model that follows a script, one tool that writes a file, and a
journal in memory. A call that changes something is carried out in this order:

1. the reply of the model is a fact;  2. the call is checked;  3. the intent to run it is a fact, and durable;
4. the tool runs;  5. the result is a fact;  6. the model is asked again.

So a host may end at any moment. ``resume`` makes a new one from the facts alone. Without an intent the call
has not run, and runs now. With a result it has run, and does not run again. With an intent and no result
nobody can know, so it does not run again: its result says that it may have run.

The real host is ``sessiontree/runtime/runner/driver.py``. It does the same with tools in parallel, approvals,
a supervisor in another process and an SQLite journal.

Run it: ``python docs/examples/one_turn.py``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.jsonable import compute_digest
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage
from sessiontree.session import instructions
from sessiontree.session.decide import react
from sessiontree.session.evolve import evolve
from sessiontree.session.state import make_initial_state

SPEC = SessionSpec(
    session_id="main/b1", kind=SessionKind.BRANCH, parent="main", depth=1, agent="default",
    task="Write a greeting into hello.txt.", label=None, via="model", tools=("write",), result_schema=None,
    rules=(), approver=None, owns_channel=False, budget=None, key=None,
)  # fmt: skip
REPLIES = (
    AssistantMessage((ToolCall("c1", "write", {"path": "hello.txt", "text": "Hello.\n"}),), "toolUse"),
    AssistantMessage((TextContent("hello.txt has a greeting."),)),
)


class Ended(Exception):
    """The host has ended: nothing of it is left but the journal."""


class Host:
    """Carries out what the machine of one session decides."""

    def __init__(self, workspace: Path, journal: list[SessionFact], end_at: str = "") -> None:
        self.workspace, self.journal, self.end_at = workspace, journal, end_at
        self.at_ms = 0
        self.state = make_initial_state(SPEC, Limits())
        for fact in journal:  # a new host knows what the journal knows, and nothing else
            evolve(self.state, fact)

    def run(self) -> None:
        """Let the session work until nothing is left to do."""
        has_begun = bool(self.journal)
        self.take(stimuli.Adopted(self.at_ms, SPEC.tools, "script", "You write files."))
        if has_begun:
            self.take(stimuli.Recovered(self.at_ms))

    def take(self, stimulus: stimuli.Stimulus) -> None:
        """Give the machine a stimulus; keep its facts first, and carry out its instructions afterwards."""
        facts, decided = react(self.state, stimulus)
        for fact in facts:
            self.journal.append(fact)
            print(f"  fact: {type(fact).__name__} {getattr(fact, 'outcome', '')}".rstrip())
        for instruction in decided:
            self.at_ms += 1
            self.carry_out(instruction)

    def carry_out(self, instruction: instructions.SessionInstruction) -> None:
        """Do one thing, and give the machine what came of it."""
        name = type(instruction).__name__
        print(f"do: {name}")
        if name == self.end_at:
            raise Ended
        match instruction:
            case instructions.CallModel(turn):
                self.take(stimuli.ModelAnswered(self.at_ms, turn, REPLIES[turn - 1]))
            case instructions.PrepareCall(key, call):  # the one place for schema, policy, tier and hooks
                digest = compute_digest(call.name, call.arguments)
                tier = int(PermissionTier.WORKSPACE)
                checked = CheckedCall(key, call.name, call.arguments, digest, tier, repeatable=False)
                self.take(stimuli.CallPrepared(self.at_ms, checked, needs_approval=False))
            case instructions.AwaitCommit(keys):  # in a list an intent is durable at once
                self.take(stimuli.IntentsCommitted(self.at_ms, keys))
            case instructions.ExecuteCall(call_id, checked):
                self.write(call_id, checked)

    def write(self, call_id: str, checked: CheckedCall) -> None:
        """The only tool: put a file in place."""
        path = self.workspace / str(checked.arguments["path"])
        path.write_text(str(checked.arguments["text"]), "utf-8")
        print(f"  effect: {path.name} is written")
        if self.end_at == "result":
            raise Ended
        result = ToolResultMessage(call_id, checked.tool, (TextContent("done"),))
        self.take(stimuli.CallFinished(self.at_ms, checked.key, "ok", result))


def main(workspace: Path) -> None:
    """Run the turn whole, and with a host that ends before the effect and right after it."""
    for title, end_at in (
        ("A host that lives", ""),
        ("A host that ends before the intent", "PrepareCall"),
        ("A host that ends between the effect and its result", "result"),
    ):
        print(f"# {title}")
        journal: list[SessionFact] = []
        try:
            Host(workspace, journal, end_at).run()
        except Ended:
            print("-- the host ends; another one resumes from the facts")
            Host(workspace, journal).run()


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))

"""What a long conversation costs in the journal and on the way to the gateway, turn after turn.

A session on the local backend takes in 200,000 tokens (at 4 characters each). Then its model, which the
gateway asks, is called 25, 50 and 100 times with one ReadOnly call a turn. Everything is counted from the
first of these calls on. Each length is a tree of its own, in turn, for three rounds. Linear is a ratio of 2.

- `journal_bytes_N`, `seconds_N`: texts of the session's facts, and the time from `send` to its reply, for N
  calls (seconds: median of the rounds).
- `bytes_ratio`, `seconds_ratio`: of 100 calls over 50.
- `context_tokens`: the conversation's tokens when the calls begin.
- `whole_bytes`: a question with the whole conversation, as a host sends it to the gateway's process.
- `question_bytes`, `question_last_bytes`: the median question of a turn, and the last one: pickled, as Ray
  sends it.
- `compaction_bytes`: the question for a summary; `compacted_bytes`: the next question, with the summary.
- `file_mib`: the journal's file after 100 calls, with the whole conversation.
"""

from __future__ import annotations

import asyncio
import pickle
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.journal import SPEC
from benchmarks.places import places
from benchmarks.report import Figure, Options, read_options, show
from sessiontree import AsyncFunctionModel, Limits, ModelRequest, SessionTree, script_call
from sessiontree.contracts.facts.session_facts import ContextCompacted, SessionFact, TurnFailed, TurnStarted
from sessiontree.contracts.tools.agent import CHARS_PER_TOKEN, AgentConfig
from sessiontree.contracts.values.messages import NOTHING_USED, TextContent, UserMessage
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.journal.journal import Journal
from sessiontree.journal.replay import read_facts
from sessiontree.models.answers import Answer
from sessiontree.runtime.runner.model_requests import ModelRequestBuilder
from sessiontree.runtime.transport.frames import AskModel
from sessiontree.session.compaction import begin
from sessiontree.session.evolve import evolve
from sessiontree.session.state import SessionState, make_initial_state

TOKENS, QUICK_TOKENS = 200_000, 20_000
CALLS: Final = (25, 50, 100)
ROUNDS, QUICK_ROUNDS = 3, 1
FILLING: Final = 20
"""Messages that the conversation is filled with."""
LIMITS: Final = Limits(max_turns=1_000)
WORK: Final = "work"


@dataclass(frozen=True, slots=True)
class Run:
    """One tree's figures."""

    seconds: float
    journal_bytes: int
    file_bytes: int
    facts: list[SessionFact]


async def reply(request: ModelRequest) -> Answer:
    """Call a tool in every turn of the work, as often as its message says; answer everything else at once."""
    last = max(at for at, each in enumerate(request.messages) if isinstance(each, UserMessage))
    word, _, count = request.messages[last].text.partition(" ")
    done = (len(request.messages) - last - 1) // 2
    if word == WORK and done < int(count) - 1:
        return script_call("read", path="a.txt", offset=done + 1)
    return "done"


async def measured(calls: int, tokens: int) -> Run:
    """Fill a conversation, let the model be called, and read the journal."""
    with places() as (workspace, state):
        workspace.joinpath("a.txt").write_text("".join(f"line {n}\n" for n in range(2 * max(CALLS))))
        model = AsyncFunctionModel(reply)
        tree = SessionTree(workspace, model=model, limits=LIMITS, state_dir=state, backend="local")
        async with tree:
            for number in range(FILLING):
                await tree.main.send(f"{number} ".ljust(tokens * CHARS_PER_TOKEN // FILLING, "x"))
            began = time.perf_counter()
            await tree.main.send(f"{WORK} {calls}")
            seconds = time.perf_counter() - began
        texts = facts_of_main(state, tree.tree_id)
        size = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
    parts = [read_facts(text) for text in texts]
    begin = max(at for at, facts in enumerate(parts) if any(_takes_messages(fact) for fact in facts))
    own = [fact for facts in parts for fact in facts]
    return Run(seconds, sum(len(text.encode()) for text in texts[begin:]), size, own)


def _takes_messages(fact: object) -> bool:
    return isinstance(fact, TurnStarted) and fact.took > 0


def facts_of_main(state: Path, tree_id: str) -> list[str]:
    """Return the texts of Main's facts."""
    texts: list[str] = []
    after_seq = 0
    with Journal.open(state, read_only=True) as journal:
        while records := journal.read_session(tree_id, "main", after_seq=after_seq, max_n=1_000):
            texts += [record.text for record in records]
            after_seq = records[-1].seq
    return texts


def sent(asked: AskModel) -> int:
    """Return the bytes of a question on its way to the gateway's process."""
    return len(pickle.dumps(asked, protocol=5))


def replayed(facts: Sequence[SessionFact]) -> tuple[SessionState, ModelRequestBuilder, Iterator[int]]:
    """Return a session, what builds its questions, and their bytes, counted while its facts are applied."""
    state = make_initial_state(SPEC, LIMITS)
    builder = ModelRequestBuilder(
        ToolTable(()), frozenset(), AgentConfig(), "m", None, lambda askers: frozenset()
    )

    def questions() -> Iterator[int]:
        for fact in facts:
            evolve(state, fact)
            if isinstance(fact, TurnStarted):
                yield sent(builder.question(state))

    return state, builder, questions()


def gateway_bytes(facts: Sequence[SessionFact]) -> dict[str, Figure]:
    """Return the bytes of questions: of turns, of the whole conversation, and around a compaction."""
    state, builder, questions = replayed(facts)
    turns = [*questions][FILLING + 1 :]
    turn = state.turn
    builder.forget()
    whole = sent(builder.question(state))
    evolve(state, TurnFailed(turn, "too long", overflow=True))
    begun = begin(state)
    assert begun is not None, "a long conversation can be compacted"
    evolve(state, begun)
    asked = sent(builder.question(state))
    summary = UserMessage((TextContent("so far " * 500),), 0, "notice")
    evolve(state, ContextCompacted(begun.turn, begun.upto, begun.kept, summary, NOTHING_USED))
    return {
        "whole_bytes": whole,
        "question_bytes": int(statistics.median(turns)),
        "question_last_bytes": turns[-1],
        "compaction_bytes": asked,
        "compacted_bytes": sent(builder.question(state)),
    }


async def measure(options: Options) -> dict[str, Figure]:
    """Return the figures; the lengths are measured in turn."""
    tokens = QUICK_TOKENS if options.quick else TOKENS
    runs: dict[int, list[Run]] = {calls: [] for calls in CALLS}
    for _ in range(QUICK_ROUNDS if options.quick else ROUNDS):
        for calls in CALLS:
            runs[calls].append(await measured(calls, tokens))
    longest = runs[CALLS[-1]][-1]
    figures: dict[str, Figure] = {"context_tokens": tokens}
    for calls, made in runs.items():
        figures[f"journal_bytes_{calls}"] = made[-1].journal_bytes
        figures[f"seconds_{calls}"] = statistics.median(run.seconds for run in made)
    half = runs[CALLS[1]]
    figures["bytes_ratio"] = longest.journal_bytes / half[-1].journal_bytes
    figures["seconds_ratio"] = statistics.median(run.seconds for run in runs[CALLS[-1]]) / statistics.median(
        run.seconds for run in half
    )
    figures["file_mib"] = longest.file_bytes / 2**20
    return figures | gateway_bytes(longest.facts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options("What a long conversation costs in the journal and on its way.", arguments)
    show(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    main()

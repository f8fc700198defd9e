"""Children that a fork replaces: which may be replaced, and to where their parents go back. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.rewind import (
    AwaitedAgain,
    ReplacedChild,
    Rewind,
    RewoundProgram,
    ServedAnswer,
)
from sessiontree.contracts.facts.session_facts import (
    CallResolved,
    ChildReported,
    MessageReceived,
    ProgramAdvanced,
    ProgramStarted,
    SessionForked,
    TurnReplied,
)
from sessiontree.contracts.facts.stimuli import Incoming
from sessiontree.contracts.facts.tree_facts import Posted, SessionEnded, TreeFact
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.programs import is_of_program
from sessiontree.contracts.settings.settings import suggest_names
from sessiontree.contracts.values.jsonable import compute_digest
from sessiontree.contracts.values.messages import AssistantMessage, ToolResultMessage, UserMessage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import MAIN, SessionIds
from sessiontree.session.state import SessionState
from sessiontree.tree.state.state import TreeState


def check_replaced(state: TreeState, tasks: Mapping[str, str]) -> None:
    """Refuse replacements that make no sense.

    Raises:
        ConfigError: a session is unknown, is Main, has not ended, had a workspace of its own, is above
            another one, or its parent has ended; or a task is empty.
    """
    for name in tasks:
        above = next((other for other in tasks if name.startswith(f"{other}/")), None)
        if above is not None:
            raise ConfigError(
                f"replace: {name} is below {above}, which is replaced with all below it; name one"
            )
    for name, task in tasks.items():
        node = state.sessions.get(name)
        if node is None:
            known = [each for each, _ in state.sessions.items()]
            raise ConfigError(
                f"replace: the tree has no session {name!r} there; {suggest_names(name, known)}"
            )
        if name == MAIN:
            raise ConfigError("replace: main has no parent that waits for it; fork, and send it a message")
        if not isinstance(task, str) or not task.strip():
            raise ConfigError(f"replace: the new task of {name} is {task!r}; give text with something in it")
        if node.is_live:
            raise ConfigError(f"replace: {name} has not ended there; fork at a fact after its end")
        if node.spec.copy is not None:
            raise ConfigError(f"replace: {name} had a workspace of its own, which a fork does not have")
        parent = node.spec.parent or MAIN
        if not state.sessions[parent].is_live:
            raise ConfigError(f"replace: {parent}, the parent of {name}, has ended; replace {parent} itself")


@dataclass(slots=True)
class _Recorded:
    """What a parent recorded of its programs and of reports of replaced children."""

    reports: dict[str, str]
    """Ids of the reports' posts to the replaced children."""
    started: dict[str, ProgramStarted] = field(default_factory=dict)
    asked: dict[str, list[str]] = field(default_factory=dict)
    """Digests of a program's calls by their numbers."""
    answers: dict[str, list[CallResolved]] = field(default_factory=dict)
    replies: dict[str, AssistantMessage] = field(default_factory=dict)
    """By the turn."""
    by_program: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Replaced children to the key of the program that used their reports, and the number of its call."""
    by_model: dict[str, UserMessage] = field(default_factory=dict)
    """Replaced children to the messages with their reports."""

    def take(self, fact: Any) -> None:
        """Take a fact of the parent in, each once and in order."""
        match fact:
            case TurnReplied(turn=turn, message=message):
                self.replies[str(turn)] = message
            case ProgramStarted(call=call):
                self.started[call.key] = fact
                self._begin(call.key)
            case SessionForked(rewind=Rewind(program=RewoundProgram(call=call))):
                self._begin(call.key)
            case ProgramAdvanced(key=key, calls=calls):
                self.asked[key] += [compute_digest(each.tool, each.arguments) for each in calls]
            case CallResolved(key=key) if is_of_program(key):
                self.answers[key.rpartition("/")[0]].append(fact)
            case ChildReported(key=key, message_id=post) if post in self.reports:
                program, _, number = key.rpartition("/")
                self.by_program[self.reports[post]] = (program, int(number))
            case MessageReceived(message_id=post, message=message) if post in self.reports:
                self.by_model[self.reports[post]] = message
            case _:
                pass

    def _begin(self, key: str) -> None:
        self.asked[key], self.answers[key] = [], []


def find_reports(facts: Sequence[TreeFact], tasks: Mapping[str, str]) -> dict[str, str]:
    """Return by the id of its post which replaced child a report to a parent is of."""
    found: dict[str, str] = {}
    ended = ""
    for fact in facts:
        if isinstance(fact, SessionEnded):
            ended = fact.session
        elif isinstance(fact, Posted):
            mail = fact.stimulus
            if ended in tasks and isinstance(mail, Incoming) and mail.origin == "child":
                found[fact.post_id] = ended
            ended = ""
    return found


def compute_rewind(
    parent: str,
    state: SessionState,
    facts: Sequence[Any],
    reports: Mapping[str, str],
    keys: Mapping[str, str],
    awaits: Sequence[tuple[str, str]] = (),
) -> Rewind:
    """Return to where a parent goes back, whose replaced children reported to it.

    Args:
        parent: Its id.
        state: Its state at the fork.
        facts: Its facts.
        reports: Ids of the posts with the reports of its replaced children, to these children.
        keys: Those children to the keys of the new ones' spawns.
        awaits: Ids by which other children report, and the keys of its programs' calls that wait for them.

    Raises:
        ConfigError: it can't go back there.
    """
    recorded = _Recorded(dict(reports))
    for fact in facts:
        recorded.take(fact)
    missing = [each for each in reports.values() if each not in {**recorded.by_program, **recorded.by_model}]
    if missing:
        raise ConfigError(f"replace: {parent} has not taken in the report of {missing[0]}; fork later")
    programs = {program for program, _ in recorded.by_program.values()}
    if (recorded.by_model and programs) or len(programs) > 1:
        raise ConfigError(
            f"replace: {parent} used the reports of {', '.join(sorted(keys))} in different places; "
            "replace one after the other"
        )
    program = next(iter(programs), "")
    busy = [
        key for key in state.calls if not program or (key != program and not key.startswith(f"{program}/"))
    ]
    if busy:
        raise ConfigError(
            f"replace: call {busy[0]} of {parent} is open there; fork at a fact at which it has its result"
        )
    if program:
        found = _rewind_to_program(parent, state, recorded, program, keys)
        return replace(found, program=_add_awaited(found.program, recorded, awaits))
    return _rewind_before_reports(parent, state, recorded)


def _rewind_to_program(
    parent: str, state: SessionState, recorded: _Recorded, key: str, keys: Mapping[str, str]
) -> Rewind:
    """Return the rewind to the start of a program, with its recorded answers but for replaced children."""
    if is_of_program(key):
        raise ConfigError(
            f"replace: the program {key} of {parent} is part of another program; replace the session"
        )
    made_in = recorded.replies[key.partition(".")[0]]
    upto = _find_place(parent, state, made_in) + 1
    replaced = {number: child for child, (_, number) in recorded.by_program.items()}
    digests = recorded.asked[key]
    results = [*state.results.values()]
    for message in state.transcript[upto:]:
        if not isinstance(message, ToolResultMessage):
            break
        results.append(message)
    started = recorded.started[key]
    index = int(key.partition(".")[2])
    own = made_in.tool_calls[index].id
    served = [
        ServedAnswer(number, digests[number], fact.outcome, fact.message, fact.is_json, fact.untrusted)
        for fact in recorded.answers[key]
        for number in [int(fact.key.rpartition("/")[2])]
        if number not in replaced
    ]
    awaited = [
        AwaitedAgain(number, digests[number], keys[child]) for number, child in sorted(replaced.items())
    ]
    others = [each for each in results if isinstance(each, ToolResultMessage) and each.tool_call_id != own]
    call: CheckedCall = started.call
    program = RewoundProgram(call, started.at_ms, tuple(others), tuple(served), tuple(awaited))
    return Rewind(upto, (), program)


def _add_awaited(
    program: RewoundProgram | None, recorded: _Recorded, awaits: Sequence[tuple[str, str]]
) -> RewoundProgram | None:
    """Return a program that also waits for the children which have not reported to it yet."""
    if program is None:
        return None
    own = [(call_id, key.rpartition("/")) for call_id, key in awaits]
    waiting = [
        AwaitedAgain(int(number), recorded.asked[made_by][int(number)], call_id)
        for call_id, (made_by, _, number) in own
        if made_by == program.call.key
    ]
    return replace(program, awaited=(*program.awaited, *waiting))


def _rewind_before_reports(parent: str, state: SessionState, recorded: _Recorded) -> Rewind:
    """Return the rewind to before the first report; what others sent later follows."""
    replaced = list(recorded.by_model.values())
    upto = min(_find_place(parent, state, message) for message in replaced)
    later = tuple(
        message
        for message in state.transcript[upto:]
        if isinstance(message, UserMessage) and message.origin != "notice" and message not in replaced
    )
    return Rewind(upto, later)


def _find_place(parent: str, state: SessionState, wanted: Any) -> int:
    first = 0 if state.summary_at is None else state.summary_at + 1
    for at in range(len(state.transcript) - 1, first - 1, -1):
        if state.transcript[at] == wanted:
            return at
    raise ConfigError(
        f"replace: the conversation of {parent} was compacted since, or the report waits for its next turn; "
        "fork at another fact"
    )


def make_keys(ids: SessionIds, names: Sequence[str]) -> dict[str, str]:
    """Return keys for the spawns of the children that replace others of one parent."""
    return {name: ids.call(f"replaces {name}") for name in names}


def list_replaced(tasks: Mapping[str, str], keys: Mapping[str, str]) -> tuple[ReplacedChild, ...]:
    """Return the replaced children with their new tasks, in the order given."""
    return tuple(ReplacedChild(name, task, keys[name]) for name, task in tasks.items())

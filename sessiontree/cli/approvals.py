"""The command ``sessiontree approvals``: lists requests and questions, and answers them from another process.

They are read from the journal, with or without a live runtime, and shown to a person one after the other. An
answer typed here takes effect in a live runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sessiontree.channels.question_text import format_item, parse_line
from sessiontree.cli.connect import HOW_TO_RESUME, follow_facts, open_tree
from sessiontree.cli.request_queue import SAID_NO, AnsweredLine, Asked, RequestQueue, get_id, request_text
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import (
    TreeReport,
    complete_tree_id,
    find_journal,
    find_newest_tree,
    find_state_dir,
    read_tree,
)
from sessiontree.cli.typed_lines import TypedLines, run_jobs
from sessiontree.contracts.errors import AnswerTooLate, ConfigError, ValidationError
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalWaiting,
    ClientCallEnded,
    ClientCallOpened,
)
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest, describe_decision
from sessiontree.contracts.recorded.client_calls import read_question
from sessiontree.contracts.recorded.questions import QuestionAnswer, QuestionReply, QuestionRequest, Surface
from sessiontree.contracts.values.jsonable import dump_json, dump_readable
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.control.client import ControlClient
from sessiontree.journal.claim import list_journal_dirs
from sessiontree.journal.journal import Journal
from sessiontree.tree.report import show_request


class ApprovalPrompt:
    """Shows a person the waiting requests of some trees of a runtime, and submits their answers.

    Args:
        client: The runtime.
        screen: Where it is shown.
        names_trees: Whether to say which tree each request is of.
    """

    def __init__(self, client: ControlClient, screen: RichScreen, *, names_trees: bool = False) -> None:
        self._client = client
        self._screen = screen
        self._asked = RequestQueue(screen.line, names_tree=names_trees)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to ask."""
        return self._asked.is_done

    async def begin(self, tree_id: str) -> int:
        """Ask for the waiting requests of a tree; return the number after which its facts must be read."""
        # Before the requests are listed: one that comes in between is listed and followed, and asked only
        # once.
        after_seq = await self._client.supervisor.last_seq(tree_id)
        for request in await self._client.supervisor.pending(tree_id):
            self._asked.add(tree_id, request)
        for question in await self._client.supervisor.list_pending_questions(tree_id):
            self._asked.add(tree_id, question)
        return after_seq

    async def take_fact(self, tree_id: str, fact: Any) -> None:
        """Process a fact of a tree: a request that now waits, or one that was decided."""
        if isinstance(fact, ApprovalWaiting) and fact.how == "show":
            request = await self._client.supervisor.shown(tree_id, fact.request_id)
            if request is not None:
                self._asked.add(tree_id, request)
        elif isinstance(fact, ApprovalDecided):
            self._asked.withdraw(tree_id, fact.request_id, describe_decision(fact.decision, fact.by))
        elif isinstance(fact, ClientCallOpened) and (question := read_question(fact.call)) is not None:
            self._asked.add(tree_id, question)
        elif isinstance(fact, ClientCallEnded):
            self._asked.withdraw(tree_id, fact.client_id, end_words(fact))

    async def take(self, line: str) -> bool:
        """Take a line; False where it is not an answer to anything asked here."""
        taken = self._asked.take(line)
        if isinstance(taken, AnsweredLine):
            try:
                tree_id, request, answer = taken
                self._screen.line(await give(self._client, tree_id, get_id(request), answer, request))
            except AnswerTooLate as closed:
                self._screen.line(f"too late: {closed}")
            except ValidationError as refused:
                self._screen.line(str(refused))
            finally:
                # In any case: a request whose answer was refused must not hold up those behind it.
                self._asked.settle(taken)
        return taken is not None


SURFACE: Surface = "terminal"
"""Where whoever uses a command answers, for the journal."""


async def give(
    client: ControlClient,
    tree_id: str,
    request_id: str,
    answer: ApprovalAnswer | QuestionReply,
    request: Asked | None,
) -> str:
    """Answer a request or a question and return what was done, in words.

    Raises:
        AnswerTooLate: it was decided or answered before.
        ValidationError: an answer does not fit its question.
    """
    if isinstance(answer, QuestionReply):
        # Made here, so that an answer that is sent twice over a bad connection counts once.
        answer_id = secrets.token_hex(16)
        await client.supervisor.answer_question(tree_id, request_id, answer, answer_id, surface=SURFACE)
        return "answered" if request is None else f"answered: {request.session_id} ({request_id})"
    await client.supervisor.decide(tree_id, request_id, answer, surface=SURFACE)
    what = "denied" if not answer.approve else "approved, from now on always" if answer.always else "approved"
    if not isinstance(request, ApprovalRequest):
        return what
    return f"{what}: {request.tool} for {request.session_id} ({request_id})"


def end_words(ended: ClientCallEnded) -> str:
    """Return how a question ended."""
    if ended.answer_id:
        return f"answered by {ended.by}"
    return "nobody answered in time" if ended.how == "timeout" else "its session does not wait any more"


@dataclass(frozen=True, slots=True)
class _Listed:
    """A request as recorded in the journal."""

    members: dict[str, Any]
    shown: ApprovalRequest | None
    """The request as shown to a person; None if it does not wait for one."""


def show_listed(
    screen: RichScreen,
    place: Path,
    trees: Mapping[Path, Iterable[str]],
    live: Sequence[str],
    as_json: bool,
    everything: bool,
) -> None:
    """Show the requests and questions in the journal.

    Args:
        screen: Where it is shown.
        place: The state directory.
        trees: Ids of the trees, by the directory of their journal.
        live: Ids of those that a runtime has open.
        as_json: Whether a program reads it.
        everything: Whether to show every request there ever was, not only those that wait for a person.

    Raises:
        JournalError: the journal or the tree does not exist or can't be read.
    """
    listed: list[_Listed] = []
    questions: list[tuple[str, QuestionRequest]] = []
    for directory, names in trees.items():
        with Journal.open(directory, read_only=True) as journal:
            for tree in names:
                portrait = read_tree(journal, tree)
                listed += _list_requests(portrait, tree, everything)
                calls = portrait.state.client_calls.values()
                questions += [(tree, asked) for call in calls if (asked := read_question(call)) is not None]
    if as_json:
        members = [each.members for each in listed]
        open_ones = [_describe_question(tree, question) for tree, question in questions]
        listing = {"state_dir": str(place), "live": list(live), "approvals": members, "questions": open_ones}
        screen.raw(dump_json(listing))
        return
    _show_requests(screen, listed, everything)
    for tree, question in questions:
        for line in (*request_text(question, tree), *map(format_item, question.items)):
            screen.line(line)
    waiting = [each for each in listed if each.shown is not None]
    screen.line(f"{len(waiting)} of {len(listed)} wait for a person" if everything else _count(waiting))
    if questions:
        screen.line(f"{len(questions)} questions wait for a person" if len(questions) > 1 else _ONE_QUESTION)
    asking = {each.members["tree"] for each in waiting} | {tree for tree, _ in questions}
    for tree in sorted(asking - set(live)):
        screen.line(f"requests can't be answered: no runtime has tree {tree} open; {HOW_TO_RESUME}")


def _show_requests(screen: RichScreen, listed: Sequence[_Listed], everything: bool) -> None:
    if everything:
        screen.table(
            ("request", "of", "approval for", "decision", "by", "arguments"),
            [_build_row(each) for each in listed],
        )
    else:
        for each in listed:
            for line in [] if each.shown is None else request_text(each.shown, each.members["tree"]):
                screen.line(line)


_ONE_QUESTION = "1 question waits for a person"


def _describe_question(tree_id: str, question: QuestionRequest) -> dict[str, Any]:
    return {
        "tree": tree_id,
        "question_id": question.question_id,
        "session": question.session_id,
        "items": [item.model_dump(mode="json") for item in question.items],
        "asked_at_ms": question.asked_at_ms,
        "expires_at_ms": question.expires_at_ms,
        "asked": question.asked,
    }


def _list_requests(portrait: TreeReport, tree_id: str, everything: bool) -> list[_Listed]:
    listed = []
    for line, members in zip(portrait.approvals, portrait.to_json()["approvals"], strict=True):
        shown = show_request(portrait.state, line.asked.question.request_id)
        if shown is not None or everything:
            asked = None if shown is None else shown.asked
            more = {"expires_at_ms": line.asked.expires_at_ms, "asked": asked}
            listed.append(_Listed({"tree": tree_id, **members, **more}, shown))
    return listed


def _build_row(listed: _Listed) -> tuple[str, ...]:
    given = listed.members
    arguments = dump_readable(given["arguments"])
    return (
        given["request_id"], given["session"], given["tool"], given["decision"], given["by"], arguments
    )  # fmt: skip


def _count(waiting: Sequence[_Listed]) -> str:
    return (
        f"{len(waiting)} requests wait for a person" if len(waiting) != 1 else "1 request waits for a person"
    )


@dataclass(frozen=True, slots=True)
class ApprovalAction:
    """The requested action on requests."""

    as_json: bool = False
    approve: str | None = None
    deny: str | None = None
    forget: str | None = None
    """The request whose denial is lifted."""
    answer_id: str | None = None
    """The question to answer."""
    text: Sequence[str] | None = None
    """The answers to the question, one for each of its parts."""
    reason: str | None = None
    everything: bool = False
    """Show those that were decided, too."""
    watch: bool = False

    def check(self) -> None:
        """Check that the options fit together.

        Raises:
            ConfigError: two actions are given, or a reason without an answer.
        """
        chosen = [
            name
            for name, given in (
                ("--approve", self.approve),
                ("--deny", self.deny),
                ("--forget", self.forget),
                ("--answer", self.answer_id),
                ("--all", self.everything),
                ("--watch", self.watch),
            )
            if given not in {None, False}
        ]
        if len(chosen) > 1:
            raise ConfigError(f"{' and '.join(chosen)} exclude each other; give one of them")
        if self.reason is not None and self.answered is None:
            raise ConfigError("--reason says why a request is answered; give --approve or --deny with it")
        if bool(self.text) != (self.answer_id is not None):
            raise ConfigError("--answer names a question, and --text the answer: give both")
        if self.watch and self.as_json:
            raise ConfigError("--watch asks a person; programs watch with `sessiontree tree --follow --json`")

    @property
    def answered(self) -> str | None:
        """The request to answer."""
        return self.approve if self.approve is not None else self.deny

    @property
    def decision(self) -> str:
        """What the answer does, in a word."""
        if self.answer_id is not None:
            return "answered"
        return "approved" if self.approve is not None else "denied"

    def answer_to(self, asked: Asked | None) -> ApprovalAnswer | QuestionReply:
        """Return the answer to give.

        Raises:
            ConfigError: its texts do not fit the question.
        """
        if self.answer_id is not None:
            return _reply(asked, self.text or ()) if isinstance(asked, QuestionRequest) else QuestionReply(())
        if self.approve is not None:
            return ApprovalAnswer(approve=True, reason=self.reason or "")
        return ApprovalAnswer(approve=False, reason=self.reason or SAID_NO)


def approvals(
    screen: RichScreen, *, path: Path | None, state_dir: Path | None, tree_id: str | None, **options: Any
) -> int:
    """List requests, or have them answered, and return the exit code.

    Without a tree's id those of all open trees are meant, or of the newest where no runtime is at work. With
    ``as_json`` one object is printed: ``state_dir``, ``live`` (ids of the open trees) and ``approvals``, each
    of ``tree``, ``request_id``, ``session``, ``tool``, ``arguments``, ``tier``, ``asked_by`` (whom the
    call is for; empty = the program), ``asked_at_ms``, ``decision`` (``open`` while it waits), ``by``,
    ``reason``, ``expires_at_ms``, and ``asked`` (the session whose channel shows it, null where none does);
    and ``questions``, each of ``tree``, ``question_id``, ``session``, ``items``, ``asked_at_ms``,
    ``expires_at_ms`` and ``asked``. An answer given prints ``tree``, ``request_id`` and ``decision``.

    Args:
        screen: Where it is shown.
        path: The workspace; None = this directory.
        state_dir: Where the journal is; None = the workspace's own place.
        tree_id: The tree; None = all that are open.
        options: The members of :class:`ApprovalAction`.

    Raises:
        AnswerTooLate: the request to be answered does not exist or was decided before.
        TreeNotFound: nobody has the tree open, so that nothing can be answered.
        JournalError: the journal or the tree does not exist or can't be read.
        ConfigError: the options don't fit.
    """
    action = ApprovalAction(**options)
    action.check()
    place = find_state_dir(path, state_dir)
    tree_id = complete_tree_id(place, tree_id)
    return asyncio.run(_serve(screen, place, tree_id, action))


async def _serve(screen: RichScreen, place: Path, tree_id: str | None, action: ApprovalAction) -> int:
    dirs = list_journal_dirs(place) if tree_id is None else (find_journal(place, tree_id),)
    async with contextlib.AsyncExitStack() as stack:
        clients: dict[Path, ControlClient] = {}
        for each in dirs or (place,):
            client = await ControlClient.find(each)
            if client is not None:
                clients[each] = await stack.enter_async_context(client)
        live = {each: await client.supervisor.open_trees() for each, client in clients.items()}
        # Programs without open trees are left out, unless all of them are: then one of them says why.
        if len(live) > 1:
            live = {each: trees for each, trees in live.items() if trees} or live
        everybody = [tree for trees in live.values() for tree in trees]
        if action.forget is not None:
            await _forget(screen, clients, live, action)
        elif (action.answered or action.answer_id) is not None:
            waiting = await _find_waiting(clients, live, tree_id, action)
            if not waiting:
                client, trees = await _find_live_program(
                    clients, live, place, tree_id, next(iter(live), None)
                )
                waiting = [_RequestPlace(client, each, None) for each in trees]
            await _answer(screen, waiting, action)
        elif action.watch or (
            everybody and _is_at_terminal() and not action.as_json and not action.everything
        ):
            # A watch of one program does not end by itself, so the next program's requests would never be
            # shown.
            if action.watch and len(live) > 1:
                raise ConfigError(f"{len(live)} programs are at work, name a tree: {', '.join(everybody)}")
            for chosen in (*live,) or (None,):
                client, trees = await _find_live_program(clients, live, place, tree_id, chosen)
                await _ask(screen, client, trees, stays=action.watch)
        else:
            meant = live if tree_id is None and everybody else _find_trees(place, tree_id)
            show_listed(screen, place, meant, everybody, action.as_json, action.everything)
    return 0


async def _forget(
    screen: RichScreen,
    clients: Mapping[Path, ControlClient],
    live: Mapping[Path, Sequence[str]],
    action: ApprovalAction,
) -> None:
    """Lift the denial of the one request that is named, in whichever open tree it holds."""
    request_id = action.forget or ""
    closed = AnswerTooLate("approval", request_id, "unknown to this runtime")
    for place, trees in live.items():
        for tree in trees:
            try:
                await clients[place].supervisor.lift_denial(tree, request_id)
            except AnswerTooLate as error:
                # The tree that knows the request says more than those that don't.
                closed = closed if "unknown" in error.state else error
                continue
            if action.as_json:
                screen.raw(dump_json({"tree": tree, "request_id": request_id, "decision": "forgotten"}))
            else:
                screen.line(f"the denial of {request_id} is lifted: the same call is asked about again")
            return
    raise closed


def _reply(question: QuestionRequest, texts: Sequence[str]) -> QuestionReply:
    if len(texts) != len(question.items):
        raise ConfigError(f"--text: {len(texts)} given; give one for each of {len(question.items)} questions")
    answers: list[QuestionAnswer] = []
    for item, text in zip(question.items, texts, strict=True):
        answer = parse_line(item, text)
        if isinstance(answer, str):
            raise ConfigError(f"--text {text!r} is not an answer to {item.question!r} {answer}")
        answers.append(answer)
    return QuestionReply(tuple(answers))


async def _find_live_program(
    clients: Mapping[Path, ControlClient],
    live: Mapping[Path, Sequence[str]],
    place: Path,
    tree_id: str | None,
    chosen: Path | None,
) -> tuple[ControlClient, Sequence[str]]:
    """Return the program at work over a journal, and which of its trees are meant.

    Raises:
        SessionTreeError: no program has it open; says why.
    """
    client = None if chosen is None else clients[chosen]
    trees = () if chosen is None else live[chosen]
    if client is None or tree_id is not None or not trees:
        trees = [await open_tree(client, chosen or find_journal(place, tree_id), tree_id)]
    assert client is not None  # noqa: S101 - without a client no tree is open
    return client, trees


def _is_at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


@dataclass(frozen=True, slots=True)
class _RequestPlace:
    """A request or a question that waits, and where."""

    client: ControlClient
    tree_id: str
    asked: Asked | None
    """None = it does not wait, and an attempt to answer it says why."""


async def _find_waiting(
    clients: Mapping[Path, ControlClient],
    live: Mapping[Path, Sequence[str]],
    tree_id: str | None,
    action: ApprovalAction,
) -> list[_RequestPlace]:
    """Return where the request or the question waits that an action names.

    Args:
        clients: The programs at work, by their journals.
        live: Their trees.
        tree_id: The tree that is meant; None = all.
        action: What names it.
    """
    found = []
    for place, trees in live.items():
        for tree in trees if tree_id is None else [each for each in trees if each == tree_id]:
            supervisor = clients[place].supervisor
            asked: Asked | None
            if action.answer_id is None:
                asked = await supervisor.shown(tree, action.answered or "")
            else:
                questions = await supervisor.list_pending_questions(tree)
                asked = next((each for each in questions if each.question_id == action.answer_id), None)
            if asked is not None:
                found.append(_RequestPlace(clients[place], tree, asked))
    return found


async def _answer(screen: RichScreen, waiting: Sequence[_RequestPlace], action: ApprovalAction) -> None:
    """Answer the one request or question that is named.

    Args:
        screen: Where it is shown.
        waiting: Where it waits, or where it may have waited.
        action: What names it, and the answer.

    Raises:
        ConfigError: it waits in several trees.
        AnswerTooLate: it does not wait.
    """
    asked_id = action.answered or action.answer_id or ""
    if len([each for each in waiting if each.asked is not None]) > 1:
        raise ConfigError(f"{asked_id} waits in {len(waiting)} trees; name one of them with --tree")
    closed = AnswerTooLate(
        "question" if action.answer_id else "approval", asked_id, "unknown to this runtime"
    )
    for each in waiting:
        try:
            said = await give(each.client, each.tree_id, asked_id, action.answer_to(each.asked), each.asked)
        except AnswerTooLate as error:
            closed = closed if "unknown" in error.state else error
            continue
        if action.as_json:
            decision = {"tree": each.tree_id, "request_id": asked_id, "decision": action.decision}
            screen.raw(dump_json(decision))
        else:
            screen.line(said)
        return
    raise closed


async def _ask(screen: RichScreen, client: ControlClient, trees: Sequence[str], *, stays: bool) -> None:
    """Ask a person about what waits, and with ``stays`` about what comes, until nobody can be answered."""
    prompt = ApprovalPrompt(client, screen, names_trees=len(trees) > 1)
    with TypedLines(sys.stdin) as typed:
        after = {tree: await prompt.begin(tree) for tree in trees}
        if prompt.is_done:
            screen.line("nothing waits for an answer" + ("; what comes is asked here" if stays else ""))
        if stays or not prompt.is_done:
            watch = _ApprovalWatch(screen, client, prompt, stays)
            await run_jobs(watch.hear(typed), watch.follow(after))


class _ApprovalWatch:
    """Input from a person and facts of some trees, processed concurrently."""

    def __init__(
        self, screen: RichScreen, client: ControlClient, prompt: ApprovalPrompt, stays: bool
    ) -> None:
        self._screen = screen
        self._client = client
        self._prompt = prompt
        self._stays = stays

    @property
    def _is_over(self) -> bool:
        return self._prompt.is_done and not self._stays

    async def hear(self, typed: TypedLines) -> bool:
        """Take lines until everything is answered, or no more are typed."""
        while not self._is_over and (line := await typed.next()) is not None:
            if not await self._prompt.take(line):
                self._screen.line("(nothing is asked now)")
        return True

    async def follow(self, after: Mapping[str, int]) -> bool:
        """Follow all trees until everything is answered, or all were let go."""
        await run_jobs(*(self._heed(tree_id, seq) for tree_id, seq in after.items()))
        return True

    async def _heed(self, tree_id: str, after_seq: int) -> bool:
        async for fact in follow_facts(self._client, tree_id, after_seq):
            await self._prompt.take_fact(tree_id, fact)
            if self._is_over:
                return True
        self._screen.line(f"(tree {tree_id} was closed: its requests can't be answered any more)")
        return False


def _find_trees(place: Path, tree_id: str | None) -> dict[Path, list[str]]:
    directory = find_journal(place, tree_id)
    if tree_id is not None:
        return {directory: [tree_id]}
    with Journal.open(directory, read_only=True) as journal:
        return {directory: [find_newest_tree(journal, directory)]}

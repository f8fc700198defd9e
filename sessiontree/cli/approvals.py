"""The command ``sessiontree approvals``: lists requests, and answers them from another process.

Requests are read from the journal, with or without a live runtime; they are shown to a person one after the
other. An answer typed here becomes a decision in a live runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sessiontree.channels.safe_text import approval_text, question_text, refuse_always
from sessiontree.channels.terminal import LATER
from sessiontree.cli.connect import HOW_TO_RESUME, follow_facts, open_tree
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import find_journal, find_state_dir, newest_tree, read_tree, whole_tree_id
from sessiontree.cli.typed_lines import TypedLines, run_jobs
from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest, decision_words
from sessiontree.contracts.errors import AnswerTooLate, ConfigError
from sessiontree.contracts.jsonable import dump_json, dump_readable
from sessiontree.contracts.tree_facts import ApprovalDecided, ApprovalWaiting
from sessiontree.control.client import ControlClient
from sessiontree.journal.claim import journal_dirs
from sessiontree.journal.journal import Journal
from sessiontree.tree.report import request_of

SAID_NO = "said no at the terminal"
_YES = {"y": False, "yes": False, "a": True, "always": True}
"""Words that approve, and whether they also approve every later call of the tool."""
_NO = ("n", "no")


class AnsweredLine(NamedTuple):
    """A line that answered a request."""

    tree_id: str
    request: ApprovalRequest
    answer: ApprovalAnswer


class NoAnswer(NamedTuple):
    """A line that was meant for a request but is not an answer."""


class RequestQueue:
    """Requests that wait for one person, shown one at a time in the order they came.

    A line answers only the request that is on the screen: a line typed for a withdrawn request never
    answers the next one.

    Args:
        say: Shows a line.
        names_tree: Whether to say which tree a request is of.
    """

    def __init__(self, say: Callable[[str], None], *, names_tree: bool = False) -> None:
        self._say = say
        self._names_tree = names_tree
        self._waiting: dict[tuple[str, str], ApprovalRequest] = {}
        self._shown: tuple[str, str] | None = None
        self._answered: tuple[str, str] | None = None
        """The request whose answer was accepted and is in transit."""
        self._is_late = False
        """Whether the next answer may be meant for a request that was withdrawn."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to ask."""
        return not self._waiting

    def add(self, tree_id: str, request: ApprovalRequest) -> None:
        """Add a request; a known request is not asked twice."""
        self._waiting.setdefault((tree_id, request.request_id), request)
        self._show()

    def withdraw(self, tree_id: str, request_id: str, why: str) -> None:
        """Withdraw a decided request, unless the answer in transit from here decided it."""
        key = (tree_id, request_id)
        if key == self._answered:
            return  # it was decided from here
        if self._waiting.pop(key, None) is not None and self._shown == key:
            self._shown = None
            self._is_late = True
            self._say(f"(the question was withdrawn: {why})")
        self._show()

    def take(self, line: str) -> AnsweredLine | NoAnswer | None:
        """Take a line; return None if it is not for a request."""
        answer = parse_answer(line)
        is_put_off = line.strip().lower() in LATER
        if self._is_late:
            self._is_late = False
            if answer is not None or is_put_off:
                self._say("(that line was for the withdrawn question)")
                self._ask()
                return NoAnswer()
        if self._shown is None:
            return None
        if is_put_off:
            self._leave()
            return NoAnswer()
        problem = refuse_always(self._waiting[self._shown], answer)
        if problem:
            self._say(problem)
        if answer is None or problem:
            self._ask()
            return NoAnswer()
        key = self._answered = self._shown
        self._shown = None
        return AnsweredLine(key[0], self._waiting[key], answer)

    def _leave(self) -> None:
        """Go on to the next request: this one stays open, and is not asked about here again."""
        if self._shown is not None:
            self._say(f"(left open: {self._waiting.pop(self._shown).request_id})")
        self._shown = None
        self._show()

    def settle(self, answered: AnsweredLine) -> None:
        """Go on to the next request: this one's answer was given."""
        self._waiting.pop((answered.tree_id, answered.request.request_id), None)
        self._answered = None
        self._show()

    def _show(self) -> None:
        if self._shown is not None or self._answered is not None or not self._waiting:
            return
        self._shown = next(iter(self._waiting))
        for line in request_text(self._waiting[self._shown], self._shown[0] if self._names_tree else None):
            self._say(line)
        self._ask()

    def _ask(self) -> None:
        if self._shown is not None:
            self._say(question_text(self._waiting[self._shown]).rstrip())


def request_text(request: ApprovalRequest, tree_id: str | None = None) -> list[str]:
    """Return the text a person decides on, the tree named where it is given."""
    lines = approval_text(request).split("\n")
    return lines if tree_id is None else [*lines, f"  tree:      {tree_id}"]


def parse_answer(line: str) -> ApprovalAnswer | None:
    """Return the answer a line gives: ``y``, ``a``, or ``n`` with or without a reason; None for any other."""
    word, _, rest = line.strip().partition(" ")
    if word.lower() in _NO:
        return ApprovalAnswer(approve=False, reason=rest.strip() or SAID_NO)
    if word.lower() in _YES and not rest:
        return ApprovalAnswer(approve=True, always=_YES[word.lower()])
    return None


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
        after_seq = await self._client.supervisor.last_seq(tree_id)
        for request in await self._client.supervisor.pending(tree_id):
            self._asked.add(tree_id, request)
        return after_seq

    async def take_fact(self, tree_id: str, fact: Any) -> None:
        """Process a fact of a tree: a request that now waits, or one that was decided."""
        if isinstance(fact, ApprovalWaiting) and fact.how == "show":
            request = await self._client.supervisor.shown(tree_id, fact.request_id)
            if request is not None:
                self._asked.add(tree_id, request)
        elif isinstance(fact, ApprovalDecided):
            self._asked.withdraw(tree_id, fact.request_id, decision_words(fact.decision, fact.by))

    async def take(self, line: str) -> bool:
        """Take a line; False where it is not an answer to anything asked here."""
        taken = self._asked.take(line)
        if isinstance(taken, AnsweredLine):
            try:
                tree_id, request, answer = taken
                said = await decide(self._client, tree_id, request.request_id, answer, request)
                self._screen.line(said)
            except AnswerTooLate as closed:
                self._screen.line(f"too late: {closed}")
            finally:
                self._asked.settle(taken)
        return taken is not None


async def decide(
    client: ControlClient,
    tree_id: str,
    request_id: str,
    answer: ApprovalAnswer,
    request: ApprovalRequest | None,
) -> str:
    """Answer a request and return what was done, in words.

    Raises:
        AnswerTooLate: it was decided before.
    """
    await client.supervisor.decide(tree_id, request_id, answer)
    what = "denied" if not answer.approve else "approved, from now on always" if answer.always else "approved"
    return what if request is None else f"{what}: {request.tool} for {request.session_id} ({request_id})"


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
    """Show the requests in the journal.

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
    for directory, names in trees.items():
        with Journal.open(directory, read_only=True) as journal:
            listed += [each for tree in names for each in _requests(journal, tree, everything)]
    if as_json:
        members = [each.members for each in listed]
        screen.raw(dump_json({"state_dir": str(place), "live": list(live), "approvals": members}))
        return
    if everything:
        screen.table(
            ("request", "of", "approval for", "decision", "by", "arguments"), [_row(each) for each in listed]
        )
    else:
        for each in listed:
            for line in [] if each.shown is None else request_text(each.shown, each.members["tree"]):
                screen.line(line)
    waiting = [each for each in listed if each.shown is not None]
    screen.line(f"{len(waiting)} of {len(listed)} wait for a person" if everything else _count(waiting))
    for tree in sorted({each.members["tree"] for each in waiting} - set(live)):
        screen.line(f"requests can't be answered: no runtime has tree {tree} open; {HOW_TO_RESUME}")


def _requests(journal: Journal, tree_id: str, everything: bool) -> list[_Listed]:
    portrait = read_tree(journal, tree_id)
    listed = []
    for line, members in zip(portrait.approvals, portrait.to_json()["approvals"], strict=True):
        shown = request_of(portrait.state, line.asked.question.request_id)
        if shown is not None or everything:
            asked = None if shown is None else shown.asked
            more = {"expires_at_ms": line.asked.expires_at_ms, "asked": asked}
            listed.append(_Listed({"tree": tree_id, **members, **more}, shown))
    return listed


def _row(listed: _Listed) -> tuple[str, ...]:
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
                ("--all", self.everything),
                ("--watch", self.watch),
            )
            if given not in {None, False}
        ]
        if len(chosen) > 1:
            raise ConfigError(f"{' and '.join(chosen)} exclude each other; give one of them")
        if self.reason is not None and self.answered is None:
            raise ConfigError("--reason says why a request is answered; give --approve or --deny with it")
        if self.watch and self.as_json:
            raise ConfigError("--watch asks a person; programs watch with `sessiontree tree --follow --json`")

    @property
    def answered(self) -> str | None:
        """The request to answer."""
        return self.approve if self.approve is not None else self.deny

    @property
    def answer(self) -> ApprovalAnswer:
        """The answer to give."""
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
    ``reason``, ``expires_at_ms``, and ``asked`` (the session whose channel shows it, null where none does).
    An answer given prints ``tree``, ``request_id`` and ``decision``.

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
    tree_id = whole_tree_id(place, tree_id)
    return asyncio.run(_serve(screen, place, tree_id, action))


async def _serve(screen: RichScreen, place: Path, tree_id: str | None, action: ApprovalAction) -> int:
    dirs = journal_dirs(place) if tree_id is None else (find_journal(place, tree_id),)
    async with contextlib.AsyncExitStack() as stack:
        clients: dict[Path, ControlClient] = {}
        for each in dirs or (place,):
            client = await ControlClient.find(each)
            if client is not None:
                clients[each] = await stack.enter_async_context(client)
        live = {each: await client.supervisor.open_trees() for each, client in clients.items()}
        if len(live) > 1:
            live = {each: trees for each, trees in live.items() if trees} or live
        everybody = [tree for trees in live.values() for tree in trees]
        if action.forget is not None:
            await _forget(screen, clients, live, action)
        elif action.answered is not None:
            chosen = await _asked_in(clients, live, action.answered)
            client, trees = await _reached(clients, live, place, tree_id, chosen)
            await _answer(screen, client, trees, action)
        elif action.watch or (everybody and _at_terminal() and not action.as_json and not action.everything):
            if action.watch and len(live) > 1:
                raise ConfigError(f"{len(live)} programs are at work, name a tree: {', '.join(everybody)}")
            for chosen in (*live,) or (None,):
                client, trees = await _reached(clients, live, place, tree_id, chosen)
                await _ask(screen, client, trees, stays=action.watch)
        else:
            meant = live if tree_id is None and everybody else _named(place, tree_id)
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
                closed = closed if "unknown" in error.state else error
                continue
            if action.as_json:
                screen.raw(dump_json({"tree": tree, "request_id": request_id, "decision": "forgotten"}))
            else:
                screen.line(f"the denial of {request_id} is lifted: the same call is asked about again")
            return
    raise closed


async def _asked_in(
    clients: Mapping[Path, ControlClient], live: Mapping[Path, Sequence[str]], request_id: str
) -> Path | None:
    """Return the journal of the program where a request waits, else the first of those at work."""
    for each, trees in live.items():
        for tree in trees:
            if await clients[each].supervisor.shown(tree, request_id) is not None:
                return each
    return next(iter(live), None)


async def _reached(
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


def _at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


async def _answer(
    screen: RichScreen, client: ControlClient, trees: Sequence[str], action: ApprovalAction
) -> None:
    """Answer the one request that is named."""
    request_id = action.answered or ""
    shown = {tree: await client.supervisor.shown(tree, request_id) for tree in trees}
    waiting = [tree for tree, request in shown.items() if request is not None]
    if len(waiting) > 1:
        raise ConfigError(f"{request_id} waits in {len(waiting)} trees; name one of them with --tree")
    closed = AnswerTooLate("approval", request_id, "unknown to this runtime")
    for tree in waiting or trees:
        try:
            said = await decide(client, tree, request_id, action.answer, shown[tree])
        except AnswerTooLate as error:
            closed = closed if "unknown" in error.state else error
            continue
        decision = "approved" if action.answer.approve else "denied"
        if action.as_json:
            screen.raw(dump_json({"tree": tree, "request_id": request_id, "decision": decision}))
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


def _named(place: Path, tree_id: str | None) -> dict[Path, list[str]]:
    directory = find_journal(place, tree_id)
    if tree_id is not None:
        return {directory: [tree_id]}
    with Journal.open(directory, read_only=True) as journal:
        return {directory: [newest_tree(journal, directory)]}

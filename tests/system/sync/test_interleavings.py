"""In whatever order threads block and questions come, fail, nest or are interrupted: each is asked right."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.contracts.recorded.approvals import ApprovalRequest
from sessiontree.sync.bridge import Prompt, Prompts
from sessiontree.sync.portal import LoopThread
from tests.system.sync.tree_fixtures import PATIENCE_S

KINDS = ("plain", "raises", "interrupts", "nests", "withdrawn")
OVERLAP_S = 0.005
"""How long a question stays open for another to come in alongside it."""


@dataclass(frozen=True)
class Plan:
    """Which questions come, and after how many of them each caller blocks."""

    questions: tuple[str, ...]
    callers: tuple[int, ...]


plans = st.builds(
    Plan,
    st.lists(st.sampled_from(KINDS), max_size=6).map(tuple),
    st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple),
)


@pytest.fixture(autouse=True)
def nothing_left() -> None:
    """The loop is this module's, and goes with it."""


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    """A loop for the questions."""
    thread = LoopThread()
    yield thread
    thread.stop()
    assert not thread.thread.is_alive()


@dataclass
class Stage:
    """One run of a plan."""

    prompts: Prompts
    loop: LoopThread
    patience_s: float
    futures: list[Future[Any]] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    threads: set[int] = field(default_factory=set)
    callers: set[int] = field(default_factory=set)
    inside: set[int] = field(default_factory=set)
    is_crowded: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, name: str, kind: str) -> Future[Any]:
        """Let a question come."""

        def question(request: ApprovalRequest) -> str:
            return self.put(name, kind)

        future = self.loop.submit(self.prompts.ask, question, None)
        self.futures.append(future)
        return future

    def put(self, name: str, kind: str) -> str:
        """Be asked: note who, and do as the kind says."""
        here = threading.get_ident()
        with self.lock:
            self.asked[name] += 1
            self.threads.add(here)
            self.inside.add(here)
            self.is_crowded = self.is_crowded or len(self.inside) > 1
            times = self.asked[name]
        threading.Event().wait(OVERLAP_S)
        try:
            if kind == "raises":
                raise ValueError(name)
            if kind == "interrupts" and times == 1:
                raise KeyboardInterrupt
            if kind == "nests":
                inner = self.submit(f"{name}.inner", "plain")
                self.prompts.serve_until(inner)
                return f"{name}:{inner.result(0)}"
            return name
        finally:
            with self.lock:
                self.inside.discard(here)

    def block(self, release: Future[None]) -> None:
        """Block until released; an interrupted caller calls again."""
        with self.lock:
            self.callers.add(threading.get_ident())
        while not release.done():
            try:
                self.prompts.serve_until(release)
            except KeyboardInterrupt:
                continue

    def withdraw(self, name: str) -> None:
        """Let a question come and be withdrawn, with nobody to ask in between."""
        question = self.submit(name, "plain")
        self.loop.submit(lambda: None).result(self.patience_s)
        question.cancel()
        self.loop.submit(asyncio.sleep, 0).result(self.patience_s)

    def answered(self, name: str, kind: str, future: Future[Any]) -> None:
        """Wait for a question's answer, which must be its own."""
        try:
            answer = future.result(self.patience_s)
        except ValueError as error:
            assert (kind, str(error)) == ("raises", name)
        except TimeoutError:
            raise AssertionError(f"{name} ({kind}) was never answered") from None
        else:
            assert answer == (f"{name}:{name}.inner" if kind == "nests" else name)

    def check(self, plan: Plan) -> None:
        """How often each was asked, and where.

        An interrupted question is asked twice. The interrupt also ends whatever question it came up within,
        which then is asked again, too.
        """
        interrupts = plan.questions.count("interrupts")
        for number, kind in enumerate(plan.questions):
            least = {"withdrawn": 0, "interrupts": 2}.get(kind, 1)
            most = least + (interrupts if kind == "nests" else 0)
            assert least <= self.asked[f"{number}"] <= most, f"{number} ({kind})"
            inner = self.asked[f"{number}.inner"]
            assert (1 <= inner <= most) if kind == "nests" else inner == 0
        assert self.threads <= self.callers
        assert not self.is_crowded, "two threads were asked at a time"


def each_question_is_asked_as_it_must_be(
    made: type[Prompts], loop: LoopThread, plan: Plan, patience_s: float = PATIENCE_S
) -> None:
    """The property: every question is asked once, on one blocked thread at a time, for its asker."""
    stage = Stage(made(), loop, patience_s)
    release: Future[None] = Future()
    threads: list[threading.Thread] = []
    waiting: list[tuple[str, str, Future[Any]]] = []

    def begin(callers: int) -> None:
        for _ in range(callers):
            thread = threading.Thread(target=stage.block, args=(release,), daemon=True)
            threads.append(thread)
            thread.start()

    for number, kind in enumerate(plan.questions):
        if kind == "withdrawn":
            stage.withdraw(f"{number}")
    try:
        for number, kind in enumerate(plan.questions):
            begin(plan.callers.count(number))
            if kind != "withdrawn":
                waiting.append((f"{number}", kind, stage.submit(f"{number}", kind)))
        begin(sum(after >= len(plan.questions) for after in plan.callers))
        for name, kind, future in waiting:
            stage.answered(name, kind, future)
    finally:
        for question in stage.futures:
            question.cancel()
        release.set_result(None)
        for thread in threads:
            thread.join(patience_s)
    assert not any(thread.is_alive() for thread in threads), "a caller never returned"
    stage.check(plan)


@pytest.mark.slow
@given(plan=plans)
@settings(max_examples=40)
def test_each_question_is_asked_as_it_must_be(loop: LoopThread, plan: Plan) -> None:
    """Over plans of questions and callers, in the orders threads make of them."""
    each_question_is_asked_as_it_must_be(Prompts, loop, plan)


class Forgets(Prompts):
    """Planted: what was interrupted is not asked again."""

    def _give_back(self, taken: list[Prompt]) -> None:
        for prompt in taken:
            prompt.is_withdrawn = True
        super()._give_back(taken)


class Crowds(Prompts):
    """Planted: every blocked thread asks at once."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = Unseen()


class Unseen(list[Prompt]):
    """What is being asked, for whoever does not look."""

    def __iter__(self) -> Iterator[Prompt]:
        return iter(())


class Keeps(Prompts):
    """Planted: what is withdrawn is still asked."""

    def _withdraw(self, prompt: Prompt) -> bool:
        return False


class Flat(Prompts):
    """Planted: a thread that is being asked is not asked what comes up within."""

    def serve_until(self, future: Future[Any]) -> None:
        with self._news:
            is_within = any(prompt.thread == threading.get_ident() for prompt in self._asked)
        if is_within:
            future.exception(PLANTED_S)
        else:
            super().serve_until(future)


class Repeats(Prompts):
    """Planted: what was answered is asked once more."""

    def _give_back(self, taken: list[Prompt]) -> None:
        super()._give_back(taken)
        with self._news:
            for prompt in taken:
                if not prompt.is_withdrawn:
                    prompt.is_withdrawn = True
                    self._waiting.append(prompt)


PLANTED_S = 0.5
"""How long a planted bug may take to be seen."""
TRIES = 20
"""Threads may meet so that a planted bug does not show: for once, not every time."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "plan"),
    [
        (Forgets, Plan(("interrupts",), (0,))),
        (Crowds, Plan(("plain",) * 6, (0, 0, 0))),
        (Keeps, Plan(("withdrawn", "plain"), (1,))),
        (Flat, Plan(("nests",), (0,))),
        (Repeats, Plan(("plain", "plain"), (0, 0))),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_planted_bug_is_seen(loop: LoopThread, planted: type[Prompts], plan: Plan) -> None:
    """Each way of being wrong breaks the property, which holds for the same plan otherwise."""
    each_question_is_asked_as_it_must_be(Prompts, loop, plan)
    with pytest.raises(AssertionError):
        for _ in range(TRIES):
            each_question_is_asked_as_it_must_be(planted, loop, plan, PLANTED_S)

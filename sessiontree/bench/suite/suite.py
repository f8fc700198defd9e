"""A suite: its samples, its solver, its scorers, and what each of its trees is opened with."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar

from pydantic import AfterValidator, Field, PlainValidator

from sessiontree import (
    AgentSpec,
    App,
    Budget,
    ConfigError,
    Rule,
    Runtime,
    SandboxSpec,
    SessionTree,
    SessionTreeError,
)
from sessiontree.api.agents.model_choice import ModelLike
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.bench.suite.plain_values import (
    format_value,
    require_number,
    to_json_text,
    to_plain_text,
    to_truth,
)
from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.settings.given_values import (
    Choice,
    Edge,
    Give,
    Instance,
    Parts,
    TimeLimit,
    check_fields,
    take_members,
)
from sessiontree.contracts.values.quick_dataclass import dataclass

T = TypeVar("T")
V = TypeVar("V")
MAX_ID_CHARS: Final = 200
MAX_COUNT: Final = 100_000_000
"""Most (sample, epoch) of a run, and most of anything that is counted."""
Approvals: TypeAlias = Literal["never", "auto", "smart"]
OnLimit: TypeAlias = Literal["score", "zero"]


def _check_id(text: str) -> str:
    if not text.strip() or len(text) > MAX_ID_CHARS:
        raise ValueError(text)
    return text


def _check_printable(text: str) -> str:
    if any(unicodedata.category(letter) in {"Cc", "Cs"} for letter in text):
        raise ValueError(text)
    return text


Name: TypeAlias = Annotated[str, AfterValidator(_check_id), Give(f"text of 1 to {MAX_ID_CHARS} characters")]
Count: TypeAlias = Annotated[
    Annotated[int, Field(ge=1, le=MAX_COUNT)], Give(f"a whole number from 1 to {MAX_COUNT:,}")
]


class RunRefused(Exception):
    """A suite's code can't work on its samples here: the run ends, and no sample is scored for it.

    Raised by ``tree``, a solver or a scorer where a score would say nothing about the sample.
    """


@dataclass(frozen=True, slots=True)
class Sample:
    """One task of a suite.

    Raises:
        ConfigError: the id is empty, too long, or has characters that can't be shown.
    """

    id: Annotated[
        Name,
        AfterValidator(_check_printable),
        Give(f"text of 1 to {MAX_ID_CHARS} characters that can be shown"),
    ]
    """Stable and unique in its suite."""
    input: Annotated[str, Give("text")] = ""
    """The task."""
    target: Any = None
    """What scorers compare with: a JSON value."""
    metadata: Annotated[Mapping[str, Any], Instance("an object")] = field(default_factory=dict)
    """Further JSON values."""
    files: Annotated[Annotated[str, Field(min_length=1)] | None, Give("a path, or None")] = None
    """Template of its workspace: a directory or an archive, relative to the suite's folder."""

    def __post_init__(self) -> None:
        """Check the members."""
        check_fields(self, f"sample {self.id!r}: ")


@dataclass(frozen=True, slots=True)
class Score:
    """What one scorer says of one sample.

    Raises:
        ConfigError: the value is not a finite number, ``passed`` is not a bool, or the metadata has no
            JSON form.
    """

    value: Annotated[float, PlainValidator(require_number), Give("a finite number")]
    """Usually from 0 to 1."""
    passed: Annotated[bool | None, PlainValidator(to_truth), Give("True, False or None")] = None
    """None = it passed if the value is at least 1."""
    answer: str = ""
    """The part of the output that was judged; what is not text is shown as text."""
    explanation: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further JSON values."""

    def __post_init__(self) -> None:
        """Check the values, and make them plain: numbers, truth values, text and JSON."""
        check_fields(self, "a score's ")
        try:
            metadata = json.loads(to_json_text(dict(self.metadata)))
        except Exception as error:
            raise ConfigError(
                f"a score's metadata has no JSON form: {to_plain_text(describe_error(error))}; give a dict"
            ) from error
        texts = ("" if text is None else to_plain_text(text) for text in (self.answer, self.explanation))
        members = ("answer", "explanation", "metadata")
        for name, plain in zip(members, (*texts, metadata), strict=True):
            object.__setattr__(self, name, plain)

    @property
    def is_pass(self) -> bool:
        """Whether the sample passed."""
        return self.value >= 1 if self.passed is None else self.passed


class Attempt(Generic[T]):
    """One try at one sample: what solvers, scorers and ``tree=`` are given.

    Args:
        suite: Name of the suite.
        sample: The sample.
        epoch: Which repetition of the sample, from 1.
        number: Which try of this sample and epoch, from 1; the second follows a lost process, for instance.
        workspace: The directory that the tree's file tools reach, made for this attempt.
        model: The model, as the run or the suite names it.
        runtime: The runtime that serves its tree.
        run_dir: The directory of the run.
    """

    output: T
    """What the solver returned; scorers only. After a time-out or a spent budget it is what the solver had
    set, else the last that Main said, or None."""

    def __init__(  # noqa: PLR0913 - keyword-only values of one attempt
        self,
        suite: str,
        sample: Sample,
        epoch: int,
        number: int,
        *,
        workspace: Path,
        model: ModelLike | None,
        runtime: Runtime,
        run_dir: Path,
    ) -> None:
        self.suite = suite
        self.sample = sample
        self.epoch = epoch
        self.number = number
        self.workspace = workspace
        self.model = model
        self.runtime = runtime
        self.run_dir = run_dir
        self.state: dict[str, Any] = {}
        """Objects of this attempt, such as a harness's environment."""
        self._tree: SessionTree | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def tree(self) -> SessionTree:
        """The attempt's tree, open while the solver and the scorers run.

        Raises:
            SessionTreeError: it is not open yet, or was closed.
        """
        if self._tree is None:
            raise SessionTreeError(
                f"sample {self.sample.id!r}: its tree is open only while the solver and the scorers run"
            )
        return self._tree

    def attach(self, tree: SessionTree | None) -> None:
        """Set the open tree; None = it was closed."""
        self._tree = tree
        self._loop = None if tree is None else asyncio.get_running_loop()

    def wait(self, method: Callable[..., Awaitable[V]], *given: Any, **named: Any) -> V:
        """Call an async method on the event loop and return its value, from a plain function in a thread.

        Args:
            method: Such as ``attempt.tree.main.send``.
            given: Its arguments.
            named: Its arguments by name.

        Raises:
            SessionTreeError: the tree is not open; whatever else the method raises.
        """

        async def call() -> V:
            return await method(*given, **named)

        _ = self.tree  # says why, if it is not open
        assert self._loop is not None  # noqa: S101 - the tree is open
        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()


Solver: TypeAlias = Callable[[Attempt[Any]], Any]
"""Solves a sample and returns the output: a coroutine function that works with ``attempt.tree``; or a plain
one, which runs in a thread, may block, and asks the tree by :meth:`Attempt.wait`."""
ScoreLike: TypeAlias = "Score | float | bool"
Scorer: TypeAlias = Callable[[Attempt[Any]], "ScoreLike | Awaitable[ScoreLike]"]
"""Judges ``attempt.output``, or what is in ``attempt.workspace``; its ``__name__`` is the score's name. A
plain function runs in a thread and may block."""
TreeLike: TypeAlias = "App | Mapping[str, Any]"
"""An app, or arguments of a tree by name; ``app`` may be one of them."""
TreesLike: TypeAlias = "TreeLike | Callable[[Attempt[Any]], TreeLike | Awaitable[TreeLike]]"
SampleLike: TypeAlias = "Sample | Mapping[str, Any]"
SamplesLike: TypeAlias = "Iterable[SampleLike] | str | Path | Callable[[], Iterable[SampleLike]]"
SandboxLike: TypeAlias = "SandboxSpec | Callable[[Attempt[Any]], SandboxSpec | None] | None"
OWN_OPTIONS: Final = ("workspace", "runtime", "state_dir", "backend", "memory", "slots", "channel", "purpose")
"""Arguments of a tree that are the run's own."""


_NAME: Final = Edge[str](Name)


class _Settings(TypedDict, total=False):
    """Settings of a suite that are checked by their types."""

    solver: Annotated[
        Callable[..., Any] | Annotated[AgentSpec, Instance("")], Give("a function or AgentSpec")
    ]
    sample_timeout_s: TimeLimit
    wall_timeout_s: TimeLimit
    on_limit: Annotated[OnLimit, Choice()]
    budget: Annotated[Budget | None, Instance("a Budget, or None")]
    approvals: Annotated[Approvals | None, Choice()]
    rules: Annotated[Sequence[Annotated[Rule, Instance("a Rule")]], Parts("a list of Rules")]
    sandbox: Annotated[
        Callable[..., Any] | Annotated[SandboxSpec, Instance("")] | None,
        Give("a SandboxSpec, a function of an Attempt that returns one, or None"),
    ]
    epochs: Count


class SuiteDefinition:
    """Samples, the solver that works on them, and the scorers that judge the outcome.

    Args:
        name: Names it in reports and commands.
        samples: A list of samples, or of objects with their members; a file in JSONL (one object a line) or
            Parquet; or a function that returns a list.
        solver: A coroutine function of an :class:`Attempt`, or a plain one, which runs in a thread; or an
            agent: Main runs as it, is sent the sample's input, and its reply is the output.
        scorers: One scorer or several, with different names; their scores are committed together.
        tree: The :class:`sessiontree.App` of each tree; or arguments of :class:`sessiontree.SessionTree` by
            name, such as ``app``, ``tools`` or ``limits``; or a function, plain or async, that returns one or
            the other for an attempt. They win over what the suite and the run say.
        model: The model, unless the run names another one.
        models: Models by names that only this suite knows, each made for one attempt after ``tree``.
        workspace: Template of every workspace whose sample names none: a directory or an archive.
        sandbox: The container in which each tree's sessions run commands, or a plain function that returns it
            for an attempt. A sample's ``metadata["image"]`` replaces the image of a spec.
        env: A requirements file or lock: the suite runs in an environment of its own with these packages.
        sample_timeout_s: How long the solver may work on one sample, in seconds, without the time in which
            its tree only waits for a host, a rate limiter or the next attempt at a provider. Also the limit
            of a function ``tree`` before it, and of the scorers after it. None = no limit.
        wall_timeout_s: How long the solver may take by the clock on the wall, with all waits; None = no
            limit.
        on_limit: What becomes of a sample whose time or budget is over: ``score`` = the scorers judge what is
            there, ``zero`` = it is 0. Its status says so either way.
        budget: What one sample's tree may spend.
        approvals: What happens to calls that need an approval: nobody is asked. ``never`` denies what
            ``rules`` do not approve, ``auto`` approves everything, ``smart`` applies ``rules`` and approves
            commands that are known to be harmless. A mode that is named also governs System calls, such as
            commands; None = ``never`` for Elevated calls, and System calls run.
        rules: Rules that answer requests for approval.
        epochs: How often each sample is solved and scored.
        folder: Where relative paths start; None = the folder of the file that makes the suite.
    """

    def __init__(  # noqa: PLR0913 - keyword-only settings of the public API
        self,
        name: str,
        samples: SamplesLike,
        solver: Solver | AgentSpec,
        scorers: Scorer | Sequence[Scorer],
        *,
        tree: TreesLike | None = None,
        model: ModelLike | None = None,
        models: Mapping[str, Callable[[Attempt[Any]], ModelLike]] | None = None,
        workspace: str | Path | None = None,
        sandbox: SandboxLike = None,
        env: str | Path | None = None,
        sample_timeout_s: float | None = 600.0,
        wall_timeout_s: float | None = None,
        on_limit: OnLimit = "score",
        budget: Budget | None = None,
        approvals: Approvals | None = None,
        rules: Sequence[Rule] = (),
        epochs: int = 1,
        folder: str | Path | None = None,
    ) -> None:
        """Check the arguments; samples are read when the suite runs.

        Raises:
            ConfigError: an argument is wrong; says which.
        """
        self.name = _NAME.take(name, "a suite's name")
        given: dict[str, Any] = {
            "solver": solver,
            "sample_timeout_s": sample_timeout_s,
            "sandbox": sandbox,
            "wall_timeout_s": wall_timeout_s,
            "on_limit": on_limit,
        }
        given |= {"budget": budget, "rules": rules, "approvals": approvals, "epochs": epochs}
        taken = take_members(given, _Settings, f"suite {name!r}: ")
        self.file = _find_calling_file()
        """The file that makes the suite; None = a notebook's cell does."""
        own = Path.cwd() if self.file is None else self.file.parent
        self.folder = own if folder is None else make_absolute(folder, "folder")
        self.samples = samples
        self.solver = solver
        self.scorers = _name_scorers(name, scorers)
        self.tree: TreesLike = {} if tree is None else tree
        self.model = model
        self.models = dict(models or {})
        self.workspace = None if workspace is None else self.folder / workspace
        self.sandbox = sandbox
        self.env = None if env is None else self.folder / env
        self.sample_timeout_s = taken["sample_timeout_s"]
        self.wall_timeout_s = taken["wall_timeout_s"]
        self.on_limit: OnLimit = on_limit
        self.budget = budget
        self.approvals = approvals
        self.rules: tuple[Rule, ...] = taken["rules"]
        self.epochs = epochs
        if inspect.isgeneratorfunction(solver) or inspect.isasyncgenfunction(solver):
            raise ConfigError(
                f"suite {name!r}: solver {format_value(solver)} yields; return the output instead"
            )
        if not callable(self.tree):
            read_tree_options(self.tree, f"suite {name!r}: tree has")


def read_tree_options(tree: TreeLike, said: str) -> dict[str, Any]:
    """Return what a suite says of a tree as arguments by name.

    Args:
        tree: The suite's value, or what its function returned.
        said: The beginning of an error.

    Raises:
        ConfigError: it has an argument that is the run's own, or is neither an app nor arguments.
    """
    if isinstance(tree, App):
        return {"app": tree}
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{said} {format_value(tree)}; give an App, or arguments of a SessionTree by name")
    own = [option for option in tree if option in OWN_OPTIONS]
    if own:
        raise ConfigError(f"{said} {own[0]!r}, which the run sets; leave it out")
    return dict(tree)


def _find_calling_file() -> Path | None:
    """Return the file that makes a suite; None in a notebook."""
    file = sys._getframe(2).f_globals.get("__file__")  # noqa: SLF001 - the only way to know
    return None if file is None else Path(file).absolute()


def _check_takes_attempt(scorer: Scorer, suite: str, name: str) -> None:
    """Check that a scorer can be called with an attempt, such as ``exact()``, not ``exact``.

    Raises:
        ConfigError: it can't.
    """
    try:
        inspect.signature(scorer).bind(None)
    except TypeError as error:
        raise ConfigError(
            f"suite {suite!r}: scorer {name!r} can't be called with an attempt ({error}); if it makes a "
            f"scorer, call it: {name}()"
        ) from None
    except ValueError:  # a callable of another language says nothing of its arguments
        return


def _name_scorers(name: str, given: Scorer | Sequence[Scorer]) -> dict[str, Scorer]:
    """Return scorers by name.

    Raises:
        ConfigError: none is given, one can't be called, or two have the same name.
    """
    scorers = [given] if callable(given) else list(given)
    found: dict[str, Scorer] = {}
    for scorer in scorers:
        called = getattr(scorer, "__name__", None)
        if not callable(scorer) or not called:
            raise ConfigError(f"suite {name!r}: scorer {scorer!r} is not a function with a name")
        _check_takes_attempt(scorer, name, called)
        if called in found:
            raise ConfigError(f"suite {name!r}: two scorers are named {called!r}; rename one")
        found[called] = scorer
    if not found:
        raise ConfigError(f"suite {name!r} has no scorer; give at least one function of an Attempt")
    return found

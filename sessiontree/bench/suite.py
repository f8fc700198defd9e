"""A suite: its samples, its solver, its scorers, and what each of its trees is opened with."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import math
import sys
import threading
import unicodedata
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

from sessiontree import AgentSpec, App, Budget, ConfigError, Rule, Runtime, SessionTree, SessionTreeError
from sessiontree.api.model_choice import ModelLike
from sessiontree.api.paths import absolute_path
from sessiontree.bench.plain_values import json_text, number_of, plain_text, shown_text, truth_of
from sessiontree.contracts.errors import words_of

if TYPE_CHECKING:
    from sessiontree.bench.results import RunResults

T = TypeVar("T")
MAX_ID_CHARS: Final = 200
MAX_COUNT: Final = 100_000_000
"""Most (sample, epoch) of a run, and most of anything that is counted."""
RUNNER: Final = "sessiontree.bench.runner"
"""Loaded when a suite runs: a file that only defines suites is imported quickly."""
Approvals: TypeAlias = Literal["never", "auto", "smart"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One task of a suite.

    Raises:
        ConfigError: the id is empty, too long, or has characters that can't be shown.
    """

    id: str
    """Stable and unique in its suite."""
    input: str = ""
    """The task."""
    target: Any = None
    """What scorers compare with: a JSON value."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further JSON values."""
    files: str | None = None
    """Template of its workspace: a directory or an archive, relative to the suite's folder."""

    def __post_init__(self) -> None:
        """Check the id and the types."""
        if not isinstance(self.id, str) or not self.id.strip() or len(self.id) > MAX_ID_CHARS:
            raise ConfigError(f"sample id {self.id!r} is not text of 1 to {MAX_ID_CHARS} characters")
        if any(unicodedata.category(letter) in {"Cc", "Cs"} for letter in self.id):
            raise ConfigError(f"sample id {self.id!r} has control characters; give one that can be shown")
        if not isinstance(self.input, str):
            raise ConfigError(f"sample {self.id!r}: input must be text, not {self.input!r}")
        if not isinstance(self.metadata, Mapping):
            raise ConfigError(f"sample {self.id!r}: metadata must be an object, not {self.metadata!r}")
        if self.files is not None and (not isinstance(self.files, str) or not self.files):
            raise ConfigError(f"sample {self.id!r}: files must be a path, not {self.files!r}")


@dataclass(frozen=True, slots=True)
class Score:
    """What one scorer says of one sample.

    Raises:
        ConfigError: the value is not a finite number, ``passed`` is not a bool, or the metadata has no
            JSON form.
    """

    value: float
    """Usually from 0 to 1."""
    passed: bool | None = None
    """None = it passed if the value is at least 1."""
    answer: str = ""
    """The part of the output that was judged; what is not text is shown as text."""
    explanation: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further JSON values."""

    def __post_init__(self) -> None:
        """Check the values, and make them plain: numbers, truth values, text and JSON."""
        value, passed = number_of(self.value), truth_of(self.passed)
        if value is None:
            raise ConfigError(f"a score's value is {shown_text(self.value)}; give a finite number")
        if passed is None and self.passed is not None:
            raise ConfigError(f"a score's passed is {shown_text(self.passed)}; give True, False or None")
        try:
            metadata = json.loads(json_text(dict(self.metadata)))
        except Exception as error:
            raise ConfigError(
                f"a score's metadata has no JSON form: {plain_text(words_of(error))}; give a dict"
            ) from error
        texts = ("" if text is None else plain_text(text) for text in (self.answer, self.explanation))
        members = ("value", "passed", "answer", "explanation", "metadata")
        for name, plain in zip(members, (value, passed, *texts, metadata), strict=True):
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
    """What the solver returned; scorers only."""

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


Solver: TypeAlias = Callable[[Attempt[Any]], Awaitable[Any]]
"""Solves a sample with ``attempt.tree`` and returns the output."""
ScoreLike: TypeAlias = "Score | float | bool"
Scorer: TypeAlias = Callable[[Attempt[Any]], "ScoreLike | Awaitable[ScoreLike]"]
"""Judges ``attempt.output``, or what is in ``attempt.workspace``; its ``__name__`` is the score's name."""
TreeLike: TypeAlias = "App | Mapping[str, Any]"
"""An app, or arguments of a tree by name; ``app`` may be one of them."""
TreesLike: TypeAlias = "TreeLike | Callable[[Attempt[Any]], TreeLike | Awaitable[TreeLike]]"
SampleLike: TypeAlias = "Sample | Mapping[str, Any]"
SamplesLike: TypeAlias = "Iterable[SampleLike] | str | Path | Callable[[], Iterable[SampleLike]]"
OWN_OPTIONS: Final = ("workspace", "runtime", "state_dir", "backend", "memory", "slots", "channel", "purpose")
"""Arguments of a tree that are the run's own."""


class Suite:
    """Samples, the solver that works on them, and the scorers that judge the outcome.

    Args:
        name: Names it in reports and commands.
        samples: A list of samples, or of objects with their members; a file in JSONL (one object a line) or
            Parquet; or a function that returns a list.
        solver: A coroutine function of an :class:`Attempt`; or an agent: Main runs as it, is sent the
            sample's input, and its reply is the output.
        scorers: One scorer or several, with different names; their scores are committed together.
        tree: The :class:`sessiontree.App` of each tree; or arguments of :class:`sessiontree.SessionTree` by
            name, such as ``app``, ``tools`` or ``limits``; or a function, plain or async, that returns one or
            the other for an attempt. They win over what the suite and the run say.
        model: The model, unless the run names another one.
        models: Models by names that only this suite knows, each made for one attempt after ``tree``.
        workspace: Template of every workspace whose sample names none: a directory or an archive.
        env: A requirements file or lock: the suite runs in an environment of its own with these packages.
        sample_timeout_s: Time limit of the solver for one sample, in seconds, and also of an async ``tree``
            before it; None = no limit.
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
        env: str | Path | None = None,
        sample_timeout_s: float | None = 600.0,
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
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_ID_CHARS:
            raise ConfigError(f"a suite's name is {name!r}; give text of 1 to {MAX_ID_CHARS} characters")
        self.name = name
        self.folder = _calling_folder() if folder is None else absolute_path(folder, "folder")
        self.samples = samples
        self.solver = solver
        self.scorers = _scorers_of(name, scorers)
        self.tree: TreesLike = {} if tree is None else tree
        self.model = model
        self.models = dict(models or {})
        self.workspace = None if workspace is None else self.folder / workspace
        self.env = None if env is None else self.folder / env
        self.sample_timeout_s = checked_seconds(sample_timeout_s, f"suite {name!r}: sample_timeout_s")
        self.budget = budget
        self.approvals = approvals
        self.rules = tuple(rules)
        self.epochs = checked_count(epochs, f"suite {name!r}: epochs")
        if not callable(solver) and not isinstance(solver, AgentSpec):
            raise ConfigError(f"suite {name!r}: solver is {solver!r}; give a coroutine function or AgentSpec")
        if inspect.isgeneratorfunction(solver) or inspect.isasyncgenfunction(solver) or _is_plain(solver):
            raise ConfigError(
                f"suite {name!r}: solver {shown_text(solver)} can't be awaited; write it as async def, and "
                "return the output instead of yielding it"
            )
        if budget is not None and not isinstance(budget, Budget):
            raise ConfigError(f"suite {name!r}: budget must be a Budget, not {budget!r}")
        if approvals is not None and approvals not in get_args(Approvals):
            known = ", ".join(get_args(Approvals))
            raise ConfigError(f"suite {name!r}: approvals {approvals!r} is not one of {known}")
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise ConfigError(f"suite {name!r}: rules must hold Rule, not {rule!r}")
        if not callable(self.tree):
            read_tree_options(self.tree, f"suite {name!r}: tree has")

    async def run(self, run_dir: str | Path, **options: Any) -> RunResults:
        """Run the suite, or go on with an interrupted run; every sample is scored once.

        Several programs may do the same at the same time: they share the samples.

        Args:
            run_dir: Directory of the run: its ledger, its trees' journals, kept workspaces and results.
            options: Members of :class:`sessiontree.bench.run_place.RunOptions` by name: ``model``,
                ``epochs``, ``limit``, ``concurrency``, ``sample_timeout_s``, ``max_cost_usd``, ``backend``,
                ``address``, ``shards``, ``retries``, ``keep``, ``progress``.

        Raises:
            ConfigError: an option or a sample is wrong, or the directory holds another run; says what
                differs.
            EngineLost: the runtime was lost again and again; the same call goes on later.
        """
        run: Callable[..., Awaitable[RunResults]] = importlib.import_module(RUNNER).run_suite
        return await run(self, run_dir, options)

    def run_sync(self, run_dir: str | Path, **options: Any) -> RunResults:
        """Run the suite as :meth:`run` does, without ``await``; also in a cell of a notebook."""
        return _outcome_of(self.run(run_dir, **options))


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
        raise ConfigError(f"{said} {shown_text(tree)}; give an App, or arguments of a SessionTree by name")
    own = [option for option in tree if option in OWN_OPTIONS]
    if own:
        raise ConfigError(f"{said} {own[0]!r}, which the run sets; leave it out")
    return dict(tree)


def _outcome_of(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on a thread of its own if this one runs an event loop already.

    An interrupt cancels it, and is raised once it has cleaned up.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    done: Future[T] = Future()
    begun: Future[Callable[[], object]] = Future()

    async def run() -> None:
        task = asyncio.ensure_future(work)
        begun.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))
        try:
            done.set_result(await task)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            done.set_exception(error)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="sessiontree-suite")
    thread.start()
    try:
        return done.result()
    except KeyboardInterrupt:
        begun.result()()
        raise
    finally:
        thread.join()


def _is_plain(solver: object) -> bool:
    """Whether a function is a plain ``def``; one that wraps another may return what can be awaited."""
    return (
        inspect.isfunction(solver)
        and not inspect.iscoroutinefunction(solver)
        and solver.__name__ != "<lambda>"
        and not hasattr(solver, "__wrapped__")
    )


def _calling_folder() -> Path:
    """Return the folder of the file that makes a suite; in a notebook, the working directory."""
    file = sys._getframe(2).f_globals.get("__file__")  # noqa: SLF001 - the only way to know
    return Path.cwd() if file is None else Path(file).absolute().parent


def _scorers_of(name: str, given: Scorer | Sequence[Scorer]) -> dict[str, Scorer]:
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
        if called in found:
            raise ConfigError(f"suite {name!r}: two scorers are named {called!r}; rename one")
        found[called] = scorer
    if not found:
        raise ConfigError(f"suite {name!r} has no scorer; give at least one function of an Attempt")
    return found


def checked_seconds(value: float | None, what: str, unit: str = "seconds") -> float | None:
    """Return a time limit, or another amount.

    Raises:
        ConfigError: it is not a positive number.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"{what} is {value!r}; give {unit} above 0, or None for no limit")
    try:
        return float(value)
    except OverflowError as error:
        raise ConfigError(f"{what} is too large; give {unit} up to {sys.float_info.max:.1e}") from error


def checked_count(value: int, what: str, least: int = 1, most: int = MAX_COUNT) -> int:
    """Return a count.

    Raises:
        ConfigError: it is not a whole number, or too small or too large.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{what} is {value!r}; give a whole number of at least {least}")
    if value > most:
        raise ConfigError(f"{what} is too large; the most is {most:,}")
    return value

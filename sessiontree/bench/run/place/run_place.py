"""The directory of a run and the options of a command that works there.

``config.json`` says what the run is: another suite, or the same one with other settings, is refused there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, cast

from pydantic import Field

from sessiontree import AgentSpec, ConfigError, Configuration, RecordedModel
from sessiontree.api.agents.model_choice import ModelLike, resolve_models
from sessiontree.api.options.app import take_app
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.api.runtime.runtime import compute_shard_limit
from sessiontree.api.runtime.runtime_options import Backends, RuntimeOptions, Shards
from sessiontree.bench.results.recorded_run import STATE
from sessiontree.bench.run.place.error_limit import ErrorLimit
from sessiontree.bench.run.place.progress import LoggedProgress, RunProgress
from sessiontree.bench.run.place.run_settings import Concurrency, RunSettings
from sessiontree.bench.suite.retry_choice import RetryChoice
from sessiontree.bench.suite.sample_selection import select_samples
from sessiontree.bench.suite.suite import MAX_COUNT, Count, Sample, SuiteDefinition, read_tree_options
from sessiontree.bench.suite.workspaces import Keep
from sessiontree.contracts.settings.given_values import (
    Choice,
    Finite,
    Give,
    Instance,
    Natural,
    Parts,
    TimeLimit,
    Toggle,
    check_fields,
    check_names,
    check_options,
)
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.file_systems import LOCAL, detect_file_system, find_network_fault

CONFIG: Final = "config.json"
WORKSPACES: Final = "workspaces"
RECORDED: Final = "recorded:"
"""How the name of a model begins whose replies are in a cassette; the file follows."""


_CountOrNone: TypeAlias = Annotated[
    Count | None, Give(f"a whole number from 1 to {MAX_COUNT:,}, or None for the suite's own")
]


_KERNEL: Final = "ipykernel"


def choose_progress() -> RunProgress:
    """Return what shows the progress of a run by default: the cell of a notebook, or else the log."""
    if _KERNEL not in sys.modules:
        return LoggedProgress()
    from sessiontree.bench.run.place.cell_progress import make_cell_progress

    return make_cell_progress() or LoggedProgress()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a command works on a run; another command may use other values.

    Raises:
        ConfigError: a value is not valid.
    """

    model: ModelLike | None = None
    """The model instead of the suite's: a model, ``provider:model``, a configured name, one of the suite's
    ``models``, or ``recorded:FILE``."""
    epochs: _CountOrNone = None
    limit: _CountOrNone = None
    """Only so many samples, the first ones."""
    concurrency: Concurrency = 16
    """How many attempts at a time, over all programs that work on the run; each gets an equal part."""
    sample_timeout_s: TimeLimit = None
    """Working time of a solver instead of the suite's, in seconds."""
    wall_timeout_s: TimeLimit = None
    """Time by the clock on the wall instead of the suite's, in seconds."""
    max_cost_usd: Annotated[Finite | None, Give("US dollars above 0, or None for no limit")] = None
    """Most US dollars that the run may spend, over all programs that work on it."""
    backend: Backends = "ray"
    address: str | None = None
    shards: Shards = 1
    runtime: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the runtime by name, such as ``placement`` and ``pass_env``. Of these ``backend``,
    ``address`` and ``shards`` count if they are not given themselves."""
    state_dir: Annotated[str | Path | None, Give("an absolute path, or None for the run's own")] = None
    """Where the journals are, on a local disk of each node; None = ``state`` in the run's directory."""
    retries: Natural = 3
    """How often a sample may be lost by its own doing, as far as anybody can know, before it has failed."""
    provider_wait_s: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False)], Give("seconds, 0 or more")
    ] = 3_600.0
    """How long the run waits for a provider that does not answer, before it ends and leaves the rest."""
    keep: Annotated[Keep, Choice()] = "failed"
    """Whose workspaces are kept: of samples that did not pass, of ``all``, or of ``none``."""
    samples: Annotated[
        Sequence[str], Parts("a list of ids, patterns, ranges such as 1..50, or tags such as tag:hard")
    ] = ()
    """Only these samples; empty = all."""
    fail_on_error: float | str | None = None
    """At how many errors of the suite's code the run stops: a number, or a share of the ended samples such as
    0.2. None = when ten samples have ended, all in an error; 1.0 = never."""
    accept_changes: Toggle = False
    """Whether to go on with other code or settings than the run was made with."""
    retry: Annotated[RetryChoice | None, Instance("a RetryChoice, or None")] = None
    """Samples that have ended and are solved again; their earlier scores stay in the history."""
    tags: Annotated[Sequence[str], Parts("a list of texts")] = ()
    """Names of the run for people, such as ``nightly``."""
    metadata: Annotated[Mapping[str, Any], Instance("an object")] = field(default_factory=dict)
    """Further JSON values about the run."""
    suite_name: str = ""
    """How commands find the suite again, such as ``addition.py:suite``; empty = they need it as an option."""
    writes: Annotated[Literal["tables", "events"], Choice()] = "tables"
    """What is written at the end: all tables of the run, or only the events of this program's trees."""
    progress: RunProgress = field(default_factory=choose_progress)
    """Hears what happens; by default a notebook's cell shows it, and elsewhere failures are logged."""

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self)
        check_options(self.runtime, RuntimeOptions, "a run's runtime")
        if "tree_id" in self.runtime:
            raise ConfigError("a run's runtime takes no option 'tree_id'; it is for the tree that is resumed")
        compute_shard_limit(self.shards, self.backend, self.runtime.get("memory"))
        ErrorLimit.of(self.fail_on_error)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return options by name.

        Raises:
            ConfigError: one is unknown or not valid.
        """
        check_names(given, [each.name for each in fields(cls)], "a run")
        runtime = given.get("runtime") or {}
        for_both = {
            name: runtime[name] for name in _FOR_BOTH if isinstance(runtime, Mapping) and name in runtime
        }
        return cls(**{**for_both, **given})

    def build_runtime_options(self) -> RuntimeOptions:
        """Return the options of a runtime."""
        own = {name: getattr(self, name) for name in _FOR_BOTH}
        return cast("RuntimeOptions", {**self.runtime, **own})


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run: its directory, its suite, its samples, and the options of this command."""

    path: Path
    suite: SuiteDefinition
    samples: Mapping[str, Sample]
    """By id, in order."""
    options: RunOptions
    model: ModelLike | None
    """The model that answers, unless the suite brings one for each attempt."""
    chosen: Sequence[Sample]
    """The samples of this command, in the suite's order."""
    settings: RunSettings
    """What a command may change while the run goes on."""

    @classmethod
    def of(
        cls, run_dir: str | Path, suite: SuiteDefinition, samples: Iterable[Sample], options: RunOptions
    ) -> RunPlace:
        """Check the models; :meth:`make` makes the directory.

        Raises:
            ConfigError: no model is named, it is unknown, or its extra or its key is missing.
        """
        path = make_absolute(run_dir, "run_dir")
        known = {each.id: each for each in samples}
        chosen = (
            select_samples(list(known.values()), options.samples) if options.samples else [*known.values()]
        )
        limit_s = suite.sample_timeout_s if options.sample_timeout_s is None else options.sample_timeout_s
        settings = RunSettings(options.concurrency, limit_s)
        model = _find_model(suite.model if options.model is None else options.model, suite)
        _check_models(suite, model)
        return cls(path, suite, known, options, model, chosen[: options.limit], settings)

    def make(self) -> None:
        """Make the directory if it is missing, and look at the place of its journals.

        Raises:
            ConfigError: it can't be made, or the journals can't be there.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"run_dir {str(self.path)!r} can't be made: {error}") from error
        state = self.state_dir()
        # SQLite's locks do not hold on network file systems, and a journal there would be damaged without a
        # word.
        fault = find_network_fault(state)
        if fault:
            raise ConfigError(f"the run's journals can't be in {str(state)!r}: {fault}")

    def state_dir(self) -> Path:
        """Return where the journals of this run are, on each node; the run's directory leads there.

        Raises:
            ConfigError: the run has its journals in another place.
        """
        link = self.path / STATE
        given = self.options.state_dir
        if given is None:
            return link.readlink() if link.is_symlink() else link
        wanted = make_absolute(given, "state_dir")
        if wanted == link:
            return link
        with suppress(FileExistsError):  # or another command has just made it
            link.symlink_to(wanted)
        # Read back and compared: of two commands that make the link at once, both must use the one that is
        # there.
        held = link.readlink() if link.is_symlink() else link
        if held != wanted:
            raise ConfigError(
                f"state_dir {str(wanted)!r}: the run has its journals in {str(held)!r}; leave state_dir out, "
                "or give another run_dir"
            )
        return wanted

    @property
    def epochs(self) -> int:
        """How often each sample is solved."""
        return self.suite.epochs if self.options.epochs is None else self.options.epochs

    @property
    def sample_timeout_s(self) -> float | None:
        """Time limit of a solver, as it is at the moment."""
        return self.settings.sample_timeout_s

    def time_limits(self) -> dict[str, float | None]:
        """Return the time limits of one sample, as the command was given them."""
        return {"sample_timeout_s": self.sample_timeout_s, "wall_timeout_s": self.wall_timeout_s}

    @property
    def wall_timeout_s(self) -> float | None:
        """Time limit of a solver by the clock on the wall."""
        given = self.options.wall_timeout_s
        return self.suite.wall_timeout_s if given is None else given

    def identity(self) -> dict[str, str]:
        """Return what makes the run this run and no other, by name."""
        suite = self.suite
        model = suite.model if self.options.model is None else self.options.model
        budget = None if suite.budget is None else suite.budget.model_dump()
        return {
            "suite": suite.name,
            "model": name_of_model(model),
            "on_limit": suite.on_limit,
            "budget": json.dumps(budget),
            "approvals": suite.approvals or "not named",
            "rules": json.dumps([rule.model_dump(mode="json") for rule in suite.rules]),
        }

    def check(self, held: Mapping[str, str]) -> None:
        """Refuse a directory that holds another run.

        Raises:
            ConfigError: names each setting that differs.
        """
        differing = [
            f"{name} was {held.get(name, '')!r} and is {value!r}"
            for name, value in self.identity().items()
            if held.get(name) != value
        ]
        if differing:
            raise ConfigError(
                f"run_dir {str(self.path)!r} holds another run: {'; '.join(differing)}; give another "
                "directory, or the settings that it has"
            )

    def write_config(self, held: Mapping[str, str]) -> None:
        """Write ``config.json`` for people and other programs; the ledger holds the same."""
        options = {name: getattr(self.options, name) for name in _SHOWN}
        file = self.path / CONFIG
        if not _is_consistent(file, held):
            text = json.dumps({**held, "options": options}, indent=2, default=str)
            # A name of this process, because several programs may write the file at the same time.
            made = self.path / f".{CONFIG}.{os.getpid()}"
            made.write_text(f"{text}\n", "utf-8")
            made.replace(file)

    def is_shared(self) -> bool:
        """Whether the directory may be on a file system that several machines use."""
        return is_on_shared_disk(self.path)

    def has_config(self) -> bool:
        """Whether the directory says that a run has begun here."""
        return (self.path / CONFIG).is_file()

    def select_shown_options(self) -> dict[str, Any]:
        """Return the options of the command that people look up later."""
        shown = {name: getattr(self.options, name) for name in _SHOWN}
        return {
            "suite": self.options.suite_name,
            "tags": list(self.options.tags),
            "metadata": dict(self.options.metadata),
            "options": shown,
        }


_FOR_BOTH: Final = ("backend", "address", "shards")
_SHOWN: Final = ("epochs", "limit", "concurrency", "backend", "shards", "retries", "keep", "samples")


def _find_model(model: ModelLike | None, suite: SuiteDefinition) -> ModelLike | None:
    """Return a model by its name, unless the suite makes it."""
    if not isinstance(model, str) or model in suite.models:
        return model
    if model.startswith(RECORDED):
        return RecordedModel(model.removeprefix(RECORDED))
    return Configuration.load().find_model(model)


def build_no_model_error(suite: SuiteDefinition) -> ConfigError:
    """Return the error of a suite for which no model is named."""
    return ConfigError(f"suite {suite.name!r} names no model; give one with --model, or Suite(model=…)")


def _check_models(suite: SuiteDefinition, model: ModelLike | None) -> None:
    """Check the models that are known before an attempt begins, as the tree of each attempt does.

    Raises:
        ConfigError: no model is named, one is unknown, or its extra or its key is missing.
    """
    options = {} if callable(suite.tree) else read_tree_options(suite.tree, f"suite {suite.name!r}: tree has")
    app = take_app(options.get("app"), options)
    model = model if app.model is None else app.model
    if isinstance(model, str) and model in suite.models:
        return
    if model is None:
        if callable(suite.tree):
            return  # it may name one for each attempt
        raise build_no_model_error(suite)
    agents = dict(app.agents) if isinstance(app.agents, Mapping) else {}
    if isinstance(suite.solver, AgentSpec):
        agents["default"] = suite.solver
    specs = {name: spec for name, spec in agents.items() if isinstance(spec, AgentSpec)}
    resolve_models(model, app.models, specs)


def _is_consistent(file: Path, held: Mapping[str, str]) -> bool:
    """Whether a ``config.json`` says what the ledger holds; that of a run that never began may not."""
    try:
        said = parse_json(file.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and held.items() <= said.items()


def name_of_model(model: ModelLike | None) -> str:
    """Return a model's name as a run keeps it; of a list, that of its first model."""
    if isinstance(model, str) or model is None:
        return model or ""
    if isinstance(model, list | tuple):
        return name_of_model(model[0] if model else None)
    return str(getattr(model, "name", type(model).__name__))


def is_on_shared_disk(path: Path) -> bool:
    """Whether a directory may be on a file system that several machines use."""
    return detect_file_system(path) not in LOCAL

"""The directory of a run and the options of a command that works there.

``config.json`` says what the run is: another suite, or the same one with other settings, is refused there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self, get_args

from sessiontree import AgentSpec, ConfigError, Configuration, RecordedModel
from sessiontree.api.app import take_app
from sessiontree.api.model_choice import ModelLike, models_of
from sessiontree.api.paths import absolute_path
from sessiontree.api.runtime import check_backend, shard_count
from sessiontree.api.runtime_options import BackendName, Shards
from sessiontree.bench.progress import LoggedProgress, RunProgress
from sessiontree.bench.samples import digest_of_samples
from sessiontree.bench.suite import Sample, Suite, checked_count, checked_seconds, read_tree_options
from sessiontree.bench.workspaces import Keep

CONFIG: Final = "config.json"
WORKSPACES: Final = "workspaces"
RECORDED: Final = "recorded:"
"""How the name of a model begins whose replies are in a cassette; the file follows."""
MAX_CONCURRENCY: Final = 1_000
LOCAL_FILE_SYSTEMS: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "bcachefs", "ramfs", "vfat"}
)
"""File systems that belong to one machine; on another one the ledger shares no memory between programs."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a command works on a run; another command may use other values.

    Raises:
        ConfigError: a value is not valid.
    """

    model: ModelLike | None = None
    """The model instead of the suite's: a model, ``provider:model``, a configured name, one of the suite's
    ``models``, or ``recorded:FILE``."""
    epochs: int | None = None
    limit: int | None = None
    """Only so many samples, the first ones."""
    concurrency: int = 16
    """How many attempts at a time."""
    sample_timeout_s: float | None = None
    max_cost_usd: float | None = None
    """Most US dollars that the run may spend, over all programs that work on it."""
    backend: BackendName = "ray"
    address: str | None = None
    shards: Shards = 1
    retries: int = 3
    """How many attempts at a sample may end by infrastructure errors before it has failed."""
    keep: Keep = "failed"
    """Whose workspaces are kept: of samples that did not pass, of ``all``, or of ``none``."""
    progress: RunProgress = field(default_factory=LoggedProgress)
    """Hears what happens; by default failures are logged."""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.epochs is not None:
            checked_count(self.epochs, "epochs")
        if self.limit is not None:
            checked_count(self.limit, "limit")
        checked_count(self.concurrency, "concurrency", most=MAX_CONCURRENCY)
        checked_count(self.retries, "retries", 0)
        checked_seconds(self.sample_timeout_s, "sample_timeout_s")
        checked_seconds(self.max_cost_usd, "max_cost_usd", "US dollars")
        check_backend(self.backend)
        shard_count(self.shards, self.backend, None)
        if self.keep not in get_args(Keep):
            raise ConfigError(f"keep {self.keep!r} is not one of {', '.join(get_args(Keep))}")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return options by name.

        Raises:
            ConfigError: one is unknown or not valid.
        """
        known = [each.name for each in fields(cls)]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ConfigError(f"no option of a run is called {unknown[0]!r}; there are {', '.join(known)}")
        return cls(**given)


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run: its directory, its suite, its samples, and the options of this command."""

    path: Path
    suite: Suite
    samples: Mapping[str, Sample]
    """By id, in order."""
    options: RunOptions
    model: ModelLike | None
    """The model that answers, unless the suite brings one for each attempt."""

    @classmethod
    def of(
        cls, run_dir: str | Path, suite: Suite, samples: Iterable[Sample], options: RunOptions
    ) -> RunPlace:
        """Check the models; :meth:`make` makes the directory.

        Raises:
            ConfigError: no model is named, it is unknown, or its extra or its key is missing.
        """
        path = absolute_path(run_dir, "run_dir")
        model = _found_model(suite.model if options.model is None else options.model, suite)
        _check_models(suite, model)
        return cls(path, suite, {each.id: each for each in samples}, options, model)

    def make(self) -> None:
        """Make the directory if it is missing.

        Raises:
            ConfigError: it can't be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"run_dir {str(self.path)!r} can't be made: {error}") from error

    @property
    def epochs(self) -> int:
        """How often each sample is solved."""
        return self.suite.epochs if self.options.epochs is None else self.options.epochs

    @property
    def sample_timeout_s(self) -> float | None:
        """Time limit of a solver."""
        given = self.options.sample_timeout_s
        return self.suite.sample_timeout_s if given is None else given

    def identity(self) -> dict[str, str]:
        """Return what makes the run this run and no other, by name."""
        suite = self.suite
        model = suite.model if self.options.model is None else self.options.model
        budget = None if suite.budget is None else suite.budget.model_dump()
        return {
            "suite": suite.name,
            "samples": f"{len(self.samples)} with digest {digest_of_samples(self.samples.values())}",
            "model": _model_name(model),
            "solver": _name_of(suite.solver),
            "scorers": json.dumps(list(suite.scorers)),
            "sample_timeout_s": json.dumps(self.sample_timeout_s),
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
        if not _shows(file, held):
            text = json.dumps({**held, "options": options}, indent=2, default=str)
            made = self.path / f".{CONFIG}.{os.getpid()}"
            made.write_text(f"{text}\n", "utf-8")
            made.replace(file)

    def is_shared(self) -> bool:
        """Whether the directory may be on a file system that several machines use."""
        return _file_system_of(self.path) not in LOCAL_FILE_SYSTEMS


_SHOWN: Final = ("epochs", "limit", "concurrency", "backend", "shards", "retries", "keep")


def _found_model(model: ModelLike | None, suite: Suite) -> ModelLike | None:
    """Return a model by its name, unless the suite makes it."""
    if not isinstance(model, str) or model in suite.models:
        return model
    if model.startswith(RECORDED):
        return RecordedModel(model.removeprefix(RECORDED))
    return Configuration.load().find_model(model)


def no_model(suite: Suite) -> ConfigError:
    """Return the error of a suite for which no model is named."""
    return ConfigError(f"suite {suite.name!r} names no model; give one with --model, or Suite(model=…)")


def _check_models(suite: Suite, model: ModelLike | None) -> None:
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
        raise no_model(suite)
    agents = dict(app.agents) if isinstance(app.agents, Mapping) else {}
    if isinstance(suite.solver, AgentSpec):
        agents["default"] = suite.solver
    specs = {name: spec for name, spec in agents.items() if isinstance(spec, AgentSpec)}
    models_of(model, app.models, specs)


def _shows(file: Path, held: Mapping[str, str]) -> bool:
    """Whether a ``config.json`` says what the ledger holds; that of a run that never began may not."""
    try:
        said = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and held.items() <= said.items()


def _model_name(model: ModelLike | None) -> str:
    """Return a model's name; of a list, that of its first model."""
    if isinstance(model, str) or model is None:
        return model or ""
    if isinstance(model, list | tuple):
        return _model_name(model[0] if model else None)
    return str(getattr(model, "name", type(model).__name__))


def _name_of(solver: object) -> str:
    if isinstance(solver, AgentSpec):
        return f"agent {solver.model_dump_json(exclude={'source'})}"
    return str(getattr(solver, "__qualname__", type(solver).__name__))


def _file_system_of(path: Path) -> str:
    """Return the type of the file system that a directory is on; empty = unknown."""
    try:
        lines = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        point, found = line.split()[1:3]
        point = point.replace("\\040", " ")
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind

"""The runtime of a run: the options of a file and of a command, and where its journals are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError, MemorySettings
from sessiontree.bench.results.run_facts import RunFacts
from sessiontree.bench.run.place.run_place import RunOptions, RunPlace
from sessiontree.bench.run.runtime_file import read_runtime
from sessiontree.journal.claim import list_journal_dirs
from tests.system.bench.suite_fixtures import rows, samples, suite

FILE = """
backend = "local"
slots = 3
pass_env = ["HF_TOKEN"]
log = "json"
telemetry = false
[memory]
uri = "/var/tmp/memory"
[placement.worker]
num_cpus = 1
"""


def test_file_holds_every_option(tmp_path: Path) -> None:
    """Each by its own name; a placement of the command counts more than the file's."""
    file = tmp_path / "runtime.toml"
    file.write_text(FILE)
    found = read_runtime(file, None)
    assert isinstance(found["memory"], MemorySettings)
    assert found["placement"] == {"worker": {"num_cpus": 1}}
    assert (found["slots"], found["pass_env"], found["telemetry"]) == (3, ["HF_TOKEN"], False)
    assert read_runtime(file, '{"branch": {}}')["placement"] == {"branch": {}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slotz = 3", "takes no option 'slotz'"),
        ("slots = 'many'", "slots is 'many'"),
        ("slots =", "can't be read"),
        ("[memory]\nurl = 'x'", "url"),
        ("[telemetry]\nprovider = 1", "telemetry takes true, false"),
    ],
)
def test_wrong_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """The error names the file and the member."""
    file = tmp_path / "runtime.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as raised:
        read_runtime(file, None)
    assert "runtime.toml" in str(raised.value)


def test_wrong_placement_is_refused() -> None:
    """It is JSON."""
    with pytest.raises(ConfigError, match=r"--placement 'worker' is not JSON"):
        read_runtime(None, "worker")


@pytest.mark.parametrize(
    ("given", "backend", "shards"),
    [({}, "local", 2), ({"shards": 3}, "local", 3), ({"backend": "ray"}, "ray", 2)],
)
def test_command_counts_more_than_the_file(given: dict[str, Any], backend: str, shards: int) -> None:
    """Backend, address and shards are options of both."""
    options = RunOptions.of({"runtime": {"backend": "local", "shards": 2, "slots": 1}, **given})
    assert options.build_runtime_options() == {
        "backend": backend,
        "shards": shards,
        "slots": 1,
        "address": None,
    }


@pytest.mark.parametrize("name", ["tree_id", "state_dir"])
def test_what_is_no_option_of_a_run_is_refused(name: str) -> None:
    """A run has many trees, and a directory of its own."""
    with pytest.raises(ConfigError, match="takes no option"):
        RunOptions.of({"runtime": {name: "x"}})


def test_journals_are_where_the_command_says(tmp_path: Path) -> None:
    """The run's directory leads there, so reports find the trees; another place later is refused."""
    place, away = tmp_path / "run", tmp_path / "disk" / "state"
    found = suite().run_sync(place, backend="local", state_dir=away)
    assert (place / "state").readlink() == away
    assert list_journal_dirs(away) == (away,)
    with RunFacts(place) as facts:
        for (tree_id,) in rows(place, "SELECT tree_id FROM attempts"):
            assert list(facts.read(tree_id))
    assert found.counts.scored == found.counts.total
    suite().run_sync(place, backend="local")
    with pytest.raises(ConfigError, match="has its journals in"):
        suite().run_sync(place, backend="local", state_dir=tmp_path / "other")
    with pytest.raises(ConfigError, match="has its journals in"):
        own = RunPlace.of(tmp_path / "second", suite(), samples(1), RunOptions.of({"state_dir": away}))
        (own.path / "state").mkdir(parents=True)
        own.make()

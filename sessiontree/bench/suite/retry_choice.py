"""Which samples of a run are solved again, as options name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from sessiontree import ConfigError
from sessiontree.contracts.values.quick_dataclass import dataclass

STATUSES: Final = ("error", "timeout", "budget", "empty", "failed", "not-passed")


@dataclass(frozen=True, slots=True)
class RetryChoice:
    """Which samples of a run are solved again.

    Args:
        statuses: How they ended: ``error``, ``timeout``, ``budget``, ``empty``, ``failed`` (lost again and
            again) or ``not-passed``; none = in any way.
        samples: Ids, or patterns such as ``add-*``; none = all.

    Raises:
        ConfigError: nothing is chosen, or a status is unknown.
    """

    statuses: Sequence[str] = ()
    samples: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check the choice."""
        unknown = [each for each in self.statuses if each not in STATUSES]
        if unknown:
            raise ConfigError(f"status {unknown[0]!r}; give one of {', '.join(STATUSES)}")
        if not self.statuses and not self.samples:
            raise ConfigError(f"nothing is chosen; give --status ({', '.join(STATUSES)}) or --sample ID")

    def takes(self, sample_id: str, ways: Set[str]) -> bool:
        """Whether a sample is solved again.

        Args:
            sample_id: The sample.
            ways: How it ended, as statuses name it.
        """
        is_named = not self.samples or any(
            each == sample_id or fnmatchcase(sample_id, each) for each in self.samples
        )
        return is_named and (not self.statuses or bool(ways & set(self.statuses)))

    def check_samples(self, known: Iterable[str]) -> None:
        """Refuse a word that names no sample of a run.

        Args:
            known: The ids of its samples.

        Raises:
            ConfigError: the run has no such sample; names near ones.
        """
        names = sorted(known)
        for word in self.samples:
            if word not in names and not any(fnmatchcase(each, word) for each in names):
                near = get_close_matches(word, names, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"the run has no sample {word!r}{hint}")

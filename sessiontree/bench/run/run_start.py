"""The start of a command on a run: what the ledger must hold, who may go on, and what is noted of it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from functools import partial

from sessiontree import ConfigError
from sessiontree.bench.ledger.ledger import Ledger
from sessiontree.bench.ledger.retry_samples import mark_chosen
from sessiontree.bench.ledger.run_log import (
    LoggedCommand,
    NewCommand,
    begin_command,
    check_samples,
    enter_samples,
    get_last_control,
    is_begun,
    note_work,
    read_controls,
)
from sessiontree.bench.provenance.circumstances import collect_circumstances
from sessiontree.bench.provenance.provenance import collect_provenance
from sessiontree.bench.results.recorded_run import LEDGER
from sessiontree.bench.run.place.run_place import CONFIG, RunPlace
from sessiontree.bench.suite.samples import SampleData


class RunCommand:
    """A command that works on a run, as the ledger logs it.

    Args:
        place: The run.
        ledger: Its ledger.
        owner: The name of this program.
    """

    def __init__(self, place: RunPlace, ledger: Ledger, owner: str) -> None:
        self._place = place
        self._ledger = ledger
        self._owner = owner
        self._began_s = time.monotonic()
        self._logged: LoggedCommand | None = None
        self._after = 0

    async def begin(self, *, had_config: bool) -> None:
        """Enter the samples, and log the command.

        Args:
            had_config: Whether the directory held a ``config.json`` before the ledger was opened.

        Raises:
            ConfigError: the directory holds another run, the ledger was emptied, samples differ, or the code
                does and the command does not accept that.
        """
        place = self._place
        data = await asyncio.to_thread(_collect_data, place)
        facts = await asyncio.to_thread(
            collect_provenance, place.suite, place.chosen, place.model, place.time_limits()
        )
        circumstances = await asyncio.to_thread(
            collect_circumstances, place.suite.folder, place.select_shown_options()
        )
        if had_config:
            # First: a ledger that was emptied would otherwise be filled as that of a new run, and its scores
            # be forgotten.
            await self._ledger.do(self._check_begun)
        await self._ledger.do(lambda db: check_samples(db, data))
        chosen = [sample.id for sample in place.chosen]
        positions = [data[name].position for name in chosen] if place.options.samples else None
        held = await self._ledger.prepare(
            place.identity(), chosen, place.epochs, place.options.retries, positions
        )
        place.check(held)
        new = NewCommand(self._owner, "run", facts, circumstances, place.options.accept_changes)

        def log(db: sqlite3.Connection) -> LoggedCommand:
            enter_samples(db, (data[name] for name in chosen))
            self._after = get_last_control(db)
            return begin_command(db, new)

        self._logged = await self._ledger.do(log)
        self._ledger.provenance = self._logged.provenance
        place.write_config(held)
        if place.options.retry is not None:
            count = await self._ledger.do(partial(mark_chosen, choice=place.options.retry))
            place.options.progress.say(f"{count:,} samples wait again; their earlier scores stay as history")
        for change in self._logged.accepted:
            place.options.progress.say(f"accepted: {change}")
        await self.take_controls()

    def _check_begun(self, db: sqlite3.Connection) -> None:
        if not is_begun(db):
            path = self._place.path
            raise ConfigError(
                f"run_dir {str(path)!r} has a {CONFIG}, and its {LEDGER} is empty: its scores are gone; "
                f"restore {LEDGER} from a backup, or give another directory"
            )

    async def take_controls(self) -> None:
        """Take over what other commands have set meanwhile, and say it; note how long this one has worked."""
        after, worked_ms = self._after, self._measure_worked_ms()

        def read(db: sqlite3.Connection) -> dict[str, str]:
            if self._logged is not None:
                note_work(db, self._logged.number, worked_ms)
            return read_controls(db, after)

        for change in self._place.settings.take(await self._ledger.do(read)):
            self._place.options.progress.say(change)
        self._ledger.sample_timeout_s = self._place.sample_timeout_s

    async def end(self) -> None:
        """Log the end of the command."""
        logged, worked_ms = self._logged, self._measure_worked_ms()
        if logged is not None:
            await self._ledger.do(lambda db: note_work(db, logged.number, worked_ms, is_over=True))

    def _measure_worked_ms(self) -> int:
        return round((time.monotonic() - self._began_s) * 1000)


def _collect_data(place: RunPlace) -> dict[str, SampleData]:
    return {each.id: SampleData.of(each, position) for position, each in enumerate(place.samples.values())}

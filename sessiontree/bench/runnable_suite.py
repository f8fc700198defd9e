"""A suite that can be run: what programs and files of suites make, with its results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sessiontree.bench.suite.suite import SuiteDefinition

if TYPE_CHECKING:
    from sessiontree.bench.run_results import RunResults


class Suite(SuiteDefinition):
    """Samples, the solver that works on them, and the scorers that judge the outcome; it can be run.

    Its arguments are those of :class:`~sessiontree.bench.suite.suite.SuiteDefinition`.
    """

    async def run(self, run_dir: str | Path, **options: Any) -> RunResults:
        """Run the suite, or go on with an interrupted run; every sample is scored once.

        Several programs may do the same at the same time: they share the samples.

        Args:
            run_dir: Directory of the run: its ledger, its trees' journals, kept workspaces and results.
            options: Members of :class:`sessiontree.bench.run.place.run_place.RunOptions` by name: ``model``,
                ``epochs``, ``limit``, ``concurrency``, ``sample_timeout_s``, ``wall_timeout_s``,
                ``max_cost_usd``, ``backend``, ``address``, ``shards``, ``retries``, ``provider_wait_s``,
                ``keep``, ``progress``, ``samples``, ``fail_on_error``, ``accept_changes``, ``tags``,
                ``metadata``, ``suite_name``, ``retry``.

        Raises:
            ConfigError: an option or a sample is wrong, or the directory holds another run; says what
                differs.
            EngineLost: the runtime was lost again and again; the same call goes on later.
        """
        # A file that only defines suites is imported quickly: what runs them is loaded when one runs.
        from sessiontree.bench.run.runner import run_suite

        return await run_suite(self, run_dir, options)

    def run_sync(self, run_dir: str | Path, **options: Any) -> RunResults:
        """Run the suite without ``await``; also in a cell of a notebook.

        ``run_dir`` and ``options`` are those of :meth:`run`, and so are the errors.
        """
        from sessiontree.bench.run.runner import run_blocking

        return run_blocking(self, run_dir, options)

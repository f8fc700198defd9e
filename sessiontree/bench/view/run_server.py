"""The server of runs: their pages for browsers of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sessiontree import ConfigError
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.version import explain_installation

if TYPE_CHECKING:
    from sessiontree.serve.listen import PageServer


def make_server(runs: Sequence[RecordedRun], port: int = 0) -> PageServer:
    """Return a server of runs that is not started yet.

    Raises:
        ConfigError: the extra ``serve`` is not installed, or the port can't be used.
    """
    try:
        from sessiontree.bench.view.run_site import RunSite
        from sessiontree.serve.listen import Address, PageServer
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"pages need the extra serve ({error.name} is missing): {explain_installation('serve')}. "
            "With --html DIR the runs become a folder that a browser opens without a server"
        ) from error
    return PageServer(RunSite(runs), Address(port=port))

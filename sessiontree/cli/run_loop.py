"""Running: one command's body, and every way it can end, as an exit code and at most one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from sessiontree.channels.shown import visible
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.errors import SessionTreeError

BROKEN_PIPE, UNUSABLE, INTERRUPTED = 1, 2, 130
"""Exit codes: nobody reads on; usage, configuration or state is wrong; Ctrl-C."""


def run(load: Callable[[], Callable[..., int]], options: Mapping[str, Any]) -> int:
    """Run a command and return its exit code; what it can't do is said in one line on stderr.

    Args:
        load: Brings the command's body: a function of a screen and the options.
        options: The body's options.
    """
    try:
        return load()(RichScreen(sys.stdout), **options)
    except BrokenPipeError:
        # what is still buffered must not be written when the interpreter ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (SessionTreeError, OSError) as error:
        sys.stderr.write(f"sessiontree: {type(error).__name__}: {visible(str(error))}\n")
        return UNUSABLE
    except KeyboardInterrupt:
        sys.stderr.write("sessiontree: interrupted\n")
        return INTERRUPTED

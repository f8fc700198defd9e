"""Options that several commands share, told in the same words everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", help="Where the journal lies [default: the platform's state folder].", readable=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

"""The program that tries every escape and every errand, and tells what came of each as one JSON object.

Arguments: directory of grounds, id of a process outside, name of an abstract socket listened on outside.
Every attempt has a directory of its own name in the grounds and is made in a process of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.unit.sandbox.allowed_work_fixtures import ERRANDS
from tests.unit.sandbox.escape_fixtures import Grounds, outcome
from tests.unit.sandbox.file_escape_fixtures import CONTENTS, METADATA
from tests.unit.sandbox.process_escape_fixtures import SECRETS, SYSTEM

EVERY = {**CONTENTS, **METADATA, **SECRETS, **SYSTEM, **ERRANDS}

if __name__ == "__main__":
    root, outside, name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    told = {
        title: outcome(
            attempt, Grounds(root / "rows" / title, root / "logs", root / "kept" / "hidden", outside, name)
        )
        for title, attempt in EVERY.items()
    }
    sys.stdout.write(json.dumps(told))

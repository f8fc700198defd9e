"""A tree in the chat of JupyterLab: copy this file into ``.jupyter/personas/`` of the directory of the chats.

JupyterLab needs ``jupyter-ai-acp-client``. The tree runs in the environment of the command, which may be
another one; ``TREE_COMMAND`` names the command with its options, such as a path and ``--tier system``.
"""

import os
import shlex
import shutil
from pathlib import Path

from jupyter_ai_acp_client.base_acp_persona import BaseAcpPersona
from jupyter_ai_persona_manager import PersonaDefaults, PersonaRequirementsUnmet

COMMAND = shlex.split(os.environ.get("TREE_COMMAND", "sessiontree acp"))
AVATAR = Path(__file__).with_name("tree.svg")
PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="16" fill="#2f6f4f"/>
<path d="M16 9v6M16 15L9 21M16 15l7 6" stroke="#fff" stroke-width="2" fill="none"/>
<g fill="#fff"><circle cx="16" cy="8" r="3"/><circle cx="9" cy="22" r="3"/><circle cx="23" cy="22" r="3"/></g>
</svg>"""

if shutil.which(COMMAND[0]) is None:
    raise PersonaRequirementsUnmet(f"{COMMAND[0]} is not here; name the command in TREE_COMMAND")


class TreePersona(BaseAcpPersona):
    """One tree for each chat; its approval requests are buttons."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        AVATAR.write_text(PICTURE, "utf-8")
        super().__init__(*args, executable=COMMAND, **kwargs)

    @property
    def defaults(self) -> PersonaDefaults:
        """How the chat shows it."""
        return PersonaDefaults(
            name="sessiontree",
            description="A tree of sessions over the directory of this chat.",
            avatar_path=str(AVATAR),
            system_prompt="",
        )

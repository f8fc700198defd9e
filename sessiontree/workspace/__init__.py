"""The files below one root: reading and changing them. Only this package opens a user's files.

Floor 3. A path is resolved below the root's directory descriptor, by the kernel if it can. The descriptor
that was checked is also used, so a link that is swapped in between has no effect.
Not here: deciding who may write (``policy``), confining commands (``sandbox``), or what a file means
(tools).
"""

from sessiontree.workspace.outside import OutsideReader, OutsideRoots, OutsideWriter
from sessiontree.workspace.reader import WorkspaceReader
from sessiontree.workspace.skill_reader import SkillReader
from sessiontree.workspace.writer import WorkspaceWriter

__all__ = [
    "OutsideReader",
    "OutsideRoots",
    "OutsideWriter",
    "SkillReader",
    "WorkspaceReader",
    "WorkspaceWriter",
]

"""What words and variables mean to a shell itself: which leave the meaning of other words alone.

A builtin or keyword of bash and dash that is not listed here as plain makes a command open, and so does every
variable that a shell or a command's environment sets. A test compares the lists with those of the shells.

Source: bash(1), "SHELL BUILTIN COMMANDS", "Shell Variables"; dash(1).
"""

from __future__ import annotations

import re
from typing import Final


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS: Final = _split_words("if then elif else fi while until do done esac ! { } time")
"""Words that may precede a program."""
COMPOUND: Final = _split_words("for case [[ ]] in")
"""Other keywords whose words are read."""
WRAPPERS: Final = frozenset({"builtin", "command", "exec"})
"""Builtins that run what follows them."""
QUIET: Final = _split_words(": [ ] [[ break case continue exit false kill pwd return test true wait")
"""What neither runs nor writes what its words say, so that they may hold anything."""
SPEAKING: Final = frozenset({"echo", "printf"})
"""What only writes what its words say."""
PLAIN_BUILTINS: Final = (
    QUIET
    | SPEAKING
    | WRAPPERS
    | _split_words("""
        bg caller cd dirs disown export fg hash help jobs logout popd pushd readonly set suspend times type
        ulimit umask
        """)
)
"""Builtins that do not change what later words mean; some of them only with plain arguments."""
OPENING: Final = _split_words("""
    . alias bind chdir compgen complete compopt coproc declare enable eval fc function getopts history let
    local mapfile read readarray select shift shopt source trap typeset unalias unset
    """)
"""Builtins and keywords that set variables or options, or run text, in ways that are not read."""
RUNS_NOTHING: Final = (
    QUIET | SPEAKING | _split_words("cat cd cp head ls mkdir mv pushd popd rm rmdir tail touch type wc which")
)
"""Programs that never run what their arguments name."""
CHOOSERS: Final = _split_words("find fd fdfind xargs parallel entr watch run-parts")
"""Programs that choose what they run by what they find or receive."""
SHELLS: Final = frozenset({"sh", "bash", "dash"})
OTHER_SHELLS: Final = _split_words(
    "ash csh elvish fish ksh ksh93 mksh oksh pwsh rbash tcsh yash zsh busybox toybox xonsh"
)
SHELL_OPTIONS: Final = frozenset({"errexit", "nounset", "pipefail", "xtrace"})
"""Options by their long names that do not change what words mean."""
_SHELL_VARIABLES: Final = _split_words("""
    _ CHILD_MAX COLUMNS COMPREPLY COMP_CWORD COMP_KEY COMP_LINE COMP_POINT COMP_TYPE COMP_WORDBREAKS
    COMP_WORDS COPROC DIRSTACK EMACS ENV EPOCHREALTIME EPOCHSECONDS EUID EXECIGNORE FCEDIT FIGNORE FUNCNAME
    FUNCNEST GLOBIGNORE GLOBSORT GROUPS HISTCMD HISTCONTROL HISTFILE HISTFILESIZE HISTIGNORE HISTSIZE
    HISTTIMEFORMAT HOSTFILE HOSTNAME HOSTTYPE IFS IGNOREEOF INPUTRC INSIDE_EMACS LINENO LINES MACHTYPE MAIL
    MAILCHECK MAILPATH MAPFILE OLDPWD OPTARG OPTERR OPTIND OSTYPE PIPESTATUS POSIXLY_CORRECT PPID
    PROMPT_COMMAND PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 PWD RANDOM READLINE_ARGUMENT READLINE_LINE
    READLINE_MARK READLINE_POINT REPLY SECONDS SHELLOPTS SHLVL SRANDOM TIMEFORMAT TMOUT UID auto_resume
    histchars TEXTDOMAIN TEXTDOMAINDIR
    """)
_ENVIRONMENT: Final = _split_words("CDPATH HOME LANG LOGNAME PATH SHELL TERM TMPDIR USER LANGUAGE OLDPWD")
"""Variables that a command's environment holds, and those that a shell looks up in it."""
_PLAIN_TO_SET: Final = _split_words(
    "CDPATH COLUMNS ENV BASH_ENV HOME LANGUAGE LINES LOGNAME PATH SHELL TERM TMPDIR USER"
)
_SHELLS_PREFIXES: Final = ("BASH", "LC_")
_PLAIN_OPTIONS: Final = re.compile(r"[-+][cefuvx]+")
_NAMED_OPTIONS: Final = re.compile(r"[-+][efuvx]*o")


def is_shells_variable(name: str) -> bool:
    """Whether a shell or the environment may have set a variable before the text does."""
    return name in _SHELL_VARIABLES or name in _ENVIRONMENT or name.startswith(_SHELLS_PREFIXES)


def is_plain_to_set(name: str) -> bool:
    """Whether a variable's value does not change what a shell's words mean."""
    return name in _PLAIN_TO_SET or not is_shells_variable(name)


def is_plain_option(word: str) -> bool:
    """Whether an option of a shell, or of ``set``, does not change what its words mean."""
    return _PLAIN_OPTIONS.fullmatch(word) is not None


def is_named_option(word: str) -> bool:
    """Whether an option of a shell, or of ``set``, takes the name of another one from the next word."""
    return _NAMED_OPTIONS.fullmatch(word) is not None

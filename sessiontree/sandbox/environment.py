"""The environment of a command: built anew for each, and what may be added to it.

Nothing is inherited from the runtime's own processes, so no key, token or address in their environment ever
reaches a command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sessiontree.contracts.errors import PermissionDenied, ValidationError
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.policy.commands.wrappers import is_harmless_variable

HOME: Final = "/run/session"
SYSTEM_PATH: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
MAX_VALUE_BYTES: Final = 32_768
MAX_VARIABLES: Final = 100

_LOADERS: Final = """
    PATH HOME IFS ENV SHELL
    BASH_ENV BASHOPTS SHELLOPTS PS4 PROMPT_COMMAND CDPATH GLOBIGNORE FPATH ZDOTDIR
    GCONV_PATH GETCONF_DIR GLIBC_TUNABLES HOSTALIASES LOCALDOMAIN LOCPATH MALLOC_TRACE NLSPATH
    RESOLV_HOST_CONF RES_OPTIONS
    PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONINSPECT PYTHONUSERBASE PYTHONBREAKPOINT PYTHONWARNINGS
    PYTHONEXECUTABLE PYTHONPLATLIBDIR PYTHONPYCACHEPREFIX
    PERL5LIB PERL5OPT PERL5DB PERLLIB RUBYLIB RUBYOPT GEM_HOME GEM_PATH BUNDLE_GEMFILE
    NODE_OPTIONS NODE_PATH LUA_INIT LUA_PATH LUA_CPATH PHPRC PHP_INI_SCAN_DIR TCLLIBPATH R_PROFILE R_ENVIRON
    CLASSPATH JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS DOTNET_STARTUP_HOOKS
    CORECLR_ENABLE_PROFILING CORECLR_PROFILER_PATH
    EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE
    OPENSSL_CONF OPENSSL_ENGINES OPENSSL_MODULES GTK_MODULES GIO_EXTRA_MODULES QT_PLUGIN_PATH
    RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER MAKEFLAGS
"""
LOADERS: Final = frozenset(_LOADERS.split())
"""Variables that decide which program or library runs, or what a shell or an interpreter runs first."""
LOADER_PREFIXES: Final = ("LD_", "DYLD_", "BASH_FUNC_", "GIT_", "SESSIONTREE_", "RAY_")


def check_variables(env: Mapping[str, str]) -> None:
    """Accept the variables a command is to get besides its own.

    Raises:
        ValidationError: one may not be set, is no variable, or is too long; names it by its pointer.
    """
    if len(env) > MAX_VARIABLES:
        raise ValidationError(f"{len(env)} variables are too many; at most {MAX_VARIABLES} are taken", "/env")
    for name, value in env.items():
        pointer = "/env/" + name.replace("~", "~0").replace("/", "~1")
        if not (name.isascii() and name.isidentifier()):
            raise ValidationError(f"{name!r} is no name of an environment variable", pointer)
        if name in LOADERS or name.startswith(LOADER_PREFIXES):
            raise ValidationError(
                f"{name} may not be set here: it decides which code runs; set it within the command", pointer
            )
        if "\0" in value or len(value.encode("utf-8", "surrogatepass")) > MAX_VALUE_BYTES:
            raise ValidationError(
                f"the value of {name} holds a NUL or more than {MAX_VALUE_BYTES} bytes", pointer
            )


def check_plain_variables(env: Mapping[str, str]) -> None:
    """Accept the variables of a program that is run for being known to be harmless.

    Raises:
        PermissionDenied: one could change what the program does; names it.
    """
    for name, value in env.items():
        if not is_harmless_variable(name, value):
            raise PermissionDenied(
                PermissionTier.SYSTEM,
                f"can't set {name!r}: this session runs known harmless programs alone, and gives them no "
                "more than LANG and LC_… (C, POSIX or a locale of UTF-8), COLUMNS and NO_COLOR",
            )


def fresh_environment(programs: Sequence[str], workdir: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a command.

    Args:
        programs: Directories of programs in the order they are searched.
        workdir: Where it starts.
        env: Checked variables of the caller.
    """
    return {
        **env,
        "PATH": ":".join(programs),
        "HOME": HOME,
        "USER": "session",
        "LOGNAME": "session",
        "LANG": env.get("LANG", "C.UTF-8"),
        "TERM": env.get("TERM", "dumb"),
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        "PWD": workdir,
    }

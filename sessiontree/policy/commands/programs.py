"""Programs that are known: which of them only read, which only make something new, which do what they say.

No program is here that runs others, or that has a language: shells, interpreters, ``awk``, ``sed``, ``jq``,
``find``, ``make``, ``git``, pagers, editors. What a program reads its instructions from may have been
changed since somebody looked at it.

Source: the manuals of GNU coreutils 9, grep 3 and diffutils 3; options that write, run or wait for ever are
left out (``sort --output``, ``--compress-program``, ``tail --follow``, a second operand of ``uniq``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from sessiontree.policy.commands.arguments import Grammar

Effect: TypeAlias = Literal["reads", "makes"]


class Program(NamedTuple):
    """One known program."""

    effect: Effect
    """Whether it changes nothing, or makes what is not there yet."""
    grammar: Grammar


def _program(  # noqa: PLR0913 - one value for each part of a grammar
    flags: str = "",
    valued: str = "",
    long: str = "",
    *,
    effect: Effect = "reads",
    least: int = 0,
    most: int | None = None,
    takes_number: bool = False,
    begins: str = "",
) -> Program:
    """Return a program; of its long options ``name=`` has a value and ``name[=]`` may have one."""
    names = long.split()
    grammar = Grammar(
        flags,
        valued,
        frozenset(name for name in names if not name.endswith(("=", "]"))),
        frozenset(name[:-1] for name in names if name.endswith("=")),
        frozenset(name[:-3] for name in names if name.endswith("[=]")),
        takes_number,
        least,
        most,
        begins,
    )
    return Program(effect, grammar)


_SUMS = _program("bctwz", "", "binary check tag text zero ignore-missing quiet status strict warn")
_OPPOSITE = _program("i", "t", "initial tabs=")

PROGRAMS: Final[Mapping[str, Program]] = {
    "basename": _program("az", "s", "multiple zero suffix=", least=1),
    "cat": _program("AbeEnstTuv", "", "show-all number number-nonblank show-ends show-tabs squeeze-blank"),
    "cksum": _program(),
    "cmp": _program("bls", "in", "print-bytes verbose quiet silent bytes= ignore-initial=", least=1, most=4),
    "comm": _program("123z", "", "check-order nocheck-order total output-delimiter=", least=2, most=2),
    "cut": _program("snz", "bcdf", "bytes= characters= delimiter= fields= complement only-delimited"),
    "date": _program("uR", "d", "utc universal date= iso-8601[=] rfc-3339= rfc-email", most=1, begins="+"),
    "df": _program("ahHiklPT", "tx", "all human-readable si inodes local portability print-type total"),
    "diff": _program(
        "abBdeinqrstuwyN",
        "UCW",
        "brief unified[=] context[=] ignore-case ignore-all-space ignore-blank-lines ignore-space-change "
        "side-by-side width= recursive new-file text minimal report-identical-files color[=]",
        least=2,
        most=2,
    ),
    "dirname": _program("z", "", "zero", least=1),
    "du": _program("abchHklLmPsSx", "dt", "all apparent-size human-readable summarize total max-depth="),
    "echo": _program("neE"),
    "expand": _OPPOSITE,
    "false": _program(),
    "fold": _program("bs", "w", "bytes spaces width="),
    "grep": _program(
        "abcEFGhHilLnoqsvwxyzZ",
        "ABCefm",
        "count extended-regexp fixed-strings basic-regexp no-filename with-filename ignore-case "
        "no-ignore-case files-with-matches files-without-match line-number only-matching quiet silent "
        "no-messages invert-match word-regexp line-regexp null-data null byte-offset text "
        "after-context= before-context= context= regexp= file= max-count= color[=] colour[=]",
        takes_number=True,
    ),
    "head": _program("qvz", "cn", "bytes= lines= quiet silent verbose zero-terminated", takes_number=True),
    "id": _program("aGgnruz", "", "group groups name real user zero"),
    "join": _program("iz", "aej12otv", "ignore-case header check-order nocheck-order", least=2, most=2),
    "ls": _program(
        "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1",
        "ITw",
        "all almost-all author escape directory classify[=] full-time group-directories-first no-group "
        "human-readable si dereference inode numeric-uid-gid literal quote-name reverse recursive size "
        "color[=] format= sort= time= time-style= indicator-style= ignore= hide= block-size= width=",
    ),
    "md5sum": _SUMS,
    "mkdir": _program("pv", "m", "parents verbose mode=", effect="makes", least=1),
    "nl": _program("p", "bdfhilnsvw", "body-numbering= number-format= number-width= no-renumber"),
    "nproc": _program("", "", "all ignore=", most=0),
    "od": _program("bcdfiloxsv", "AjNtS", "address-radix= skip-bytes= read-bytes= format= output-duplicates"),
    "paste": _program("sz", "d", "serial delimiters= zero-terminated"),
    "pwd": _program("LP", "", "logical physical", most=0),
    "readlink": _program("efmnqsvz", "", "canonicalize canonicalize-existing no-newline zero", least=1),
    "realpath": _program("eLmPqsz", "", "canonicalize-existing relative-to= relative-base= zero", least=1),
    "rev": _program(),
    "seq": _program("w", "fs", "equal-width format= separator=", least=1, most=3),
    "sha1sum": _SUMS,
    "sha256sum": _SUMS,
    "sha512sum": _SUMS,
    "sleep": _program(least=1),
    "sort": _program(
        "bcCdfghiMmnrRsuVz",
        "kt",
        "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort human-numeric-sort "
        "month-sort numeric-sort reverse version-sort unique stable zero-terminated "
        "key= field-separator= check[=]",
    ),
    "stat": _program("fLt", "c", "dereference file-system terse format= printf=", least=1),
    "tac": _program("b", "s", "before separator="),
    "tail": _program("qvz", "cn", "bytes= lines= quiet silent verbose zero-terminated", takes_number=True),
    "touch": _program("acm", "", "no-create", effect="makes", least=1),
    "tr": _program("cCdst", "", "complement delete squeeze-repeats truncate-set1", least=1, most=2),
    "true": _program(),
    "uname": _program("amnoprsv", "", "all kernel-name nodename kernel-release machine", most=0),
    "unexpand": _program("a", "t", "all first-only tabs="),
    "uniq": _program(
        "cdDiuz",
        "fsw",
        "count repeated unique ignore-case skip-fields= skip-chars= check-chars= zero-terminated",
        most=1,  # the second would be written
    ),
    "wc": _program("clLmw", "", "bytes chars lines max-line-length words total="),
    "whoami": _program(most=0),
}
"""By name; their operands may be anything."""

LITERAL: Final = frozenset({"chmod", "cp", "ln", "mv", "rm", "rmdir"})
"""Programs that change what their arguments name, nothing else: calls are alike if they are the same."""

HARMLESS: Final = tuple(sorted(name for name, program in PROGRAMS.items() if program.effect == "reads"))
"""Names of the programs that only read."""

"""Completion scripts of shells. They contain all words, and start no process during completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_BASH = """\
# bash completion of attncem; made by: attncem completion bash
_attncem() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= flags= words= values= keys=
    if [[ $cur == '=' ]]; then cur=; elif [[ $prev == '=' ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    (( COMP_CWORD > 1 )) && verb=${COMP_WORDS[1]}
    case $verb in @NESTED@) (( COMP_CWORD > 2 )) && verb="$verb ${COMP_WORDS[2]}" ;; esac
@TABLES@
    if [[ $values == '-' ]]; then COMPREPLY=(); return; fi
    if [[ -n $values ]]; then words=$values; elif [[ $cur == -* ]]; then words=$flags; else words="$words $keys"; fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _attncem attncem
"""
_ZSH = """\
#compdef attncem
# zsh completion of attncem; made by: attncem completion zsh
_attncem() {
    local cur=${words[CURRENT]} prev=${words[CURRENT-1]} verb= flags= arguments= values= keys=
    if [[ $cur == *=* ]]; then prev=${cur%%=*}; compset -P '*='; fi
    (( CURRENT > 2 )) && verb=${words[2]}
    case $verb in @NESTED@) (( CURRENT > 3 )) && verb="$verb ${words[3]}" ;; esac
@TABLES@
    if [[ $values == '-' ]]; then _files; return; fi
    if [[ -n $values ]]; then compadd -- ${=values}; _files; return; fi
    if [[ $cur == -* ]]; then compadd -- ${=flags}; return; fi
    [[ -n $arguments ]] && compadd -- ${=arguments}
    [[ -n $keys ]] && compadd -S '' -- ${=keys}
    [[ -z $verb ]] || _files
}
if [[ $funcstack[1] == _attncem ]]; then _attncem "$@"; else compdef _attncem attncem; fi
"""


@dataclass(frozen=True)
class Option:
    """An option of a verb; ``values`` are its possible values, where they are known."""

    flags: tuple[str, ...]
    meaning: str
    takes: bool
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerbWords:
    """A verb, or a verb and its nested verb, and its arguments: options, words, and with ``overrides`` KEY=VALUE."""

    words: str
    meaning: str
    options: Sequence[Option]
    arguments: Sequence[str]
    overrides: bool


Keys = Mapping[str, Sequence[str]]
"""Values by key, for keys with few values."""


def bash(verbs: Sequence[VerbWords], keys: Keys) -> str:
    """The script for bash: files are completed where no word fits."""
    return _filled(_BASH, verbs, keys, "words")


def zsh(verbs: Sequence[VerbWords], keys: Keys) -> str:
    """The script for zsh, as a file in $fpath or to be sourced."""
    return _filled(_ZSH, verbs, keys, "arguments")


def fish(verbs: Sequence[VerbWords], keys: Keys) -> str:
    """The script for fish: one line per word."""
    lines = ["# fish completion of attncem; made by: attncem completion fish"]
    for verb in verbs:
        above, _, name = verb.words.rpartition(" ")
        where = _seen(above) + f"; and not __fish_seen_subcommand_from {_below(above, verbs)}" if above else _FIRST
        lines.append(f"complete -c attncem -f -n {_quoted(where)} -a {name} -d {_quoted(verb.meaning)}")
        lines += [_fish_option(option, _seen(verb.words)) for option in verb.options]
        given = (f"{key}={value}" for key, values in keys.items() for value in values)
        words = " ".join([*verb.arguments, *((*_assignments(keys), *given) if verb.overrides else ())])
        nested = any(other.words.startswith(f"{verb.words} ") for other in verbs)
        if words and not nested:
            lines.append(f"complete -c attncem -n {_quoted(_seen(verb.words))} -a {_quoted(words)}")
    return "\n".join(lines) + "\n"


SCRIPTS: dict[str, Callable[[Sequence[VerbWords], Keys], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
"""Functions that make the script of each shell."""
_FIRST = "__fish_use_subcommand"


def _filled(script: str, verbs: Sequence[VerbWords], keys: Keys, words: str) -> str:
    """Fill in the tables of verbs and of values, which are the same for bash and zsh."""
    first = " ".join(verb.words for verb in verbs if " " not in verb.words)
    tables = ["case $verb in", f"    '') {words}={_quoted(first)} flags='--help --version' ;;"]
    tables += [f"    {_quoted(verb.words)}) {_following(verb, words)} ;;" for verb in verbs]
    tables += ["esac", "case $keys in", f"    all) keys={_quoted(' '.join(_assignments(keys)))} ;;", "esac"]
    tables += ['case "$verb $prev" in']
    for verb in verbs:
        tables += [_case(verb, option) for option in verb.options if option.takes]
    tables += [f"    *' {key}') values={_quoted(' '.join(values))} ;;" for key, values in keys.items() if values]
    tables.append("esac")
    nested = dict.fromkeys(verb.words.partition(" ")[0] for verb in verbs if " " in verb.words)
    filled = script.replace("@NESTED@", "|".join(nested) or "-")
    return filled.replace("@TABLES@", "\n".join(f"    {line}" for line in tables))


def _following(verb: VerbWords, words: str) -> str:
    flags = " ".join(flag for option in verb.options for flag in option.flags if flag.startswith("--"))
    return f"{words}={_quoted(' '.join(verb.arguments))} flags={_quoted(flags)}{' keys=all' if verb.overrides else ''}"


def _case(verb: VerbWords, option: Option) -> str:
    """Values of an option; a lone dash stands for files."""
    where = "|".join(_quoted(f"{verb.words} {flag}") for flag in option.flags)
    return f"    {where}) values={_quoted(' '.join(option.values) or '-')} ;;"


def _assignments(keys: Keys) -> list[str]:
    return [f"{key}=" for key in keys]


def _seen(words: str) -> str:
    return "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words.split())


def _below(above: str, verbs: Sequence[VerbWords]) -> str:
    return " ".join(verb.words.rpartition(" ")[2] for verb in verbs if verb.words.startswith(f"{above} "))


def _fish_option(option: Option, where: str) -> str:
    flags = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    takes = f" -r -a {_quoted(' '.join(option.values))}" if option.values else " -r" if option.takes else ""
    return f"complete -c attncem -n {_quoted(where)} {' '.join(flags)}{takes} -d {_quoted(option.meaning)}"


def _quoted(words: str) -> str:
    """Quoted as one word for every shell; the words contain no characters that would end or change it."""
    plain = words.replace("'", "’").replace("\\", "").replace("\n", " ").replace("%%", "%")
    return f"'{plain}'"

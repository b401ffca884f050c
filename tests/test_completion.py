"""Completion scripts: what a real bash offers, and that other shells can read theirs."""

from __future__ import annotations

import argparse
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attncem.cli.main import _parser, main
from attncem.cli.verbs.shells import SCRIPTS, VerbWords
from attncem.config.loading.describe import describe_options
from attncem.config.loading.load import packaged_configs
from attncem.config.threats import THREATS

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="no bash here")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The script of every shell, as the command prints it."""
    folder, found = tmp_path_factory.mktemp("completion"), {}
    for shell in SCRIPTS:
        found[shell] = folder / shell
        command = [sys.executable, "-m", "attncem", "completion", shell]
        found[shell].write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def offered(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word, with words divided as bash divides them."""
    line = " ".join(f"'{word}'" for word in ("attncem", *words))
    asked = f"source '{script}'; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _attncem 2>/dev/null; "
    done = subprocess.run(
        [BASH or "bash", "--norc", "-c", asked + 'printf "%s\\n" "${COMPREPLY[@]}"'],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


@needs_bash
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["tr"], ["train"]),
        (["--v"], ["--version"]),
        (["train", "--conf"], ["--config"]),
        (["train", "--config", "demo-n"], ["demo-none"]),
        (["train", "--config", "=", "demo-n"], ["demo-none"]),
        (["train", "training.epo"], ["training.epochs="]),
        (["train", "surrogate.name", "="], ["none", "kmeans", "gmm", "capacity", "logdet", "gated", "slot", "hybrid"]),
        (["train", "surrogate.name", "=", "ga"], ["gated"]),
        (["train", "--out", ""], []),
        (["audit", "--suite", "st"], ["standard"]),
        (["audit", "--threat", "held"], ["held_out"]),
        (["audit", ""], []),
        (["campaign", "sta"], ["status"]),
        (["campaign", "run", "demo-s"], ["demo-selection"]),
        (["campaign", "run", "--eng"], ["--engine"]),
        (["campaign", "run", "--engine", "s"], ["slurm"]),
        (["completion", "f"], ["fish"]),
        (["nothing", "x"], []),
    ],
)
def test_bash_offers(scripts: dict[str, Path], words: list[str], found: list[str]) -> None:
    """Where it offers nothing, files are completed."""
    assert sorted(offered(scripts["bash"], *words)) == sorted(found)


@needs_bash
def test_every_name_and_key_is_offered(scripts: dict[str, Path]) -> None:
    assert offered(scripts["bash"], "train", "--config", "") == list(packaged_configs())
    assert offered(scripts["bash"], "audit", "--threat", "") == list(THREATS)
    keys = [word for word in offered(scripts["bash"], "train", "") if word.endswith("=")]
    assert keys == [f"{key}=" for key in dict.fromkeys(option.key for option in describe_options())]


def test_every_verb_and_option_stands_in_every_script(scripts: dict[str, Path]) -> None:
    parser, verbs = _parser()
    names = list(verbs)
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    assert list(verbs.choices) == names
    for shell, script in scripts.items():
        said = script.read_text()
        for name, verb in verbs.choices.items():
            assert re.search(rf"\b{name}\b", said), (shell, name)
            for flag in (flag for action in verb._actions for flag in action.option_strings if flag.startswith("--")):
                assert (f"-l {flag[2:]} " if shell == "fish" else flag) in said, (shell, name, flag)


def typed(folder: Path, script: Path, keys: str, until: str) -> str:
    """What an interactive bash shows after these keys."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(PS1="$ ", TERM="dumb", INPUTRC="/dev/null", COLUMNS="200")
        os.execv(BASH or "/bin/bash", ["bash", "--norc", "--noprofile"])
    try:
        os.write(terminal, f"source '{script}'\n".encode())
        time.sleep(0.3)
        os.write(terminal, keys.encode())
        shown, end = "", time.monotonic() + 20
        while until not in shown.partition("source")[2] and time.monotonic() < end:
            shown += os.read(terminal, 4096).decode(errors="replace")
        return shown
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


@needs_bash
@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("attncem tra\t--conf\tdemo-n\t", "attncem train --config demo-none "),
        ("attncem train surrogate.na\tga\t", "attncem train surrogate.name=gated "),
        ("attncem audit run\t", "attncem audit runs/"),
        ("attncem train --out run\t", "attncem train --out runs/"),
    ],
)
def test_keys_in_a_real_bash(scripts: dict[str, Path], tmp_path: Path, keys: str, line: str) -> None:
    (tmp_path / "runs").mkdir()
    assert line in typed(tmp_path, scripts["bash"], keys, line)


@pytest.mark.parametrize("shell", list(SCRIPTS))
def test_a_shell_that_is_here_can_read_its_script(scripts: dict[str, Path], shell: str) -> None:
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"no {shell} here")
    subprocess.run([program, "-n", str(scripts[shell])], check=True)


def test_quotes_in_a_meaning_break_no_script() -> None:
    verb = VerbWords("do", "what isn't \\ said\nhere", [], ["a"], overrides=False)
    for make in SCRIPTS.values():
        assert len(re.findall("'", make([verb], {}))) % 2 == 0


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "tcsh"])
    assert ended.value.code == 2
    assert "bash" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
@pytest.mark.parametrize(
    ("line", "found"),
    [("attncem tra", "train"), ("attncem train --config demo-n", "demo-none"), ("attncem audit --suite q", "quick")],
)
def test_what_a_real_fish_offers(scripts: dict[str, Path], line: str, found: str) -> None:
    asked = ["fish", "--no-config", "-c", f"source '{scripts['fish']}'; complete -C '{line}'"]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert [offer.partition("\t")[0] for offer in done.stdout.splitlines()] == [found]

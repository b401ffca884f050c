"""Configurations and suites that nobody meant: whatever is given, a ConfigError comes back, and soon."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attncem.base.types import ConfigError
from attncem.cli.main import main
from attncem.config.loading.flat import plain
from attncem.config.loading.load import load_config, packaged_folder
from attncem.config.loading.overrides import parse_cli_overrides
from attncem.config.loading.tree import known_keys, option_tree
from attncem.config.loading.yaml_text import parse_yaml
from attncem.config.options.run import RunConfig
from attncem.config.options.suites import Suite, load_suite, override_tree, packaged_suites
from fuzzing import Tally, amount, limited_memory, start

QUICK, MANY = 300, 5000
VALUES = (
    *("", "~", "null", "true", "yes", "0", "-1", "1", "0.5", "5e-05", "1_000", "0o17", "1:30", "2024-01-01", "text"),
    *("1e308", "-1e308", "1e-308", "1e400", ".inf", "-.inf", ".nan", "10000000000000000000", "-9223372036854775809"),
    *("9" * 30, "9" * 5000, "0x" + "f" * 6000, "a" * 5000, "-" * 3000),
    *("[]", "{}", "[[]]", "[1, 2]", "{a: 1}", "{name: gated}", "{name: []}", "{name: {}}", "[{name: gaussian}]"),
    *("*a", "&a [*a]", "[&a [x, x], *a]", "<<: {a: 1}", "!!merge <<: {a: 1}", "? [a]\n: b", "'", "{", "- a\n- b"),
    *("!!bool x", "!!int ''", "!!int x", "!!int [a]", "!!float ''", "!!null x", "!!map x", "!!map [a]", "!!seq {a: 1}"),
    *("!!str [a]", "!!set {a}", "!!timestamp x", "!!binary x", "!!omap [a]", "!!pairs [a]", "!!value =", "! x", "!x y"),
    *("!!python/object:os.system x", '"\\ud800"', '"\\0"', '"\\x1b[31m"', '"\\Uffffffff"', "\u2028", "\ufeff"),
    *("[" * 400, "[" * 5000, "{a: " * 300, "{name: " * 60 + "x" + "}" * 60, "- " * 500, "%YAML 9.9", "---\n---"),
    *("local_dp", "{name: local_dp, epsilon: 1e29}", "{name: laplace, scale: 1e29}", "{name: laplace, scale: []}"),
)
SOURCES = ("demo", "''", "[]", ".", "..", "///", "/dev/zero", "./x.yaml", "~nobody/x.yaml", '"a\\0.yaml"', "a" * 5000)
STRANGE_KEYS = (
    "",
    ".",
    "..",
    "-",
    "a" * 5000,
    "x." * 2000,
    "\x1b[1m",
    "channel.0",
    "channel.9",
    "channel." + "9" * 5000,
)
MARKS = "{}[]:,*&!?|>-'\"\\\t\0\x1bé#%@`~\n \u2028"


class Maker:
    """Texts and overrides that are nearly right, from one seed."""

    def __init__(self, seed: int, texts: list[str], keys: tuple[str, ...]) -> None:
        self.rng, self.texts, self.keys = random.Random(seed), texts, keys

    def text(self) -> str:
        """A packaged YAML with a few things changed."""
        lines = self.rng.choice(self.texts).splitlines()
        for _ in range(self.rng.randint(1, 4)):
            self._change(lines)
        return "\n".join(lines)

    def _change(self, lines: list[str]) -> None:
        place = self.rng.randrange(len(lines))
        line, value, key = lines[place], self.rng.choice(VALUES), self.rng.choice(self.keys)
        cut = self.rng.randrange(len(line) + 1)
        changed = (
            f"{line.partition(':')[0]}: {value}",
            value,
            f"{line}\n{self.rng.choice(lines)}",
            "  " * self.rng.randrange(4) + line.strip(),
            line[:cut] + self.rng.choice(MARKS) + line[cut:],
            "",
            f"{line}\n{key.partition('.')[0]}: {value}",
            f"{line}\nextends: {self.rng.choice(SOURCES)}",
            f"{key.rpartition('.')[2]}: {value}",
        )
        lines[place] = self.rng.choice(changed)

    def override(self) -> str:
        """A key, often a known one, and a value of any kind."""
        known = self.rng.choice(self.keys)
        key = self.rng.choices(
            (known, f"{known}.{self.rng.choice(self.keys)}", self.rng.choice(STRANGE_KEYS)), (8, 1, 1)
        )
        return f"{key[0]}={self.rng.choice(VALUES)}"

    def overrides(self) -> list[str]:
        return [self.override() for _ in range(self.rng.randint(1, 4))]

    def bytes(self) -> bytes:
        return self.rng.randbytes(self.rng.randrange(300))


def texts_of(root: type) -> list[str]:
    folder = packaged_folder(root)
    assert folder is not None
    return [file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".yaml")]


def survives(attempt: Callable[[], object], given: object) -> None:
    tally = Tally("one")
    tally.survives(attempt, given, ConfigError)
    assert not tally.failures, tally.failures[0]


def load_file(file: Path, content: bytes, loader: Callable[[Path], object]) -> Callable[[], object]:
    file.write_bytes(content)
    return lambda: loader(file)


def fuzz_runs(count: int, folder: Path, seed: int = 20_2611) -> None:
    """`count` configurations: a file and a list of overrides in turn, which are also read as words of a command."""
    make, tally = Maker(seed, texts_of(RunConfig), known_keys(option_tree(RunConfig))), Tally("configurations")
    for number in range(count // 2):
        text, words = make.text(), make.overrides()
        base = make.rng.choice((None, "demo", "demo-none", "hybrid-000"))
        content = make.bytes() if number % 10 == 0 else text.encode("utf-8", "surrogatepass")
        tally.survives(load_file(folder / "given.yaml", content, load_config), content, ConfigError)
        if number % 5 == 0:
            tokens = [part for word in words for part in (f"--{word.partition('=')[0]}", word.partition("=")[2])]
            survives(lambda tokens=tokens: parse_cli_overrides(tokens), tokens)
            survives(lambda base=base, words=words: load_config(base, parse_cli_overrides(words)), words)
        tally.survives(lambda base=base, words=words: load_config(base, words), (base, words), ConfigError)
    tally.check()


def fuzz_suites(count: int, folder: Path, seed: int = 18) -> None:
    """`count` suites: a file and a list of overrides in turn."""
    suites = packaged_suites()
    keys = tuple(key for suite in suites.values() for key in known_keys(override_tree(suite)))
    make, tally = Maker(seed, texts_of(Suite), keys), Tally("suites")
    for number in range(count // 2):
        text, words = make.text(), make.overrides()
        name = make.rng.choice(list(suites))
        content = make.bytes() if number % 10 == 0 else text.encode("utf-8", "surrogatepass")
        tally.survives(load_file(folder / "given.yaml", content, load_suite), content, ConfigError)
        tally.survives(lambda name=name, words=words: load_suite(name, words), (name, words), ConfigError)
    tally.check()


def test_a_few_wrong_configurations(tmp_path: Path) -> None:
    fuzz_runs(QUICK, tmp_path)


def test_a_few_wrong_suites(tmp_path: Path) -> None:
    fuzz_suites(QUICK // 3, tmp_path)


@pytest.mark.slow
def test_many_wrong_configurations(tmp_path: Path) -> None:
    with limited_memory():
        fuzz_runs(amount(MANY), tmp_path, start(20_2611))


@pytest.mark.slow
def test_many_wrong_suites(tmp_path: Path) -> None:
    with limited_memory():
        fuzz_suites(amount(MANY) // 3, tmp_path, start(18))


# what was found


@pytest.mark.parametrize("value", VALUES)
def test_every_value_as_a_text_of_its_own(value: str) -> None:
    survives(lambda: parse_yaml(value, "it"), value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["seed=!!bool x"], "!!bool does not fit its value"),
        (['seed=!!int ""'], "!!int does not fit its value"),
        (["seed=!!timestamp x"], "timestamp"),
        (["seed=!!map [a]"], "expected a mapping node"),
        (["surrogate.variant=[]"], "surrogate.variant=[]: must be one of: ours, 000, 002, 004"),
        (
            ["training.penalty_weight=1e308"],
            "training.penalty_weight=1e+308: numbers must lie between -1e+30 and 1e+30",
        ),
        (["channel.name=local_dp", "channel.epsilon=1e308"], "channel.0.epsilon=1e+308: numbers must lie between"),
        (["channel.name=local_dp", "channel.epsilon=1e29"], "epsilon must lie between"),
        (["seed=11111111111111111111111"], "seed=11111111111111111111111: whole numbers have at most 64 bits"),
        (["seed=0x" + "f" * 6000], "seed=0xffffffffff...: whole numbers have at most 64 bits"),
        ([f"channel.{'9' * 5000}=1"], "unknown key"),
        ([f"name={'a' * 300}"], "must be text of at most 100 letters"),
        (["seed=" + "[" * 60 + "]" * 60], "nested too deeply: 50 levels at most"),
        (["seed=" + "9" * 200_000], "longer than 100000 characters"),
        (["data.split_seed=-1"], "data.split_seed=-1: must be an integer >= 0"),
    ],
)
def test_what_gave_a_traceback_is_explained(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("demo", words)
    assert said in str(caught.value)


def test_too_many_stages_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be a list of 1 to 32"):
        load_config({"channel": [{"name": "identity"}] * 300})
    assert len(load_config({"channel": [{"name": "identity"}] * 32}).config.channel) == 32


@pytest.mark.parametrize("extends", ["a" * 5000, f"{'a' * 5000}.yaml", '"a\\0.yaml"', "./round.yaml", "/dev/zero"])
def test_a_file_that_cannot_be_extended(tmp_path: Path, extends: str) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(f"extends: {extends}")
    (tmp_path / "round.yaml").symlink_to(tmp_path / "round.yaml")
    with pytest.raises(ConfigError, match=r"given\.yaml"):
        load_config(file)


def test_files_that_are_none(tmp_path: Path) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.symlink_to(other)
    other.symlink_to(one)
    for source, said in (
        (one, "loop|too many levels of symbolic links"),  # the second: Python 3.13 does not name the loop
        ("/dev/zero", "longer than"),
        (tmp_path, "directory"),
        ("a\0.yaml", "null (byte|character)"),
    ):
        with pytest.raises(ConfigError, match=f"(?i){said}"):
            load_config(source)


def test_a_long_chain_of_files_is_refused(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.yaml").write_text(f"extends: ./{number + 1}.yaml")
    (tmp_path / "30.yaml").write_text("seed: 3")
    assert load_config(tmp_path / "15.yaml").config.seed == 3
    with pytest.raises(ConfigError, match="more than 20 files extend one another"):
        load_config(tmp_path / "0.yaml")


def test_a_mapping_inside_itself_is_refused() -> None:
    inside: dict[str, object] = {}
    inside["data"] = inside
    for attempt in (lambda: plain(inside), lambda: load_config(inside), lambda: load_config(None, inside)):
        with pytest.raises(ConfigError, match="nested too deeply"):
            attempt()


def test_letters_that_a_terminal_lacks_are_written_so_that_they_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    assert main(["config", "--config", "demo", "data.root=/tmp/é 画"]) == 0
    assert load_config(parse_yaml(out.getvalue().decode("ascii"), "it")).config.data.root == "/tmp/é 画"


def test_tags_of_plain_data_are_read() -> None:
    assert parse_yaml("[!!int 3, !!float 1, !!str 002, !!bool true, !!null ~, !!seq [], !!map {}]", "it") == [
        *(3, 1.0, "002", True, None, [], {}),
    ]

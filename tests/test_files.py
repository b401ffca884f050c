"""Files: whole or not at all, under the umask, never through a link, and locks that a look does not disturb."""

from __future__ import annotations

import errno
import json
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from attncem.base.types import RunError
from attncem.records import files, sizes
from attncem.records.files import (
    append,
    cut_to_lines,
    hash_file,
    is_held,
    locked,
    lost_of,
    made_at_once,
    read_bytes,
    read_if_there,
    read_json,
    read_lines,
    write_atomic,
    write_json,
    write_new,
    write_private,
)


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def no_links(*_: Any, **__: Any) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


@contextmanager
def under_umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


# new files


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_replaces_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    file = tmp_path / "below" / "file"
    write_new(file, b"mine")
    with pytest.raises(RunError, match="File exists; choose another folder"):
        write_new(file, b"other")
    assert file.read_bytes() == b"mine"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_a_full_disk_leaves_no_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(step, full_disk)
    with pytest.raises(RunError, match="No space left on device"):
        write_new(tmp_path / "file", b"data")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [write_atomic, write_new])
def test_the_folder_is_synced_after_the_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    synced: list[bool] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        assert (tmp_path / "file").exists() == is_folder
        synced.append(is_folder)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write(tmp_path / "file", b"data")
    assert synced == [False, True]


def test_a_file_system_that_syncs_no_folders_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    write_atomic(tmp_path / "file", b"data")
    assert (tmp_path / "file").read_bytes() == b"data"


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_files_follow_the_umask(tmp_path: Path, umask: int) -> None:
    with under_umask(umask):
        write_atomic(tmp_path / "atomic", b"")
        write_new(tmp_path / "new", b"")
        append(tmp_path / "log", b"")
        with locked(tmp_path / "lock", "held"):
            pass
        write_private(tmp_path / "key", b"")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes.pop("key") == 0o600
    assert modes == dict.fromkeys(("atomic", "new", "log", "lock"), 0o666 & ~umask)


# folders


def test_a_making_that_was_cut_short_can_be_made_again_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for first in range(2):
        with pytest.raises(KeyError), made_at_once(folder, ["part"], "last"):
            (folder / "part").write_text("half")
            raise KeyError("mine")
        assert folder.exists() == bool(first), "an empty folder that was there stays"
        folder.mkdir(exist_ok=True)
    (folder / ".partial-made").touch()
    (folder / "part").write_text("half")
    (folder / "mine").write_text("mine")
    with pytest.raises(RunError, match="already exists"), made_at_once(folder, ["part"], "last"):
        pass
    (folder / "mine").unlink()
    with made_at_once(folder, ["part"], "last"):
        assert [path.name for path in folder.iterdir()] == [".partial-made"]
        (folder / "last").touch()
    assert [path.name for path in folder.iterdir()] == ["last"]
    with pytest.raises(RunError, match="already exists"), made_at_once(folder, ["part"], "last"):
        pass


def test_parts_that_a_person_put_there_are_left(tmp_path: Path) -> None:
    (tmp_path / "part").write_text("mine")
    with pytest.raises(RunError, match="already exists"), made_at_once(tmp_path, ["part"], "last"):
        pass
    assert (tmp_path / "part").read_text() == "mine"


def test_two_processes_do_not_make_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with made_at_once(folder, ["part"], "last"):
        (folder / "part").touch()
        with pytest.raises(RunError, match="being made by another"), made_at_once(folder, ["part"], "last"):
            pass
        assert (folder / "part").exists()
        (folder / "last").touch()
    assert sorted(path.name for path in folder.iterdir()) == ["last", "part"]


# links


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("mine\n")
    link.symlink_to(target)
    for write in (lambda: append(link, b"x"), lambda: cut_to_lines(link, 0)):
        with pytest.raises(RunError, match="link is a link"):
            write()
    with pytest.raises(RunError, match="link is a link"), locked(link, "held"):
        pass
    assert is_held(link) is None
    assert target.read_text() == "mine\n"


def test_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(RunError, match="is a link"):
        append(tmp_path / "link", b"x")
    assert not (tmp_path / "target").exists()


# locks


def test_a_lock_empties_no_file(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.write_text("mine")
    with locked(file, "held"):
        assert is_held(file) is True
    assert is_held(file) is False
    assert file.read_text() == "mine"


def test_looking_at_a_lock_makes_no_file(tmp_path: Path) -> None:
    assert is_held(tmp_path / "lock") is False
    assert list(tmp_path.iterdir()) == []


def test_who_looks_at_a_lock_keeps_nobody_from_taking_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    file = tmp_path / "lock"
    file.touch()
    looking = os.open(file, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            os.close(looking)

    monkeypatch.setattr("time.sleep", sleep)
    with locked(file, "held"):
        assert len(slept) == 3


# reading


def test_what_is_no_number_has_no_value_in_a_log_and_damages_other_files(tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    file.write_text('{"a": NaN, "b": -Infinity}\n')
    assert [line for _, line in read_lines(file)] == [{"a": None, "b": None}]
    with pytest.raises(RunError, match="NaN is not a JSON number"):
        read_json(file)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[" * 100_000 + "]" * 100_000, "recursion"),
        ("[1]", "not a JSON object"),
        ("3", "not a JSON object"),
        ('{"a": 1}\r', "CR LF"),
        ("{", "line 2"),
        ("", "line 2"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ('{"a": [1e999]}', "1e999 is not a JSON number"),
        (f'{{"a": {10**400}}}', "10000000000000000000… is not a JSON number"),
        ('{"a": 9223372036854775808}', "is not a JSON number"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text('{"a": 1}\n' + line + "\n", newline="")
    with pytest.raises(RunError, match=rf"log\.jsonl is damaged: line 2.*{said}|damaged: {said}"):
        read_lines(file)
    file.write_text('{"a": [-9223372036854775807, 1e308, 0.5, -1, "\\ud83d\\ude00"]}\n')
    assert read_lines(file)[0][1] == {"a": [-(2**63) + 1, 1e308, 0.5, -1, "😀"]}


def test_what_may_never_end_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "pipe"
    os.mkfifo(file)
    (tmp_path / "device").symlink_to("/dev/zero")
    for ask in (read_bytes, read_json, read_lines, hash_file, lambda path: lost_of(path, 3)):
        for path in (file, tmp_path / "device"):
            with pytest.raises(RunError, match=f"{path.name} cannot be read: it is not a regular file"):
                ask(path)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, said in (("none", "is missing"), ("loop", "(?i)symbolic links"), (".", "directory"), ("a\0", "null")):
        with pytest.raises(RunError, match=said):
            read_bytes(tmp_path / name)
    assert read_if_there(tmp_path / "none") is None


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.yaml", "a.npz", "a.png", "noise.key", "A.JSON", "a.bin"])
def test_a_file_too_large_for_its_kind_is_not_read(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(sizes.LARGEST.get(Path(name.lower()).suffix, 4 * 2**30) + 1)  # it takes no space
    for ask in (read_bytes, read_json, read_lines):
        with pytest.raises(RunError, match=rf"{name} is not read: it takes .*(KiB|MiB|GiB), and a file of its kind"):
            ask(tmp_path / name)


def test_a_lack_of_memory_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise MemoryError

    write_json(tmp_path / "a.json", {"a": 1})
    (tmp_path / "a.jsonl").write_text("{}\n")
    monkeypatch.setattr(files, "parse_json", full)
    for name, ask in (("a.json", read_json), ("a.jsonl", read_lines)):
        with pytest.raises(RunError, match=rf"{name} \(\d+ bytes\) does not fit into the free memory"):
            ask(tmp_path / name)


def test_a_packed_file_that_grows_is_not_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("mse.npy", bytes(2**20))
    for data in ((tmp_path / "a.npz"), (tmp_path / "a.npz").read_bytes()):
        sizes.check_unpacked(tmp_path / "a.npz", data, 2**20)
        with pytest.raises(RunError, match=r"a\.npz is not read: unpacked it takes 1 MiB, and at most 977 KiB"):
            sizes.check_unpacked(tmp_path / "a.npz", data, 10**6)


def test_deep_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(RunError, match=r"a\.json is damaged: .*recursion"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "lost its end: 0 of 4"), ("a\n", "2 of 4"), ("a\r\nb\r\n", "changed"), ("a\nb\n", ""), ("a\nb\nc\n", "")],
)
def test_what_a_log_lost_is_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "log"
    file.write_text(text, newline="")
    found = lost_of(file, 4)
    assert said in found
    assert bool(found) == bool(said)
    assert lost_of(file, 0) == ""
    assert "0 of 4" in lost_of(tmp_path / "none", 4)


def test_json_files_are_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": 1})
    assert json.loads((tmp_path / "a.json").read_text())["a"] == 1

import os
import threading
from pathlib import Path

import pytest

from testbed.cache import build_once, cache_dir, content_key
from testbed.errors import HostError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESTBED_CACHE", str(tmp_path / "cache"))
    return cache_dir()


def test_a_read_only_cache_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(HostError, match=f"cannot write to {cache}") as caught:
        cache_dir()
    assert "TESTBED_CACHE" in caught.value.remedy


def test_a_cache_that_is_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TESTBED_CACHE", str(tmp_path / "file"))
    with pytest.raises(HostError, match="cannot write to"):
        cache_dir()


def test_a_directory_is_built_once_by_many(cache: Path) -> None:
    built: list[Path] = []

    def build(directory: Path) -> None:
        built.append(directory)
        (directory / "x").write_text("whole")

    threads = [threading.Thread(target=build_once, args=(cache / "a/b", build)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert (cache / "a/b/x").read_text() == "whole"


def test_a_build_that_fails_leaves_nothing(cache: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").write_text("")
        raise HostError("no")

    with pytest.raises(HostError, match="no"):
        build_once(cache / "a/b", fail)
    assert list((cache / "a").iterdir()) == []


def test_what_a_killed_builder_left_is_not_taken_over(cache: Path) -> None:
    (cache / "a/.b.partial").mkdir(parents=True)
    (cache / "a/.b.partial/half").write_text("")
    build_once(cache / "a/b", lambda directory: (directory / "x").touch())
    assert [path.name for path in (cache / "a/b").iterdir()] == ["x"]


def test_keys_tell_where_one_part_ends_and_another_begins(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("ab")
    assert content_key("ab", "c") != content_key("a", "bc")
    assert content_key(tmp_path / "file") == content_key("ab") == content_key(b"ab")

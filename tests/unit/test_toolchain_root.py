import threading
from pathlib import Path

import msgspec
import pytest
from host_fakes import FakeHost

from testbed.errors import HostError
from testbed.toolchain import open_toolchain, root, setup
from testbed.toolchain.recipe import Recipe, load_recipe


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost(tmp_path, monkeypatch)
    host.mmdebstrap()
    return host


def with_packages(*names: str) -> Recipe:
    recipe = load_recipe()
    return msgspec.structs.replace(recipe, root=msgspec.structs.replace(recipe.root, packages=list(names)))


def leftovers(host: FakeHost) -> list[str]:
    cache = host.bin.parent / "cache" / "toolchain"
    return [path.name for path in cache.iterdir() if path.name.startswith(".")]


def test_a_missing_root_is_told_to_be_set_up(host: FakeHost) -> None:
    del host
    with pytest.raises(HostError, match="no toolchain root") as caught:
        open_toolchain()
    assert caught.value.remedy == "run: testbed setup"


def test_it_is_built_once_and_then_found_without_any_program(host: FakeHost) -> None:
    built = setup()
    for program in ("mmdebstrap", "apt-get", "apt-config", "unshare"):
        host.script(program, "exit 99")
    assert setup() == built
    assert open_toolchain().identity == built.name.rpartition(".")[2]
    assert leftovers(host) == []


def test_progress_tells_what_mmdebstrap_does(host: FakeHost) -> None:
    del host
    told: list[tuple[str, str]] = []
    setup(progress=lambda what, line: told.append((what, line)))
    assert ("toolchain", "extracting archives") in told


def test_two_at_once_do_the_work_once(host: FakeHost) -> None:
    threads = [threading.Thread(target=setup) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert host.count("mmdebstrap") == 1


def test_refresh_switches_to_newer_packages_and_leaves_the_old_root(host: FakeHost) -> None:
    old = setup()
    host.mmdebstrap(version="1:11.2.0")
    new = setup(refresh=True)
    assert new != old
    assert old.is_dir()
    assert root.current_root() == new
    assert root.installed(new)["qemu-system-x86"] == "1:11.2.0"


def test_refresh_without_news_keeps_the_root(host: FakeHost) -> None:
    old = setup()
    assert setup(refresh=True) == old
    assert leftovers(host) == []


def test_another_recipe_is_another_root(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    setup()
    monkeypatch.setattr(root, "load_recipe", lambda: with_packages("gcc"))
    assert root.current_root() is None
    setup()
    assert host.count("mmdebstrap") == 2


def test_what_a_killed_set_up_left_is_removed(host: FakeHost) -> None:
    left = host.bin.parent / "cache/toolchain/.0123456789abcdef.partial/root"
    left.mkdir(parents=True)
    setup()
    assert leftovers(host) == []


def test_a_failure_leaves_nothing_behind(host: FakeHost) -> None:
    host.mmdebstrap(after="echo 'E: something failed' >&2; exit 1")
    with pytest.raises(HostError, match="mmdebstrap failed: E: something failed"):
        setup()
    assert root.current_root() is None
    assert leftovers(host) == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("E: The repository 'x nonesuch Release' does not have a Release file.", "lacks one of the suites"),
        ("E: Failed to fetch x  Could not connect to m", "cannot reach the Debian archive"),
        ("tar: ./x: Cannot write: No space left on device", "the disk is full"),
        ("unshare: unshare failed: Operation not permitted", "can make no user namespace"),
    ],
)
def test_what_mmdebstrap_says_becomes_an_error(host: FakeHost, said: str, expected: str) -> None:
    host.mmdebstrap(before=f'echo "{said}" >&2; exit 1')
    with pytest.raises(HostError, match=expected):
        setup()


def test_no_space_is_told_before_anything_is_begun(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Usage", (), {"free": 5_000_000}))
    with pytest.raises(HostError, match=r"needs \d+ MB in .*, 5 MB are free"):
        setup()
    assert host.count("mmdebstrap") == 0


def test_the_archives_proxy_reaches_mmdebstrap(host: FakeHost) -> None:
    setup()
    assert '--aptopt=Acquire::http::Proxy "http://proxy.test:3128"' in host.calls.read_text()


def test_missing_host_programs_are_named_at_once(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(host.bin))
    monkeypatch.setattr(root, "build_programs", lambda: ["apt-get", "no-such-program", "newuidmap-of-old"])
    with pytest.raises(HostError, match="not on this machine: no-such-program, newuidmap-of-old"):
        setup()
    assert host.count("mmdebstrap") == 0

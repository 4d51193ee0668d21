from pathlib import Path

import pytest
from host_fakes import FakeHost

from testbed.errors import HostError
from testbed.toolchain.archive import Package, PrivateApt, find_archive

URIS = """\
'http://m/linux-image-7.1-amd64_7.1-1_amd64.deb' linux-image-7.1-amd64_7.1-1_amd64.deb 10 SHA256:0
'http://m/base_2_all.deb' base_1%3a2_all.deb 10 SHA256:0
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    return FakeHost(tmp_path, monkeypatch)


@pytest.fixture
def apt(host: FakeHost, tmp_path: Path) -> PrivateApt:
    del host
    return PrivateApt(tmp_path / "apt", find_archive(), ["trixie", "trixie-backports"])


def test_the_archive_is_the_hosts_own_and_not_its_security_one(host: FakeHost) -> None:
    del host
    assert find_archive().uri == "http://mirror.test/debian/"


def test_a_named_mirror_goes_first(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    del host
    monkeypatch.setenv("TESTBED_MIRROR", "http://other.test/debian")
    assert find_archive().uri == "http://other.test/debian/"


def test_a_host_without_debian_archive_is_told_of_the_variable(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.script("apt-get", "echo http://mirror.test/ubuntu/ noble main Ubuntu")
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "ubuntu"})
    with pytest.raises(HostError, match="knows no Debian archive") as caught:
        find_archive()
    assert "TESTBED_MIRROR" in caught.value.remedy


def test_a_new_machine_without_lists_is_asked_where_it_would_fetch_them(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "'http://mirror.test/debian/dists/trixie/InRelease' mirror.test_x 0"
    host.script("apt-get", f'[ "$1" = update ] && echo "{line}"; exit 0')
    monkeypatch.setattr(
        "platform.freedesktop_os_release", lambda: {"ID": "debian", "VERSION_CODENAME": "trixie"}
    )
    assert find_archive().uri == "http://mirror.test/debian/"


def test_the_private_apt_takes_proxies_along_and_keeps_fragments_out(apt: PrivateApt, tmp_path: Path) -> None:
    configuration = (tmp_path / "apt/apt.conf").read_text()
    assert 'Acquire::http::Proxy "http://proxy.test:3128";' in configuration
    assert "APT::Color" not in configuration
    assert 'Dir::Etc::Parts "-";' in configuration
    assert apt.suites[-1] == "trixie-backports"
    assert (tmp_path / "apt/sources.list").read_text().count("http://mirror.test/debian/ trixie") == 2


def test_the_closure_is_what_apt_would_download(host: FakeHost, apt: PrivateApt) -> None:
    host.script("apt-get", f'cat <<"EOF"\nReading package lists...\n{URIS}EOF')
    assert apt.closure(["linux-image-amd64"]) == [
        Package("base", "1:2"),
        Package("linux-image-7.1-amd64", "7.1-1"),
    ]
    assert "-t trixie-backports linux-image-amd64" in host.calls.read_text()


@pytest.mark.parametrize(
    ("said", "expected", "remedy"),
    [
        (
            "Err:1 x\nE: Failed to fetch x  Could not resolve 'm'",
            "cannot reach the Debian archive",
            "TESTBED_MIRROR",
        ),
        ("E: The repository 'x' does not have a Release file.", "lacks one of the suites", "toolchain.toml"),
        ("W: GPG error: NO_PUBKEY 1234\nE: not signed", "lacks the archive keys", "debian-archive-keyring"),
        ("E: Write error - write (28: No space left on device)", "the disk is full", "TESTBED_CACHE"),
        ("E: something else failed", "apt cannot resolve or fetch", "doctor"),
    ],
)
def test_what_apt_says_becomes_an_error_with_a_remedy(
    host: FakeHost, apt: PrivateApt, said: str, expected: str, remedy: str
) -> None:
    host.script("apt-get", f'cat >&2 <<"EOF"\n{said}\nEOF\nexit 100')
    with pytest.raises(HostError, match=expected) as caught:
        apt.update()
    assert remedy in caught.value.remedy


def test_a_download_that_is_not_whole_is_an_error(host: FakeHost, apt: PrivateApt, tmp_path: Path) -> None:
    host.script("apt-get", "echo 'Get:1 http://m trixie/main amd64 a amd64 1 [5 kB]'; touch a_1_amd64.deb")
    (tmp_path / "into").mkdir()
    shown: list[str] = []
    files = apt.download([Package("a", "1")], tmp_path / "into", shown.append)
    assert [file.name for file in files] == ["a_1_amd64.deb"]
    assert shown == ["downloading a (5 kB)"]
    with pytest.raises(HostError, match="1 of 2 packages"):
        apt.download([Package("a", "1"), Package("b", "1")], tmp_path / "into", shown.append)

"""The Debian archive as the host's apt knows it, and an apt of our own that leaves the host's packages alone.

The archive's address comes from the host's apt configuration or from TESTBED_MIRROR; this project names none.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from testbed.cache import host_errors
from testbed.errors import HostError
from testbed.toolchain.host import attempt, check_space, first_error, follow, program, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Archive", "Package", "PrivateApt", "explain", "find_archive"]

_CARRIED = re.compile(r'^(Acquire::(?:https?|ftp|socks|Check-|Retries|Force)[^ ]*) "(.+)";$')
_KEYRINGS = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
)
_UNREACHABLE = re.compile(
    r"Could not (?:resolve|connect)|Unable to connect|Connection (?:failed|timed out|refused)|"
    r"Cannot initiate the connection|Temporary failure|Network is unreachable|Failed to fetch"
)
_NO_SUITE = re.compile(r"does not have a Release file|404 +Not Found|File not found")


@dataclass(frozen=True)
class Archive:
    """Where Debian packages come from.

    :param uri: the archive's address, ending in a slash.
    :param options: the host's apt options on how it is reached (proxy, certificates), as ``Key "value";``.
    :param keyring: Debian's archive keys on this host, None when the host has none of its own.
    """

    uri: str
    options: tuple[str, ...]
    keyring: Path | None

    def source_lines(self, suites: Sequence[str], *, signed: bool) -> list[str]:
        """Return one sources.list line per suite."""
        by = f"[signed-by={self.keyring}] " if signed and self.keyring else ""
        return [f"deb {by}{self.uri} {suite} main" for suite in suites]


@dataclass(frozen=True)
class Package:
    """One package of the archive, at the version that apt chose."""

    name: str
    version: str


def find_archive() -> Archive:
    """Return the archive that this host uses.

    :raise HostError: the host's apt knows no Debian archive and TESTBED_MIRROR is not set.
    """
    keyring = next((Path(name) for name in _KEYRINGS if Path(name).exists()), None)
    dump = run([program("apt-config"), "dump"], what="apt-config", timeout_s=60)
    options = tuple(line for line in dump.splitlines() if _CARRIED.match(line))
    uri = os.environ.get("TESTBED_MIRROR") or _host_archive()
    return Archive(uri.rstrip("/") + "/", options, keyring)


def _host_archive() -> str:
    columns = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)"
    listed = run(
        [program("apt-get"), "indextargets", "--format", columns, "Created-By: Packages"],
        what="apt-get indextargets",
        timeout_s=60,
    )
    for line in listed.splitlines():
        uri, release, component, *origin = line.split()
        if origin == ["Debian"] and component == "main" and not release.endswith("-security"):
            return uri
    found = _unfetched_archive()
    if found:
        return found
    raise HostError(
        "the apt of this machine knows no Debian archive",
        "set TESTBED_MIRROR to the address of one, as it stands in a sources.list",
    )


def _unfetched_archive() -> str | None:
    """Return the archive of this Debian's release when apt has fetched no lists yet, as on a new machine."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return None
    if system.get("ID") != "debian":
        return None
    listed = attempt([program("apt-get"), "update", "--print-uris"], timeout_s=60).stdout.decode(
        errors="replace"
    )
    release = re.escape(system.get("VERSION_CODENAME", "stable"))
    found = re.search(rf"^'(\S+/)dists/{release}/InRelease'", listed, re.MULTILINE)
    return found[1] if found else None


class PrivateApt:
    """The host's apt with lists, cache and status of its own: it resolves and downloads, it installs nothing.

    :param directory: where its state is kept; lists are reused as long as the suites stay the same.
    :param suites: which to look into; the last one is preferred.
    """

    def __init__(self, directory: Path, archive: Archive, suites: Sequence[str]) -> None:
        self.suites = tuple(suites)
        self._archive = archive
        self._directory = directory
        with host_errors(directory):
            for name in ("lists/partial", "archives/partial"):
                (directory / name).mkdir(parents=True, exist_ok=True)
            (directory / "status").write_text("")
            sources = archive.source_lines(suites, signed=True)
            (directory / "sources.list").write_text("".join(f"{line}\n" for line in sources))
            (directory / "apt.conf").write_text(self._configuration())

    def _configuration(self) -> str:
        here = self._directory
        return "\n".join(
            [
                'Dir::Etc::Main "-";',  # keeps the fragments of the host's /etc/apt out
                'Dir::Etc::Parts "-";',
                'Dir::Etc::SourceParts "-";',
                'Dir::Etc::Preferences "-";',
                'Dir::Etc::PreferencesParts "-";',
                f'Dir::Etc::SourceList "{here}/sources.list";',
                f'Dir::State "{here}";',
                f'Dir::State::Lists "{here}/lists";',
                f'Dir::State::Status "{here}/status";',
                f'Dir::Cache "{here}";',
                f'Dir::Cache::Archives "{here}/archives";',
                'APT::Architecture "amd64";',
                'APT::Architectures { "amd64"; };',
                'APT::Install-Recommends "false";',
                'APT::Sandbox::User "root";',
                'APT::Update::Error-Mode "any";',  # one that cannot be reached is an error
                'Acquire::Languages "none";',
                *self._archive.options,
                "",
            ]
        )

    @property
    def _environment(self) -> dict[str, str]:
        return {"APT_CONFIG": str(self._directory / "apt.conf"), "LC_ALL": "C.UTF-8"}

    def _fail(self, said: str) -> NoReturn:
        explain(said, self.suites, "apt cannot resolve or fetch the kernel's packages")

    def update(self) -> None:
        """Fetch the suites' package lists.

        :raise HostError: no network, or the archive has no such suite.
        """
        done = attempt([program("apt-get"), "update", "-q"], timeout_s=600, environment=self._environment)
        if done.returncode:
            self._fail((done.stderr + b"\n" + done.stdout).decode(errors="replace"))

    def closure(self, packages: Sequence[str]) -> list[Package]:
        """Return the packages that would come onto an empty machine with ``packages`` of the preferred suite.

        :raise HostError: the suite does not offer one of them.
        """
        done = attempt(
            [program("apt-get"), "install", "--print-uris", "-y", "-t", self.suites[-1], *packages],
            timeout_s=120,
            environment=self._environment,
        )
        if done.returncode:
            self._fail((done.stderr + b"\n" + done.stdout).decode(errors="replace"))
        files = [line.split()[1] for line in done.stdout.decode().splitlines() if line.startswith("'")]
        named = [file.removesuffix(".deb").split("_") for file in files]
        return sorted(
            (Package(parts[0], parts[1].replace("%3a", ":")) for parts in named),
            key=lambda package: package.name,
        )

    def download(self, packages: Sequence[Package], into: Path, show: Callable[[str], None]) -> list[Path]:
        """Download packages, verified by apt, and return their files in the order of ``packages``' names.

        :raise HostError: no network, or no space.
        """
        status, said = follow(
            [
                program("apt-get"),
                "download",
                "-q",
                *(f"{package.name}={package.version}" for package in packages),
            ],
            lambda line: _show_download(line, show),
            timeout_s=3600,
            cwd=into,
            environment=self._environment,
        )
        if status:
            self._fail(said)
        files = sorted(into.glob("*.deb"))
        if len(files) != len(packages):
            raise HostError(f"apt-get downloaded {len(files)} of {len(packages)} packages", "try again")
        return files


def explain(said: str, suites: Sequence[str], otherwise: str) -> NoReturn:
    """Turn what apt, or what called it, said when it failed into an error with a remedy.

    :param otherwise: what to call a failure that is none of the known ones.
    :raise HostError: always.
    """
    check_space(said)
    told = [line for line in said.splitlines() if line.startswith(("E:", "Err:"))]
    because = first_error("\n".join(told) or said)
    if _UNREACHABLE.search(said) and not _NO_SUITE.search(said):
        raise HostError(
            f"cannot reach the Debian archive: {because}",
            "check the network and proxy, or set TESTBED_MIRROR",
        )
    if _NO_SUITE.search(said):
        raise HostError(
            f"the archive lacks one of the suites {', '.join(suites)}: {because}",
            "correct images/toolchain.toml, or set TESTBED_MIRROR to an archive that has it",
        )
    if "NO_PUBKEY" in said:
        raise HostError(
            f"this machine lacks the archive keys of {', '.join(suites)}: {because}",
            "apt-get install debian-archive-keyring",
        )
    raise HostError(f"{otherwise}: {because}", "run: testbed doctor")


def _show_download(line: str, show: Callable[[str], None]) -> None:
    got = re.match(r"Get:\d+ \S+ \S+ \S+ (\S+) .*\[(.+)\]", line)
    if got:
        show(f"downloading {got[1]} ({got[2]})")

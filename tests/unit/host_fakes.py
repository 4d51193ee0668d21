"""Programs of a made-up host, as scripts in a directory that stands first on PATH."""

import os
from pathlib import Path

import pytest

INDEX = """\
http://mirror.test/extras/ trixie main Somebody
http://mirror.test/debian-security/ trixie-security main Debian
http://mirror.test/debian/ trixie contrib Debian
http://mirror.test/debian/ trixie main Debian
"""
STATUS = """\
Package: qemu-system-x86
Status: install ok installed
Version: {version}
Description: a text
 with two lines

Package: gcc
Status: install ok installed
Version: 4:14.2.0-1
"""


class FakeHost:
    """Writes scripts and counts their calls."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.calls = directory / "calls"
        self.calls.write_text("")
        monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")
        monkeypatch.setenv("TESTBED_CACHE", str(directory / "cache"))
        monkeypatch.delenv("TESTBED_MIRROR", raising=False)
        self.script(
            "apt-config", """echo 'Acquire::http::Proxy "http://proxy.test:3128";'; echo 'APT::Color "1";'"""
        )
        self.script("apt-get", f"cat <<'EOF'\n{INDEX}EOF")
        self.script("unshare", 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"')

    def script(self, name: str, text: str) -> Path:
        """Put a shell script on PATH that also notes its arguments in ``calls``."""
        path = self.bin / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.calls}\n{text}\n')
        path.chmod(0o755)
        return path

    def count(self, name: str) -> int:
        """Return how often the script was called."""
        return sum(line.startswith(f"{name} ") for line in self.calls.read_text().splitlines())

    def mmdebstrap(self, version: str = "1:11.1.3", before: str = "", after: str = "") -> None:
        """Let mmdebstrap make a tree in its target, the first absolute path among its arguments."""
        self.script(
            "mmdebstrap",
            f"""
            for word; do case "$word" in /*) target=$word; break;; esac; done
            echo "I: extracting archives..."
            {before}
            mkdir -p $target/var/lib/dpkg $target/usr/bin $target/etc
            cat >$target/var/lib/dpkg/status <<'EOF'\n{STATUS.format(version=version)}EOF
            {after}""",
        )

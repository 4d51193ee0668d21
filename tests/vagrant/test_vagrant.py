"""The Vagrantfile, by Vagrant itself; and what it has run in a new machine, in a fresh Debian.

``make test-vagrant`` installs Debian's vagrant and vagrant-libvirt first. The Debian archive must be within reach.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from testbed.toolchain.archive import find_archive

ROOT = Path(__file__).resolve().parents[2]
# As a new box is: a user with a home and no ids of its own beside it. `make host` then looks for what make needs.
NEW_MACHINE = """#!/bin/sh
set -e
in_it="chroot $1"
cp {root}/.ci/provision "$1/root"
$in_it groupadd --system kvm
$in_it useradd --create-home vagrant
sed -i /^vagrant:/d "$1/etc/subuid" "$1/etc/subgid"
$in_it /root/provision vagrant
$in_it /root/provision vagrant
cp {root}/Makefile "$1/home/vagrant"
$in_it su vagrant -c 'make -C ~ host && python3 -m venv ~/venv && id -nG && cat /etc/subuid /etc/subgid' >{said}
"""


def validate(directory: Path, provider: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"VAGRANT_DEFAULT_PROVIDER": provider, "VAGRANT_CHECKPOINT_DISABLE": "1"}
    argv = ["vagrant", "validate", *options]
    return subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("provider", "options"), [("libvirt", ()), ("virtualbox", ("--ignore-provider",))])
def test_vagrant_takes_the_file(tmp_path: Path, provider: str, options: tuple[str, ...]) -> None:
    (tmp_path / "Vagrantfile").write_bytes((ROOT / "Vagrantfile").read_bytes())
    (tmp_path / ".ci").symlink_to(ROOT / ".ci")
    done = validate(tmp_path, provider, *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_vagrant_refuses_the_file_with_a_wrong_word(tmp_path: Path) -> None:
    text = (ROOT / "Vagrantfile").read_text()
    (tmp_path / "Vagrantfile").write_text(text.replace("libvirt.nested", "libvirt.nestled"))
    assert "libvirt.nested" in text
    done = validate(tmp_path, "libvirt")
    assert done.returncode != 0


def test_a_fresh_debian_has_all_that_make_needs_once_provisioned(tmp_path: Path) -> None:
    archive, said = find_archive(), tmp_path / "said"
    hook = tmp_path / "hook"
    hook.write_text(NEW_MACHINE.format(root=shlex.quote(str(ROOT)), said=shlex.quote(str(said))))
    hook.chmod(0o755)
    options = [f"--aptopt={option.removesuffix(';')}" for option in archive.options]
    argv = [
        "mmdebstrap",
        "--variant=minbase",
        "--format=null",
        "--quiet",
        "--dpkgopt=force-unsafe-io",
        *options,
    ]
    argv += [f"--customize-hook={hook}", "trixie", "-", *archive.source_lines(["trixie"], signed=False)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    *_, groups, subuid, subgid = said.read_text().splitlines()
    assert groups.split() == ["vagrant", "kvm"]
    assert subuid.startswith("vagrant:")
    assert subuid == subgid

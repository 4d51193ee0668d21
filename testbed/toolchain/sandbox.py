"""Running programs of the toolchain: in the root by bubblewrap, beside it by its own loader, or on the host.

Paths mean the same inside and outside: a command sees the host's files at their own absolute paths, but only
those that were named, and may write only what was named for writing.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from testbed.cache import content_key
from testbed.errors import HostError
from testbed.toolchain.guard import start_guard
from testbed.toolchain.host import attempt, first_error, missing_package, mortal, program, run
from testbed.toolchain.recipe import load_recipe
from testbed.toolchain.root import current_root

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["QEMU_LOWEST", "HostToolchain", "RootToolchain", "Toolchain", "open_toolchain", "qemu_version"]

_PATH = "/usr/sbin:/usr/bin"
_TMP = "/tmp"  # noqa: S108 - the sandbox's own, in memory, empty at start
_ENVIRONMENT = {"PATH": _PATH, "HOME": _TMP, "TMPDIR": _TMP, "LC_ALL": "C.UTF-8"}
_QEMU = frozenset({"qemu-img", "qemu-system-x86_64"})
_QEMU_DATA = ("/usr/share/qemu", "/usr/share/seabios", "/usr/lib/ipxe/qemu")
QEMU_LOWEST = (10, 1)  # the first with a vfio-user client
_HOST_TOOLS = (
    "bpftool", "busybox", "clang", "depmod", "gcc", "ld", "make", "pahole", "patch", "qemu-img",
    "qemu-system-x86_64", "spatch", "strip", "xz",
)  # fmt: skip


class Toolchain(Protocol):
    """Compilers, QEMU and the like, and a way to run them.

    ``identity`` stands for the exact programs: it changes when any of their packages does.
    """

    @property
    def identity(self) -> str:
        """Return the content id."""

    def argv(
        self,
        command: Sequence[str],
        *,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
        cwd: Path | None = None,
    ) -> list[str]:
        """Return what to start on the host so that ``command`` runs with the toolchain's programs, offline.

        The command is killed when the **thread** that started it ends: start it from one that lives as long
        as it must. In the sandbox it has a session of its own, so that a terminal's Ctrl-C reaches testbed
        alone. Inherited file descriptors stay open.

        :param read: files and directories that it may read, at their own absolute paths.
        :param write: those that it may also write.
        :param cwd: its working directory, in one of them; default /.
        :raise HostError: the toolchain has no such program, or this machine cannot run it.
        """

    def run(
        self,
        command: Sequence[str],
        *,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
        cwd: Path | None = None,
        timeout_s: float,
        stdin: bytes | None = None,
    ) -> str:
        """Run ``command`` to its end and return what it wrote on stdout; the parameters are :meth:`argv`'s.

        :raise BuildError: it failed, or did not end within ``timeout_s``; the message holds its first error.
        :raise HostError: the toolchain has no such program.
        """

    def file(self, path: str) -> Path:
        """Return the host's path of a file of the toolchain, such as ``/usr/bin/busybox``, links followed.

        :raise HostError: there is none.
        """


class _Runner:
    """What all toolchains do alike."""

    def argv(
        self,
        command: Sequence[str],
        *,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
        cwd: Path | None = None,
    ) -> list[str]:
        raise NotImplementedError

    def run(
        self,
        command: Sequence[str],
        *,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
        cwd: Path | None = None,
        timeout_s: float,
        stdin: bytes | None = None,
    ) -> str:
        """Run a command to its end; see :meth:`Toolchain.run`."""
        argv = self.argv(command, read=read, write=write, cwd=cwd)
        return run(argv, what=Path(command[0]).name, timeout_s=timeout_s, stdin=stdin)


class RootToolchain(_Runner):
    """The root that ``testbed setup`` builds.

    :param directory: KEY.ID of the cache, with ``root`` and ``packages.txt`` in it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._root = directory / "root"

    @cached_property
    def identity(self) -> str:
        """Return the content id: that of all package versions."""
        return content_key(self._directory / "packages.txt")

    @cached_property
    def refusal(self) -> str | None:
        """Return why bubblewrap does not work on this machine, None when it does: found out by trying."""
        done = attempt(self._sandbox(["true"], (), (), None), timeout_s=30)
        return first_error(done.stderr.decode(errors="replace")) if done.returncode else None

    def argv(
        self,
        command: Sequence[str],
        *,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
        cwd: Path | None = None,
    ) -> list[str]:
        """Return an argv for the host; see :meth:`Toolchain.argv`."""
        name = command[0]
        if "/" not in name:
            self._find(name)
        if self.refusal is None:
            return self._sandbox(command, read, write, cwd)
        if name in _QEMU:
            return self._loader(command)
        raise HostError(
            f"{name} needs a sandbox, and bubblewrap does not work on this machine: {self.refusal}",
            "allow user namespaces (see testbed doctor), or run as root",
        )

    def file(self, path: str) -> Path:
        """Return the host's path of a file of the root; see :meth:`Toolchain.file`."""
        found = follow_links(self._root, path)
        if not found.exists():
            raise HostError(f"the toolchain root has no {path}", "run: testbed setup --refresh")
        return found

    def _find(self, name: str) -> Path:
        for folder in _PATH.split(":"):
            found = follow_links(self._root, f"{folder}/{name}")
            if found.exists():
                return found
        raise HostError(f"the toolchain root has no program {name}", "run: testbed setup --refresh")

    def _sandbox(
        self, command: Sequence[str], read: Sequence[Path], write: Sequence[Path], cwd: Path | None
    ) -> list[str]:
        binds = {path.absolute(): "--ro-bind" for path in read} | {
            path.absolute(): "--bind" for path in write
        }
        root = self._root
        return [
            program("bwrap"),
            *(
                "--die-with-parent",
                "--new-session",
                "--unshare-pid",
                "--unshare-net",
                "--unshare-ipc",
                "--clearenv",
            ),
            *(word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value)),
            *("--ro-bind", f"{root}/usr", "/usr", "--ro-bind", f"{root}/etc", "/etc"),
            *(
                word
                for name in ("bin", "lib", "lib64", "sbin")
                for word in ("--symlink", f"usr/{name}", f"/{name}")
            ),
            *("--proc", "/proc", "--dev", "/dev", "--dev-bind-try", "/dev/kvm", "/dev/kvm"),
            *("--tmpfs", _TMP, "--dir", "/run", "--dir", "/var"),
            *(word for path, how in sorted(binds.items()) for word in (how, str(path), str(path))),
            *("--chdir", str(cwd.absolute() if cwd else "/"), "--", *command),
        ]

    def _loader(self, command: Sequence[str]) -> list[str]:
        """Return an argv that starts QEMU on the host with the root's loader and libraries."""
        root = self._root
        libraries = [f"{root}/usr/lib/x86_64-linux-gnu", f"{root}/usr/lib"]
        data = [word for folder in _QEMU_DATA for word in ("-L", f"{root}{folder}")]
        return mortal(
            [
                program("env"),
                f"QEMU_MODULE_DIR={root}/usr/lib/x86_64-linux-gnu/qemu",
                str(self.file("/lib64/ld-linux-x86-64.so.2")),
                *("--library-path", ":".join(libraries), str(self._find(command[0]))),
                *(data if command[0].startswith("qemu-system") else ()),
                *command[1:],
            ]
        )


class HostToolchain(_Runner):
    """The host's own QEMU and compilers, for those who are not on Debian.

    :raise HostError: a program is missing, or QEMU is too old; the message names everything that is amiss.
    """

    def __init__(self) -> None:
        missing = [name for name in _HOST_TOOLS if not _on_path(name)]
        amiss = [f"no {', '.join(missing)}"] if missing else []
        if "qemu-system-x86_64" not in missing:
            version = qemu_version(run(["qemu-system-x86_64", "--version"], what="QEMU", timeout_s=30))
            if version < QEMU_LOWEST:
                amiss.append(f"QEMU {'.'.join(map(str, version))}, older than 10.1")
        if amiss:
            raise HostError(
                f"the host's own tools do not do: {'; '.join(amiss)}", "install them, or use --toolchain root"
            )

    @cached_property
    def identity(self) -> str:
        """Return the content id: that of the programs' paths, sizes and times."""
        stats = [(name, Path(_on_path(name) or "/").stat()) for name in _HOST_TOOLS]
        return content_key("host", *(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats))

    def argv(
        self,
        command: Sequence[str],
        *,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
        cwd: Path | None = None,
    ) -> list[str]:
        """Return an argv for the host, which confines nothing; see :meth:`Toolchain.argv`."""
        del read, write
        found = _on_path(command[0])
        if found is None:
            missing_package(command[0])
        where = [program("env"), f"--chdir={cwd.absolute()}", "LC_ALL=C.UTF-8"] if cwd else []
        return mortal([*where, found, *command[1:]])

    def file(self, path: str) -> Path:
        """Return a file of the host; see :meth:`Toolchain.file`."""
        found = Path(path)
        if not found.exists():
            raise HostError(f"this machine has no {path}", "install what brings it, or use --toolchain root")
        return found.resolve()


def _on_path(name: str) -> str | None:
    if "/" in name:
        return name
    folders = [*os.environ.get("PATH", "").split(":"), *_PATH.split(":"), "/sbin", "/bin"]
    paths = (f"{folder}/{name}" for folder in folders if folder)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def qemu_version(text: str) -> tuple[int, int]:
    """Return (major, minor) from what ``qemu-system-x86_64 --version`` prints; (0, 0) if that is not it."""
    found = re.search(r"version (\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def follow_links(root: Path, path: str) -> Path:
    """Return where ``path`` of the file system in ``root`` lies on the host, links read as inside it."""
    pending = [part for part in path.split("/") if part]
    here: list[str] = []
    for _ in range(256):
        if not pending:
            break
        part = pending.pop(0)
        if part == "..":
            here = here[:-1]
            continue
        there = root.joinpath(*here, part)
        if there.is_symlink():
            target = str(there.readlink())
            here = [] if target.startswith("/") else here
            pending = [step for step in target.split("/") if step not in {"", "."}] + pending
        else:
            here = [*here, part]
    return root.joinpath(*here, *pending)


def open_toolchain(kind: str = "root") -> Toolchain:
    """Return the toolchain: ``root``, the one set-up builds, or ``host``, the machine's own programs.

    :raise HostError: the root is not there, or the host lacks something.
    """
    start_guard()
    if kind == "host":
        return HostToolchain()
    directory = current_root()
    if directory is None:
        load_recipe()
        raise HostError("there is no toolchain root in the cache for this recipe", "run: testbed setup")
    return RootToolchain(directory)

"""Patches: unified diffs of a kernel's tree, as a file, as mails (git format-patch, mbox), or as a series directory."""

from __future__ import annotations

import email
import email.policy
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from testbed.cache import content_key
from testbed.errors import BuildError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.toolchain import Toolchain

__all__ = ["Diff", "Patch"]

_MAIL = re.compile(rb"^From \S+ +\w{3} \w{3} +\d+ \d\d:\d\d:\d\d (?:\S+ )?\d{4}", re.MULTILINE)
_HEADERS = re.compile(rb"\A(?:[A-Za-z][\w-]*: .*\n(?:[ \t].*\n)*)*(?:From|Subject): ")
_SUFFIXES = frozenset({".patch", ".diff", ".mbox", ".eml"})
_LIMIT_S = 60.0


@dataclass(frozen=True)
class Diff:
    """What a patch does to one file.

    :param path: the file's path in the kernel's tree. :param before: its path before; another one when it is renamed.
    :param text: the unified diff, with names as patch -p1 reads them.
    :param origin: the mail's subject, or the file of the series.
    :param creates: whether the file is not there before.
    """

    path: str
    before: str
    text: str
    origin: str
    creates: bool


@dataclass(frozen=True)
class Patch:
    """A change of the kernel's source that the user hands in.

    :param file: the file, or the directory of a series.
    :param reverse: whether it is taken back instead.
    """

    file: Path
    reverse: bool = False

    @property
    def kind(self) -> Literal["patch", "reverse-patch"]:
        """Return what it is called in a KERNEL."""
        return "reverse-patch" if self.reverse else "patch"

    @property
    def name(self) -> str:
        """Return the name that results record."""
        return f"{self.file.name} reversed" if self.reverse else self.file.name

    @property
    def asked(self) -> str:
        """Return what follows ``@patch=`` in a KERNEL."""
        return str(self.file.absolute())

    @property
    def key(self) -> str:
        """Return what stands for the content."""
        return content_key(
            str(self.reverse), *(part for diff in self.diffs for part in (diff.path, diff.text))
        )

    @cached_property
    def diffs(self) -> list[Diff]:
        """The diffs in the order in which they apply, those of a reversed patch from the last to the first.

        :raise UsageError: it cannot be read, is damaged, or holds no diff.
        """
        found = [diff for text, origin in _texts(self.file) for diff in _split(text, origin, self.file)]
        if not found:
            raise UsageError(
                f"{self.file} holds no unified diff", "name a diff, an mbox or a directory with a series"
            )
        return found[::-1] if self.reverse else found

    def touched(self, source: Path) -> list[str]:
        """Return the paths of the files it changes."""
        del source  # a variant needs it
        return list(dict.fromkeys(path for diff in self.diffs for path in (diff.before, diff.path)))

    def apply(self, toolchain: Toolchain, root: Path, inside: str = "") -> None:
        """Apply what it does to files of a folder.

        :param root: where the folder lies, changed in place.
        :param inside: the folder's path in the kernel's tree; the whole tree by default.
        :raise BuildError: it does not apply; the message names file and hunk.
        """
        prefix = f"{inside}/" if inside else ""
        for diff in self.diffs:
            if diff.path.startswith(prefix):
                self._apply(diff, toolchain, root, prefix)

    def _apply(self, diff: Diff, toolchain: Toolchain, root: Path, prefix: str) -> None:
        path = diff.path if self.reverse else diff.before
        if not (root / path.removeprefix(prefix)).exists() and diff.creates == self.reverse:
            raise BuildError(
                f"{self._named(diff)} changes {path}, which this kernel does not have",
                "choose another kernel, or name files as git diff does",
            )
        options = ["--forward", "--fuzz=0", "--no-backup-if-mismatch", "--reject-file=-"]
        strip = f"-p{1 + prefix.count('/')}"
        patch = ["patch", strip, "-d", str(root), *options, *(["--reverse"] if self.reverse else [])]
        shell = ("sh", "-c", '"$@" 2>&1 || echo FAILED', "sh")
        told = toolchain.run([*shell, *patch], write=[root], timeout_s=_LIMIT_S, stdin=diff.text.encode())
        if told.endswith("FAILED\n"):
            raise BuildError(f"{self._named(diff)} does not apply: {_why(told, diff)}", "rebase it")

    def _named(self, diff: Diff) -> str:
        return self.name if diff.origin in {"", self.file.name} else f"{self.name} ({diff.origin})"


def _why(told: str, diff: Diff) -> str:
    """Return what the program patch found wrong, in one line."""
    if "previously applied" in told:
        return f"{diff.path} has the change already"
    if "Unreversed patch" in told:
        return f"{diff.path} does not have the change that is to be taken back"
    failed = re.search(r"Hunk #(\d+) FAILED at (\d+)", told)
    if failed:
        return f"hunk {failed[1]} of {diff.path} finds other lines than it expects at line {failed[2]}"
    return f"{diff.path}: {told.strip().splitlines()[0]}"


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts that hold diffs, in order, each with where it comes from."""
    if path.is_dir():
        for file in _series(path):
            for text, origin in _texts(file):
                yield text, origin or file.name
        return
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the patch {path}: {error.strerror}", "check the path") from error
    starts = [found.start() for found in _MAIL.finditer(data)]
    if starts:
        mails = [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    elif _HEADERS.match(data):
        mails = [data]
    else:
        yield data.decode(errors="surrogateescape").replace("\r\n", "\n"), ""
        return
    for mail in mails:
        yield _mail(mail.partition(b"\n")[2] if mail.startswith(b"From ") else mail)


def _mail(data: bytes) -> tuple[str, str]:
    message = email.message_from_bytes(data, policy=email.policy.default)
    parts = [part.get_payload(decode=True) for part in message.walk() if not part.is_multipart()]
    texts = [part.decode(errors="surrogateescape") for part in parts if isinstance(part, bytes)]
    return "\n".join(texts).replace("\r\n", "\n"), str(message["subject"] or "").replace("\n", "")


def _series(directory: Path) -> list[Path]:
    """Return the patches of a directory: those its file ``series`` lists (quilt), else all by name."""
    listed = directory / "series"
    if listed.is_file():
        lines = (line.partition("#")[0].split() for line in listed.read_text().splitlines())
        return [directory / words[0] for words in lines if words]
    return sorted(file for file in directory.iterdir() if file.suffix in _SUFFIXES)


def _split(text: str, origin: str, file: Path) -> Iterator[Diff]:
    """Yield the diffs of a text.

    :raise UsageError: one is cut short, or is binary.
    """
    from unidiff.errors import UnidiffParseError  # noqa: PLC0415
    from unidiff.patch import PatchSet  # noqa: PLC0415 - only who hands in patches needs it

    if "\nGIT binary patch\n" in text:
        raise UsageError(f"{file} holds a binary change", "apply it to a tree with git, and use tree:PATH")
    try:
        changed = PatchSet(text)
    except UnidiffParseError as error:
        raise UsageError(f"{file} is damaged: {error}", "get it again: git format-patch") from error
    for each in changed:
        head = str(each.patch_info)
        if not len(each) and not re.search(
            r"^(?:rename|new file|deleted file|old mode) ", head, re.MULTILINE
        ):
            raise UsageError(f"{file} is damaged: {each.path} has no hunk", "get it again: git format-patch")
        before = each.source_file.removeprefix("a/") if "\nrename from " in head else each.path
        yield Diff(each.path, before, str(each), origin, each.is_added_file)

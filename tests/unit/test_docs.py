"""The documentation: a site without dead links, and a README whose links lead somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    argv = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(config),
        "-d",
        str(site),
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_mkdocs_builds_every_page_and_finds_no_dead_link(tmp_path: Path) -> None:
    done = build(ROOT / "mkdocs.yml", tmp_path)
    assert done.returncode == 0, done.stderr
    for page in (ROOT / "docs").glob("*.md"):
        assert list(tmp_path.glob("index.html" if page.stem == "index" else f"{page.stem}/index.html")), page


@pytest.mark.parametrize("target", ["gone.md", "guide.md#no-such-section"])
def test_a_dead_link_would_be_found(tmp_path: Path, target: str) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    with (tmp_path / "docs/index.md").open("a") as index:
        index.write(f"\n[gone]({target})\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    assert target in done.stderr


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_links_of_a_page_outside_the_site_lead_to_files(name: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / name).read_text())
    assert targets or name == "CHANGELOG.md"
    for target in targets:
        assert (ROOT / target).exists(), target

"""The project's own CI: valid files for GitHub and GitLab, whose commands are commands of testbed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli.matrix import command as matrix
from testbed.matrix import orders, read_product, shard

ROOT = Path(__file__).resolve().parents[2]
GITHUB, GITLAB = ROOT / ".github/workflows/testbed.yml", ROOT / ".gitlab-ci.yml"
SCHEMAS = {
    GITHUB: ("vendor.github-workflows",),
    GITLAB: ("vendor.gitlab-ci", "--data-transform", "gitlab-ci"),
}
SHARDS = 4
MATRICES = sorted((ROOT / ".ci").glob("*.toml"))


def check(file: Path, *schema: str) -> subprocess.CompletedProcess[str]:
    """Check a file by a schema that comes with check-jsonschema, so without network."""
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", *schema, str(file)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", SCHEMAS, ids=["github", "gitlab"])
def test_the_template_is_valid(file: Path) -> None:
    done = check(file, *SCHEMAS[file])
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", SCHEMAS, ids=["github", "gitlab"])
def test_a_wrong_word_in_it_would_be_found(file: Path, tmp_path: Path) -> None:
    wrong = tmp_path / file.name
    text = file.read_text()
    wrong.write_text(text.replace("timeout", "time_out"))
    assert "timeout" in text
    assert check(wrong, *SCHEMAS[file]).returncode == 1


@pytest.mark.parametrize("file", SCHEMAS, ids=["github", "gitlab"])
def test_it_runs_each_shard_by_a_command_that_testbed_knows(file: Path) -> None:
    text = file.read_text()
    lines = re.findall(r"testbed matrix (.+) >(\S+)\.xml$", text, re.MULTILINE)
    for line, out in lines:
        words = re.sub(r"\$\{\{ matrix.shard }}|\$CI_NODE_INDEX", "3", line)
        words = re.sub(r"\$\{\{ strategy.job-total }}|\$CI_NODE_TOTAL", str(SHARDS), words)
        given = matrix.make_context("matrix", shlex.split(words)).params
        kept = Path(out.replace("junit", "matrix"))
        assert (given["part"], given["form"], given["out"]) == ("3/4", "junit", kept)
    assert {line.split()[0] for line, _ in lines} == {str(file.relative_to(ROOT)) for file in MATRICES}
    assert re.search(r"shard: \[1, 2, 3, 4]|parallel: 4", text)


@pytest.mark.parametrize("file", MATRICES, ids=lambda each: each.stem)
def test_the_shards_are_the_whole_matrix_and_none_is_empty(file: Path) -> None:
    work = orders(read_product(file))
    parts = [shard(work, number, SHARDS) for number in range(1, SHARDS + 1)]
    assert all(parts)
    assert sorted(each.command() for part in parts for each in part) == sorted(o.command() for o in work)


@pytest.mark.parametrize("file", SCHEMAS, ids=["github", "gitlab"])
def test_every_file_and_command_that_it_names_is_there(file: Path) -> None:
    text = file.read_text()
    for name in set(re.findall(r"\.ci/\w+(?:\.\w+)?", text)):
        assert (ROOT / name).is_file()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?<=make )[a-z-]+", text)) <= targets

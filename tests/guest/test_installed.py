"""testbed as somebody has it who typed ``pip install``: without a checkout, called from any directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import image
from testbed.toolchain.recipe import IMAGES

if TYPE_CHECKING:
    from testbed.toolchain import Toolchain

CHECKOUT = Path(__file__).resolve().parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
BUILD_AN_IMAGE = """
import os, sys
from testbed import image
from testbed.toolchain import open_toolchain
toolchain = open_toolchain()
os.environ["TESTBED_CACHE"] = sys.argv[1]
print(image.SOURCES, image.build(toolchain), sep="\\n")
"""


def run(*argv: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy: setuptools leaves its work where the sources are."""
    source, wheels = (tmp_path_factory.mktemp(name) for name in ("source", "wheels"))
    for name in ("testbed", "images", "fuzz"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    run(*PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", wheels, source, cwd=source)
    (built,) = wheels.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs' directory of an environment with this wheel; what it depends on comes from ours."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place)
    python = place / "bin" / "python"
    run(*PIP, "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=place)
    (packages,) = place.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("-packages")]
    (packages / "dependencies.pth").write_text("\n".join(ours))
    return place / "bin"


def test_the_wheel_has_all_that_guests_and_campaigns_begin_with(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    parts = [path for path in IMAGES.rglob("*") if path.is_file()]
    library = (CHECKOUT / "testbed/scenario/library").glob("*.yaml")
    needed = {f"testbed/images/{path.relative_to(IMAGES)}" for path in parts}
    needed |= {f"testbed/scenario/library/{path.name}" for path in library}
    needed |= {f"testbed/report/web/page.{kind}" for kind in ("html", "css", "js")}
    needed |= {f"testbed/report/web/{name}.html" for name in ("frame", "campaign")}
    needed |= {
        f"testbed/fuzzing/seeds/{seed}" for seed in ("minimal/receive-one.yaml", "minimal/send-one.yaml")
    }
    assert len(needed) > 60
    assert needed <= held


@pytest.mark.parametrize("what", ["scenarios", "variants"])
def test_it_lists_the_same_from_any_directory(installed: Path, tmp_path: Path, what: str) -> None:
    there = json.loads(run(installed / "testbed", "list", what, "--json", cwd=tmp_path))
    here = json.loads(run(Path(sys.executable).with_name("testbed"), "list", what, "--json", cwd=CHECKOUT))
    assert there == here
    assert there[what]


def test_it_builds_the_same_image_from_any_directory(
    installed: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    words = ("-c", BUILD_AN_IMAGE, tmp_path / "cache")
    sources, built = run(installed / "python", *words, cwd=tmp_path).splitlines()
    assert Path(sources).is_relative_to(installed.parent)
    assert Path(built).read_bytes() == image.build(toolchain).read_bytes()

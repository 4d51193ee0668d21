"""Finding a device model by its name, ``MODULE:CLASS`` or ``FILE.py:CLASS``, and the files it is made of."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import HostError
from testbed.vfio_user.device import Device

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["find_model", "model_sources"]


def find_model(name: str) -> type[Device]:
    """Return the class.

    :raise ImportError: there is no such module, file or class, or it is no device model.
    """
    place, _, member = name.rpartition(":")
    module = _load(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    found = getattr(module, member, None)
    if isinstance(found, type) and issubclass(found, Device):
        return found
    raise ImportError(f"{name} is no device model: expected a class derived from testbed.vfio_user.Device")


def model_sources(name: str) -> list[Path]:
    """Return the files that decide what a saved device of this model means: its own, and the server's.

    :raise HostError: there are none.
    """
    place = name.rpartition(":")[0]
    if place.endswith(".py"):
        own = [Path(place)] if Path(place).exists() else []
    else:
        spec = importlib.util.find_spec(place)
        own = list(Path(spec.origin).parent.glob("*.py")) if spec and spec.origin else []
    if not own:
        raise HostError(f"there is no device model {name}", "correct the NIC that names it")
    return sorted({*own, *Path(__file__).parent.glob("*.py")})


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ImportError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module

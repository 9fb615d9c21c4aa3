"""What the repository says about itself: version, pins, packages of the pages."""

import base64
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker

from scripts.web_assets import FILES

ROOT = Path(__file__).resolve().parent.parent.parent
_PIN = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+?))? *\\?$", re.M
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """An npm package of which files are in the wheel. ``integrity`` is its SHA-512 in hex."""

    name: str
    version: str
    sha512: str
    files: tuple[str, ...]


def metadata(root: Path = ROOT) -> dict[str, Any]:
    """The table ``project`` of pyproject.toml."""
    with (root / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


def version(root: Path = ROOT) -> str:
    return metadata(root)["version"]


def pins(root: Path = ROOT) -> dict[str, str]:
    """Name → version of what the base install brings on this platform."""
    text = (root / "requirements" / "base.txt").read_text(encoding="utf-8")
    return {
        found["name"]: found["version"]
        for found in _PIN.finditer(text)
        if not found["marker"] or Marker(found["marker"]).evaluate()
    }


def packed(root: Path = ROOT) -> list[Packed]:
    """The npm packages whose files the wheel has, by name."""
    locked = json.loads((root / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    return [
        Packed(
            name=name,
            version=locked[f"node_modules/{name}"]["version"],
            sha512=_hex(locked[f"node_modules/{name}"]["integrity"]),
            files=(*(Path(file).name for file in files), f"{name.rpartition('/')[2]}.LICENSE"),
        )
        for name, files in sorted(FILES.items())
    ]


def _hex(integrity: str) -> str:
    return base64.b64decode(integrity.removeprefix("sha512-")).hex()

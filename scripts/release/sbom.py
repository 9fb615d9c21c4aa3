"""The bill of materials of a release, as CycloneDX 1.6: what the wheel has in it, and what its base
install brings. It names no time and no machine, so two builds of a commit have the same one.
"""

import hashlib
import json
from importlib.metadata import requires
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from . import licences
from .project import Packed, metadata, packed, pins, version


def bill(wheel: Path) -> dict[str, Any]:
    """The bill of materials of a wheel."""
    root = f"pkg:pypi/forge-jobs@{version()}"
    npm = [_npm(one, licences.of_packed()[one.name]) for one in packed()]
    found = licences.of_dependencies()
    python = [_python(name, pin, found[name]) for name, pin in sorted(pins().items())]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    project = metadata()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"expression": project["license"]}],
                "purl": root,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            },
        },
        "components": [*npm, *python],
        "dependencies": _dependencies(root, [one["bom-ref"] for one in npm]),
    }


def written(wheel: Path) -> str:
    """The bill of materials as JSON text."""
    return json.dumps(bill(wheel), indent=2) + "\n"


def _npm(one: Packed, licence: str) -> dict[str, Any]:
    reference = f"pkg:npm/{one.name}@{one.version}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": one.name,
        "version": one.version,
        "scope": "required",
        "licenses": [{"license": {"id": licence}}],
        "purl": reference,
        "hashes": [{"alg": "SHA-512", "content": one.sha512}],
        "properties": [{"name": "forge-jobs:packed-file", "value": file} for file in one.files],
    }


def _python(name: str, pin: str, licence: str) -> dict[str, Any]:
    reference = _purl(name, pin)
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": pin,
        "scope": "required",
        "licenses": [{"license": {"id": licence}}],
        "purl": reference,
    }


def _dependencies(root: str, npm: list[str]) -> list[dict[str, Any]]:
    """Who needs whom, among what the bill lists."""
    base = [canonicalize_name(Requirement(one).name) for one in metadata()["dependencies"]]
    made = [{"ref": root, "dependsOn": sorted([*npm, *(_purl(one, pins()[one]) for one in base)])}]
    for name, pin in sorted(pins().items()):
        made.append({"ref": _purl(name, pin), "dependsOn": _needed(name)})
    return [*made, *({"ref": one, "dependsOn": []} for one in npm)]


def _needed(name: str) -> list[str]:
    wanted = [Requirement(one) for one in requires(name) or ()]
    names = {
        canonicalize_name(one.name)
        for one in wanted
        if one.marker is None or one.marker.evaluate({"extra": ""})
    }
    return sorted(_purl(one, pin) for one, pin in pins().items() if canonicalize_name(one) in names)


def _purl(name: str, pin: str) -> str:
    return f"pkg:pypi/{canonicalize_name(name)}@{pin}"

"""Licences of what is packed and of what the base install brings, as SPDX expressions.

A licence is read from what is delivered: the LICENSE file beside the scripts and the font of the
pages, and the metadata of the installed packages. One that is not in ``ALLOWED`` stops the release.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from .project import ROOT, packed, pins

VENDOR: Final = ROOT / "src" / "forge_jobs" / "web" / "static" / "vendor"
ALLOWED: Final = frozenset(
    {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "OFL-1.1"}
)
# How the text of each licence begins, without its title and its copyright lines.
_TEXTS: Final = {
    "0BSD": "Permission to use, copy, modify, and/or distribute this software for any purpose "
    "with or without fee is hereby granted.",
    "MIT": "Permission is hereby granted, free of charge, to any person obtaining a copy of this "
    "software and associated documentation files",
    "OFL-1.1": "This Font Software is licensed under the SIL Open Font License, Version 1.1.",
}
# What packages wrote before there were SPDX expressions in their metadata.
_WRITTEN: Final = {
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "ISC License": "ISC",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
}


class BadLicence(Exception):
    """A licence is missing, unknown or not allowed."""


def of_packed(folder: Path = VENDOR) -> dict[str, str]:
    """npm package → licence, by the text that the wheel has beside its files."""
    return {
        one.name: of_text(folder / f"{one.name.rpartition('/')[2]}.LICENSE") for one in packed()
    }


def of_dependencies() -> dict[str, str]:
    """Package of the base install → licence, by the metadata of the pinned version."""
    return {name: _allowed(name, _stated(name, wanted)) for name, wanted in pins().items()}


def of_text(path: Path) -> str:
    """The licence whose text a file has."""
    if not path.is_file():
        raise BadLicence(f"{path.name} is missing: run `make setup`, which brings it")
    text = " ".join(path.read_text(encoding="utf-8").split())
    for name, wanted in _TEXTS.items():
        if wanted in text:
            return _allowed(path.name, name)
    raise BadLicence(
        f"{path.name} is the text of no licence that scripts/release/licences.py knows"
    )


def _stated(name: str, wanted: str) -> str:
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise BadLicence(f"{name} is not installed: run `make setup`") from None
    if found.version != wanted:
        raise BadLicence(f"{name} is {found.version}, requirements/base.txt pins {wanted}")
    texts = [
        text
        for key in ("License-Expression", "License", "Classifier")
        for text in found.metadata.get_all(key) or ()
    ]
    for text in texts:
        name = text.rpartition(":: ")[2]
        if 0 < len(name) < 60 and (text == name or text.startswith("License ::")):
            return _WRITTEN.get(name, name)
    return "unknown"


def _allowed(name: str, licence: str) -> str:
    if licence not in ALLOWED:
        raise BadLicence(f"{name}: licence {licence!r} is not one of {', '.join(sorted(ALLOWED))}")
    return licence

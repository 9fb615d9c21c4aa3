"""The pictures of the documentation: small, and the moving one moves."""

import struct
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
MAX_BYTES = 1_000_000


def chunks(picture: bytes) -> list[str]:
    """The names of the parts of a WebP file."""
    found: list[str] = []
    place = 12
    while place + 8 <= len(picture):
        name, size = struct.unpack("<4sI", picture[place : place + 8])
        found.append(name.decode())
        place += 8 + size + size % 2
    return found


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in IMAGES.iterdir()}
    assert "demo.webp" in sizes
    assert [name for name, size in sizes.items() if size > MAX_BYTES] == []


def test_the_demo_is_a_moving_picture_that_the_readme_shows() -> None:
    picture = (IMAGES / "demo.webp").read_bytes()
    assert (picture[:4], picture[8:12]) == (b"RIFF", b"WEBP")
    assert chunks(picture).count("ANMF") > 20
    readme = (IMAGES.parents[1] / "README.md").read_text(encoding="utf-8")
    assert "](docs/images/demo.webp)" in readme

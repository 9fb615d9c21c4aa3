"""Static files: addresses with a hash of the content, cached for a year, compressed with gzip.

A page links to ``/static/forge.3b1c….css``. When the content changes, so does the address: browsers
load a file once per release. The plain name is served as well and revalidated by its ETag.
"""

import gzip
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

PREFIX: Final = "/static/"
_HASHED: Final = re.compile(r"(?P<stem>.+)\.(?P<hash>[0-9a-f]{16})(?P<suffix>\.[a-z0-9]+)")
_CSS_URL: Final = re.compile(rb'url\("([^":]+)"\)[^;]*')
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_REVALIDATE: Final = "no-cache"
_TYPES: Final = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file in memory. ``compressed`` is None where gzip saves nothing."""

    name: str
    stamp: tuple[int, int]
    content: bytes
    compressed: bytes | None
    digest: str
    media_type: str

    @property
    def hashed_name(self) -> str:
        """The name with the hash before its suffix."""
        path = Path(self.name)
        return path.with_name(f"{path.stem}.{self.digest}{path.suffix}").as_posix()


class StaticFiles:
    """The files of one folder, as an ASGI application. Files are read when they are first asked
    for, and again when they change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, StaticFile] = {}

    def address(self, path: str) -> str:
        """The address with the hash for ``/static/…``; an unknown file keeps its address."""
        file = self._find(path.removeprefix(PREFIX))
        return path if file is None else PREFIX + file.hashed_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            response: Response = PlainTextResponse("use GET\n", 405, headers={"allow": "GET, HEAD"})
        else:
            path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
            response = self._respond(path.removeprefix("/"), Headers(scope=scope))
        await response(scope, receive, send)

    def _respond(self, name: str, headers: Headers) -> Response:
        match = _HASHED.fullmatch(name)
        plain = name if match is None else match["stem"] + match["suffix"]
        file = self._find(plain)
        if file is None:
            return PlainTextResponse("there is no such file\n", 404)
        # a page of another release may ask for another hash: it gets this content, for this time
        known = match is not None and match["hash"] == file.digest
        zipped = file.compressed if accepts_gzip(headers) else None
        tag = f'"{file.digest}{"" if zipped is None else "-gzip"}"'
        common = {
            "cache-control": _FOR_EVER if known else _REVALIDATE,
            "etag": tag,
            "vary": "accept-encoding",
        }
        if tag in _tags(headers.get("if-none-match", "")):
            return Response(status_code=304, headers=common)
        if zipped is not None:
            common["content-encoding"] = "gzip"
        body = file.content if zipped is None else zipped
        return Response(body, media_type=file.media_type, headers=common)

    def _find(self, name: str) -> StaticFile | None:
        """The file of that name. Names are compared with those in the folder, so no name leads out
        of it."""
        known = self._files.get(name)
        path = self._folder / name if known is not None else self._names().get(name)
        if path is None:
            return None
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if known is None or known.stamp != stamp:
                known = self._files[name] = _read(name, stamp, self._content(path))
        except OSError:
            return None
        return known

    def _content(self, path: Path) -> bytes:
        """The bytes of a file. A style sheet leads to the hashed names of other files; what it
        names and is not installed, a font, is left out."""
        content = path.read_bytes()
        if path.suffix != ".css":
            return content

        def address(match: re.Match[bytes]) -> bytes:
            file = self._find(match[1].decode())
            if file is None:
                return b'local("")'
            return match[0].replace(match[1], file.hashed_name.encode())

        return _CSS_URL.sub(address, content)

    def _names(self) -> Mapping[str, Path]:
        files = (path for path in self._folder.rglob("*") if path.is_file())
        return {path.relative_to(self._folder).as_posix(): path for path in files}


def accepts_gzip(headers: Headers) -> bool:
    """Whether the client accepts gzip: named, and not with a quality of 0."""
    for entry in headers.get("accept-encoding", "").split(","):
        coding, _, quality = entry.strip().lower().partition(";")
        if coding.strip() == "gzip":
            return not re.fullmatch(r"\s*q=0(\.0*)?\s*", quality)
    return False


def _tags(header: str) -> list[str]:
    return [tag.strip().removeprefix("W/") for tag in header.split(",")]


def _read(name: str, stamp: tuple[int, int], content: bytes) -> StaticFile:
    compressed = gzip.compress(content, 9, mtime=0)
    media_type = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "text/plain"
    digest = hashlib.sha256(content).hexdigest()[:16]
    smaller = compressed if len(compressed) < len(content) else None
    return StaticFile(name, stamp, content, smaller, digest, media_type)

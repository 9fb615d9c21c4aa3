"""Thumbnails of a folder of pictures, made in child processes.

Run: python examples/thumbnails/thumbnails.py
"""

import asyncio
from pathlib import Path

from forge_jobs import Dead, Forge, Job, JobFailed

forge = Forge()


def shrink(picture: bytes, factor: int) -> bytes:
    """A smaller PPM picture: every ``factor``-th dot of every ``factor``-th row."""
    if not picture.startswith(b"P6\n"):
        raise ValueError("not a PPM picture")
    _, size, _, dots = picture.split(b"\n", 3)
    width, height = map(int, size.split())
    rows = [dots[3 * width * y : 3 * width * (y + 1)] for y in range(0, height, factor)]
    small = b"".join(
        row[3 * x : 3 * x + 3] for row in rows for x in range(0, len(row) // 3, factor)
    )
    return b"P6\n%d %d\n255\n" % (-(-width // factor), len(rows)) + small


@forge.task(queue="pictures", cpu=True, timeout="30s", max_attempts=2)
def thumbnail(path: str, factor: int) -> str:
    source = Path(path)
    try:
        small = shrink(source.read_bytes(), factor)
    except ValueError as error:
        raise Dead(f"{source.name}: {error}") from None  # a retry would read the same file
    target = source.with_suffix(".small.ppm")
    target.write_bytes(small)
    return target.name


def submit(folder: Path, factor: int = 4) -> list[Job[str]]:
    """A job for each picture; one that is unchanged since its last job gets none."""
    jobs: list[Job[str]] = []
    for path in sorted(folder.glob("*.ppm")):
        if path.stem.endswith(".small"):
            continue
        version = f"{path.resolve()}:{path.stat().st_mtime_ns}:{factor}"
        chosen = thumbnail.using(dedupe_key=version[-200:], dedupe_for="30d")
        jobs.append(chosen.enqueue(str(path.resolve()), factor))
    return jobs


async def main() -> None:
    folder = Path("pictures")
    folder.mkdir(exist_ok=True)
    for name in ("dawn", "noon"):
        (folder / f"{name}.ppm").write_bytes(b"P6\n64 48\n255\n" + bytes(3 * 64 * 48))
    (folder / "notes.ppm").write_bytes(b"not a picture\n")
    jobs = submit(folder)
    async with forge.worker(["pictures:2"]):
        for job in jobs:
            try:
                print(await job.aresult(timeout=30))
            except JobFailed as failed:
                print("dead:", failed.error)
    print("new jobs for unchanged pictures:", sum(not job.duplicate for job in submit(folder)))


if __name__ == "__main__":
    asyncio.run(main())

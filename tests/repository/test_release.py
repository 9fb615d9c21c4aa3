"""A release: the changelog is cut, archives are the same twice, and their contents are known."""

import hashlib
import re
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from scripts.release import archives, licences, project, sbom
from scripts.release.changelog import CHANGELOG, CannotCut, cut, sections
from scripts.release.licences import BadLicence

TEXT = """# Changelog

## [Unreleased]

### Added

- A thing.

## [0.1.0] - 2030-01-01

- The first.
"""


def test_the_changelog_is_cut() -> None:
    made = cut(TEXT, "0.2.0", "2030-02-01")
    assert sections(made) == {"Unreleased": None, "0.2.0": "2030-02-01", "0.1.0": "2030-01-01"}
    assert (
        "## [Unreleased]\n\n## [0.2.0] - 2030-02-01\n\n### Added\n\n- A thing.\n\n## [0.1" in made
    )


def test_the_changelog_of_this_version_can_be_cut() -> None:
    text = CHANGELOG.read_text(encoding="utf-8")
    if sections(text).get(project.version()) is None:
        text = cut(text, project.version(), "2030-01-31")
    assert sections(text)[project.version()]


@pytest.mark.parametrize(
    ("text", "version", "day", "complaint"),
    [
        (TEXT, "0.2.0", "31.1.2030", "'31.1.2030' is no date: write it as 2030-01-31"),
        (TEXT, "0.1.0", "2030-02-01", "has a section 0.1.0 already: raise the version first"),
        (TEXT.replace("- A thing.", ""), "0.2.0", "2030-02-01", "nothing is under Unreleased"),
        ("# Changelog\n", "0.2.0", "2030-02-01", "needs one line"),
    ],
)
def test_a_changelog_that_cannot_be_cut(text: str, version: str, day: str, complaint: str) -> None:
    with pytest.raises(CannotCut, match=re.escape(complaint)):
        cut(text, version, day)


def test_every_licence_is_known_and_allowed(tmp_path: Path) -> None:
    packed = licences.of_packed()
    assert len(packed) == 5
    # What is packed and the package itself, and nothing else, is what the metadata say.
    assert {"MIT", *packed.values()} == set(project.metadata()["license"].split(" AND "))
    assert set(licences.of_dependencies()) == set(project.pins())
    (tmp_path / "x.LICENSE").write_text("All rights reserved.")
    with pytest.raises(BadLicence, match=r"x\.LICENSE is the text of no licence"):
        licences.of_text(tmp_path / "x.LICENSE")
    with pytest.raises(BadLicence, match="is missing: run `make setup`"):
        licences.of_text(tmp_path / "y.LICENSE")


def test_a_licence_that_is_not_allowed_stops_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences, "ALLOWED", licences.ALLOWED - {"Apache-2.0"})
    with pytest.raises(BadLicence, match=r"tzdata: licence 'Apache-2.0' is not one of 0BSD, "):
        licences.of_dependencies()


def test_classifiers_name_what_is_tested(project_root: Path) -> None:
    named = project.metadata()["classifiers"]
    versions = {one.rpartition(" ")[2] for one in named if re.search(r":: 3\.\d+$", one)}
    workflow = (project_root / ".github" / "workflows" / "ci.yml").read_text()
    tested = set(re.findall(r'"(3\.\d+)"', workflow))
    assert versions == tested
    systems = {one for one in named if one.startswith("Operating System")}
    assert systems == {"Operating System :: POSIX :: Linux"}


def test_nothing_of_the_machine_is_packed() -> None:
    told = archives.told_of_the_machine
    host = "files.python" + "hosted.org"
    assert list(told("a.py", f"# from {host}".encode())) == ["python" + "hosted.org"]
    assert list(told("a.py", b"x = '/home/" + b"ada/secret'")) == ["/home/" + "ada/"]
    assert list(told("a.py", b"x = '/health'")) == []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Source archive and wheel of the last commit; fails unless they are the same twice."""
    made = archives.build_twice("HEAD", tmp_path_factory.mktemp("release"))
    return sorted(made, key=lambda one: one.suffix)


@pytest.mark.slow
def test_the_archives_are_the_same_twice_and_can_be_published(
    built: list[Path], tmp_path: Path
) -> None:
    sdist, wheel = built
    archives.check_with_twine(built)
    archives.check_contents(wheel)
    rebuilt = archives.wheel_of_sdist(sdist, tmp_path)
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(rebuilt) as again:
        crcs = [{one.filename: one.CRC for one in made.infolist()} for made in (first, again)]
        [name] = [one for one in first.namelist() if one.endswith("METADATA")]
        metadata = message_from_bytes(first.read(name))
    assert crcs[0] == crcs[1]
    assert metadata["License-Expression"] == "MIT AND 0BSD AND OFL-1.1"
    assert metadata.get_all("Project-URL") is None, "only addresses that exist"


@pytest.mark.slow
def test_two_builds_that_differ_are_found(
    built: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(_commit: str, folder: Path, *_: Any) -> list[Path]:
        folder.mkdir()
        made = folder / built[1].name
        made.write_bytes(built[1].read_bytes() + folder.name.encode())
        return [made]

    monkeypatch.setattr(archives, "_build", build)
    with pytest.raises(archives.BadRelease, match=r"\.whl differs between two builds of HEAD"):
        archives.build_twice("HEAD", tmp_path)


@pytest.mark.slow
def test_the_bill_of_materials_lists_what_is_delivered(built: list[Path]) -> None:
    _, wheel = built
    bill = sbom.bill(wheel)
    assert bill == sbom.bill(wheel)
    component = bill["metadata"]["component"]
    assert component["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    listed = {one["bom-ref"]: one for one in bill["components"]}
    assert len(listed) == len(bill["components"])
    assert {one["name"] for one in listed.values()} == {
        *(one.name for one in project.packed()),
        *project.pins(),
    }
    edges = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert set(edges) == {component["bom-ref"], *listed}
    assert {end for ends in edges.values() for end in ends} == set(listed), "each is needed"
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name).name for name in archive.namelist() if "/vendor/" in name}
    stated = {said["value"] for one in listed.values() for said in one.get("properties", ())}
    assert stated | {"versions.json"} == names

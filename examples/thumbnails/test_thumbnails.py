"""Tests of the thumbnails: the arithmetic by plain calls, the folder by draining."""

import os

import pytest
from thumbnails import forge, shrink, submit, thumbnail

from forge_jobs import Dead, testing

os.environ["FORGE_URL"] = "memory://"


def picture(width, height):
    return b"P6\n%d %d\n255\n" % (width, height) + bytes(range(3 * width)) * height


def test_every_fourth_dot_of_every_fourth_row_is_kept():
    small = shrink(picture(8, 6), 4)
    assert small == b"P6\n2 2\n255\n" + bytes([0, 1, 2, 12, 13, 14]) * 2


def test_what_is_no_picture_is_not_tried_again(tmp_path):
    (tmp_path / "a.ppm").write_bytes(b"text\n\n\n")
    with pytest.raises(Dead, match=r"a\.ppm: not a PPM picture"):
        thumbnail(str(tmp_path / "a.ppm"), 4)


def test_a_picture_gets_one_job_until_it_changes(tmp_path):
    (tmp_path / "a.ppm").write_bytes(picture(8, 6))
    assert [job.duplicate for job in submit(tmp_path)] == [False]
    assert [job.duplicate for job in submit(tmp_path)] == [True]
    os.utime(tmp_path / "a.ppm", (1, 1))
    assert [job.duplicate for job in submit(tmp_path)] == [False]
    testing.assert_enqueued(forge, thumbnail, {"factor": 4}, times=2)

"""The check of commit subjects accepts what CONTRIBUTING asks for and names what is wrong."""

import pytest

from scripts.check_subject import problem


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ("", "empty"),
        ("x" * 73, "73 characters"),
        ("Add a store.", "full stop"),
        ("add a store", "small letter"),
        ("Add a store\nwith a body", "second line"),
    ],
)
def test_a_bad_subject_is_named(message: str, complaint: str) -> None:
    found = problem(message)
    assert found is not None
    assert complaint in found


@pytest.mark.parametrize("message", ["Add a store", "Add a store\n\nBecause of 3 reasons."])
def test_a_good_subject_passes(message: str) -> None:
    assert problem(message) is None

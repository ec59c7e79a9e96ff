"""What became of a project's files, by two checkpoints."""

import io

from autocoder.archive import pack
from autocoder.changes import AT_MOST, Changes, compare, digests

BEFORE = {"a": "1", "b": "2", "c": "3"}


def test_files_are_added_changed_and_deleted_by_their_content() -> None:
    before, after = (
        digests(io.BytesIO(pack(files, "project/")))
        for files in (BEFORE, {"a": "1", "b": "other", "d": "3"})
    )
    assert compare(before, after) == Changes(added=["d"], changed=["b"], deleted=["c"])
    assert compare(before, before) == Changes()


def test_beside_the_project_nothing_counts() -> None:
    assert digests(io.BytesIO(pack(BEFORE, "session/"))) == {}


def test_no_more_are_named_than_one_can_read() -> None:
    many = {f"{number:04}": "x" for number in range(1000)}
    changes = compare({}, many)
    assert (len(changes.added), changes.added[0], changes.more) == (AT_MOST, "0000", 1000 - AT_MOST)

"""Call a C compiler, except for what `make build` has compiled from equal bytes.

    python tools/kept_objects.py TREE COMPILER ... -c SOURCE ... -o OBJECT ...

If TREE holds SOURCE with the same bytes, and OBJECT compiled from it, OBJECT is copied. Otherwise
the compiler runs. tools/dist.py builds wheels with it. With --compile the first wheel is compiled,
so equal wheels show that modules compiled in two folders are equal.
"""

from __future__ import annotations

import os
import shutil
import sys

#: Ends a comment of Cython's with the names of files, in the order of a folder's entries.
METADATA = b"END: Cython Metadata */"


def compiled_of(source: bytes) -> tuple[int, bytes]:
    """Return what the compiler sees of C: how many lines stand before it, and the rest."""
    comment, _, rest = source.rpartition(METADATA)
    return comment.count(b"\n"), rest


def kept(tree: str, words: list[str]) -> tuple[str, str] | None:
    """Return an object of the tree and where to copy it; None where it is to be compiled."""
    if "-c" not in words or "-o" not in words:
        return None
    source, target = words[words.index("-c") + 1], words[words.index("-o") + 1]
    if os.path.isabs(source) or os.path.isabs(target):
        return None
    known, known_object = os.path.join(tree, source), os.path.join(tree, target)
    try:
        is_fresh = os.stat(known).st_mtime_ns <= os.stat(known_object).st_mtime_ns
        with open(known, "rb") as first, open(source, "rb") as second:
            is_same = compiled_of(first.read()) == compiled_of(second.read())
        return (known_object, target) if is_fresh and is_same else None
    except FileNotFoundError:
        return None


def main(arguments: list[str]) -> int:
    """Copy the object, or become the compiler."""
    tree, *command = arguments
    found = kept(tree, command)
    if found is None:
        os.execvp(command[0], command)
    shutil.copyfile(*found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

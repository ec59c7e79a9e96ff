"""Packs the project inside the sandbox. Standard library only: it is uploaded as this one file.

An archive holds `project/…`, without what the project's tools can make again, and `session/…`, the
agent's conversation, so that it can be resumed elsewhere.
"""

import argparse
import fnmatch
import json
import os
import shutil
import tarfile
from pathlib import Path

HOME = Path.home()
PROJECT = HOME / "project"
SESSIONS = HOME / ".claude" / "projects"
CACHE = (
    "CACHEDIR.TAG"  # what cargo, pytest, mypy and others put into the folders that they can remake
)


def project_files(leave_out: list[str]) -> list[Path]:
    """List the project's files and links, without what its tools can make again."""
    found = []
    for folder, names, files in os.walk(PROJECT):
        names[:] = sorted(
            name
            for name in names
            if not any(fnmatch.fnmatch(name, pattern) for pattern in leave_out)
            and not (Path(folder) / name / CACHE).is_file()
        )
        links = [n for n in names if (Path(folder) / n).is_symlink()]
        for name in sorted([*files, *links]):
            path = Path(folder) / name
            if path.is_symlink() or (path.is_file() and os.access(path, os.R_OK)):
                found.append(path)
    return found


def pack(target: str, leave_out: list[str], max_files: int, max_bytes: int) -> None:
    """Write the project and the agent's session into one archive; both count."""
    paths = project_files(leave_out)
    session = [path for path in SESSIONS.rglob("*") if path.is_file() and not path.is_symlink()]
    total = sum(p.lstat().st_size for p in [*paths, *session])
    if len(paths) + len(session) > max_files or total > max_bytes:
        print(json.dumps({"error": "too_large", "files": len(paths), "bytes": total}))
        return
    aside = HOME / f"{target}.{os.getpid()}"  # another caller may be reading the last one
    with tarfile.open(aside, "w:gz", compresslevel=3) as archive:
        for path in paths:
            archive.add(str(path), f"project/{path.relative_to(PROJECT)}", recursive=False)
        for path in session:
            archive.add(str(path), f"session/{path.relative_to(SESSIONS)}", recursive=False)
    aside.replace(HOME / target)
    print(json.dumps({"files": len(paths), "bytes": total}))


def unpack(source: str, leave_out: list[str]) -> None:
    """Put project and session back where `pack` found them; it runs in a sandbox made for it."""
    roots = {"project": PROJECT, "session": SESSIONS}
    roots = {name: folder for name, folder in roots.items() if name not in leave_out}
    for folder in roots.values():
        folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(HOME / source, "r:gz") as archive:
        archive.extraction_filter = lambda member, _: member  # links and all, as they were packed
        for member in archive:
            top, _, rest = member.name.partition("/")
            if rest and top in roots:
                member.name = rest
                make_way(roots[top], rest)
                archive.extract(member, roots[top])


def make_way(root: Path, inner: str) -> None:
    """Remove what would keep a file from its place: links and files above it, a folder there."""
    path = root
    *above, name = Path(inner).parts
    for part in above:
        path = path / part
        if path.is_symlink() or path.is_file():
            path.unlink()
    path = path / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink():
        path.unlink()


def files(leave_out: list[str], most: int) -> None:
    """Print the project's file names, as JSON."""
    print(json.dumps([str(p.relative_to(PROJECT)) for p in project_files(leave_out)[:most]]))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["pack", "unpack", "files"])
    parser.add_argument("archive", nargs="?", default="")
    parser.add_argument("--leave-out", default="")
    parser.add_argument("--max-files", type=int, default=0)
    parser.add_argument("--max-bytes", type=int, default=0)
    args = parser.parse_args()
    leave_out = [p for p in args.leave_out.split(",") if p]
    PROJECT.mkdir(parents=True, exist_ok=True)
    if args.action == "pack":
        pack(args.archive, leave_out, args.max_files, args.max_bytes)
    elif args.action == "unpack":
        unpack(args.archive, leave_out)
    else:
        files(leave_out, args.max_files)


if __name__ == "__main__":
    main()

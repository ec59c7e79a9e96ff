"""The command line that holds a sandbox's agent in bubblewrap."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from autocoder.local.sandboxes import seccomp

NOBODY = 65534
"""The user that a root server becomes before it starts bubblewrap: in a user namespace made by
root, the sandbox's user could write the host's /proc/sys."""

HOME = "/home/user"
TOOLCHAIN = "/opt/autocoder"
PYTHON = f"{TOOLCHAIN}/bin/python3"

_MIB = 1024 * 1024
_GIB = 1024 * _MIB

LIMITS = {
    "RLIMIT_DATA": 8 * _GIB,  # not RLIMIT_AS: V8 reserves address space that it never uses
    "RLIMIT_NPROC": 1024,  # threads count, and the kernel counts per sandbox
    "RLIMIT_FSIZE": 2 * _GIB,
    "RLIMIT_NOFILE": 8192,
    "RLIMIT_CORE": 0,
}
"""Per process, but for their number; `watchdog.py` looks at a sandbox's processes together."""

_ETC = {
    "/etc/passwd": f"user:x:1000:1000:user:{HOME}:/bin/bash\n",
    "/etc/group": "user:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    # The SDK's commands run in a login shell. The host's profile would reset PATH.
    "/etc/profile": "umask 022\n",
}
_HOST_ETC = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
_SCRATCH = {HOME: "0755", "/tmp": "1777", "/dev/shm": "1777"}  # noqa: S108
_SWITCHES = (
    ("user.max_user_namespaces", "0", "10000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),  # Debian's kernels before 11
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),  # Ubuntu's from 23.10 on
)
"""What keeps users from making namespaces: the name, the value that does, and the one to set."""

_FOLDERS = ("/etc", "/etc/pki", "/etc/ssl", "/home", "/opt", "/run", "/var")
_TOP_LEVEL = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def identity() -> dict[str, Any]:
    """What `subprocess` needs to start bubblewrap as an unprivileged user."""
    if os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def scratch(disk_mb: int) -> dict[str, int]:
    """The folders that a sandbox can write to, all of them in memory, and their sizes in bytes."""
    sizes = [disk_mb * _MIB, disk_mb * _MIB // 2, 64 * _MIB]
    return dict(zip(_SCRATCH, sizes, strict=True))


def shortcomings() -> list[str]:
    """What this machine's bubblewrap leaves open, where it works at all."""
    found = []
    if not _can_disable_userns():
        found.append(
            "This bubblewrap is older than 0.8: what runs in a sandbox can make user namespaces,"
            " in which more of the kernel is within its reach. Install a newer one."
        )
    if seccomp.program() is None:
        found.append(
            "This machine's system calls are not known here: what runs in a sandbox can use the"
            " kernel's keyrings, io_uring, bpf, perf events and userfaultfd."
        )
    return found


def script(name: str) -> list[str]:
    """The command that runs one of our scripts inside."""
    return [PYTHON, "-I", "-S", f"/run/{name}"]


def command(
    toolchain: Path,
    scripts: Iterable[Path],
    read_only: Sequence[Path],
    sizes: Mapping[str, int],
    info_fd: int,
    inner: Sequence[str],
) -> tuple[list[str], list[int]]:
    """The command line, and the descriptors that it reads; the caller closes them."""
    contents = {**_ETC, **{f"/run/{path.name}": path.read_text() for path in scripts}}
    files = {path: _data_fd(text.encode()) for path, text in contents.items()}
    fds = list(files.values())
    options = [*_namespaces(), *_mounts(toolchain, read_only, sizes)]
    for path, fd in files.items():
        options += ["--perms", "0444", "--file", str(fd), path]
    if system_calls := seccomp.program():
        fds.append(_data_fd(system_calls))
        options += ["--seccomp", str(fds[-1])]
    options += ["--remount-ro", "/", "--chdir", HOME, "--info-fd", str(info_fd)]
    # Through a descriptor, so that no path of the host shows in the sandbox's /proc/1/cmdline.
    options_fd = _data_fd("\0".join(options).encode())
    return [_bwrap(), "--args", str(options_fd), "--", *inner], [options_fd, *fds]


def _namespaces() -> list[str]:
    options = ["--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"]
    options += ["--hostname", "sandbox", "--cap-drop", "ALL"]
    options += ["--die-with-parent", "--new-session"]
    return options + (["--disable-userns"] if _can_disable_userns() else [])


def _mounts(toolchain: Path, read_only: Iterable[Path], sizes: Mapping[str, int]) -> list[str]:
    """A root of read-only binds; every file system that can be written to has a size."""
    options = []
    for name in _FOLDERS:  # those that bwrap makes on its own way are closed to everyone else
        options += ["--perms", "0755", "--dir", name]
    options += ["--ro-bind", "/usr", "/usr", "--ro-bind", str(toolchain), TOOLCHAIN]
    for path in map(Path, _TOP_LEVEL):
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for name in _HOST_ETC:
        options += ["--ro-bind-try", name, name]
    for path in read_only:
        options += ["--ro-bind-try", str(path), str(path)]
    # What of /proc/sys belongs to the sandbox's own namespaces could be written to otherwise.
    options += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    for name, size in sizes.items():
        options += ["--perms", _SCRATCH[name], "--size", str(size), "--tmpfs", name]
    options += ["--remount-ro", "/dev"]
    return [*options, "--symlink", "../tmp", "/var/tmp"]  # noqa: S108


def _data_fd(data: bytes) -> int:
    fd = os.memfd_create("bwrap")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@cache
def _bwrap() -> str:
    """Its absolute path: it is started without an environment, and so without a PATH."""
    return shutil.which("bwrap") or "bwrap"


@cache
def _can_disable_userns() -> bool:
    # One that fails even at this fails the trial too, which says why.
    usage = subprocess.run([_bwrap(), "--help"], capture_output=True, text=True, check=False)
    return "--disable-userns" in usage.stdout


def find_problem(toolchain: Path) -> str | None:
    """Why bubblewrap can't hold a sandbox here, found by trying; None when it can."""
    if shutil.which("bwrap") is None:
        return "bwrap is not installed"
    info_read, info_write = os.pipe()
    argv, fds = command(toolchain, [], [], scratch(1), info_write, [PYTHON, "-I", "-c", "pass"])
    try:
        trial = subprocess.run(
            argv,
            env={},
            cwd="/",
            pass_fds=[*fds, info_write],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            **identity(),
        )
    except subprocess.TimeoutExpired:
        return "bwrap did not answer within 30 s"
    except OSError as error:
        return f"bwrap can't be started: {error}"
    finally:
        for fd in (*fds, info_read, info_write):
            os.close(fd)
    if trial.returncode == 0:
        return None
    return f"{trial.stderr.strip() or 'bwrap failed'}{_remedy()}"


def _remedy() -> str:
    """What to do where this kernel lets no ordinary user make namespaces."""
    for name, value, wanted in _SWITCHES:
        switch = Path("/proc/sys") / name.replace(".", "/")
        if switch.exists() and switch.read_text().strip() == value:
            return f"\nAllow user namespaces: sudo sysctl {name}={wanted}"
    return ""

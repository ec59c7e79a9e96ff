"""What a sandbox in bubblewrap can't see, reach or change."""

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2b import CommandExitException, NotFoundException, Sandbox, SandboxException

from autocoder.local.sandboxes.bubblewrap import NOBODY
from tests.local.sandbox_lab import ROOT, Lab
from tests.waiting import eventually


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    state_dir = tmp_path_factory.mktemp("isolation") / "state"
    lab = Lab(state_dir, "bubblewrap", HOST_SECRET="the-hosts-own")
    yield lab
    assert lab.stop() == 0


@pytest.fixture(scope="module")
def sandbox(lab: Lab) -> Iterator[Sandbox]:
    with lab.sandbox() as sandbox:
        yield sandbox


def fails(sandbox: Sandbox, command: str) -> bool:
    try:
        sandbox.commands.run(command)
    except CommandExitException:
        return True
    return False


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder of the host in which every user may write."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_the_hosts_files_are_not_there(lab: Lab, sandbox: Sandbox) -> None:
    for path in (ROOT, lab.state_dir, Path.home() / ".bashrc", "/etc/shadow", "/sys", "/boot"):
        assert not sandbox.files.exists(str(path)), path
    assert sandbox.commands.run("ls /home /root 2>/dev/null || true").stdout == "/home:\nuser\n"


def test_the_hosts_environment_is_not_there(sandbox: Sandbox) -> None:
    environments = "cat /proc/*/environ | tr '\\0' '\\n'; env"
    assert "the-hosts-own" not in sandbox.commands.run(environments).stdout


def test_no_process_of_the_host_is_there(sandbox: Sandbox) -> None:
    names = sandbox.commands.run("cat /proc/[0-9]*/comm").stdout.split()
    assert set(names) <= {"bwrap", "python3", "cat", "bash"}


def test_no_open_descriptor_leads_out(sandbox: Sandbox) -> None:
    links = sandbox.commands.run("readlink /proc/1/fd/* /proc/2/fd/* || true").stdout.split()
    assert links
    kinds = ("pipe:", "socket:", "anon_inode:", "/dev/null")
    assert [x for x in links if not x.startswith(kinds)] == []


def test_everything_but_the_scratch_folders_is_read_only(sandbox: Sandbox) -> None:
    for folder in ("/", "/etc", "/usr/bin", "/opt/autocoder/bin", "/run", "/dev", "/var"):
        assert fails(sandbox, f"touch {folder}/x"), folder
    assert sandbox.commands.run("touch ~/x /tmp/x /var/tmp/y /dev/shm/x").exit_code == 0


def test_every_scratch_folder_has_a_size(sandbox: Sandbox) -> None:
    mounts = [line.split() for line in sandbox.files.read("/proc/mounts").splitlines()]
    writable = [x for x in mounts if x[2] == "tmpfs" and x[3].startswith("rw")]
    assert {x[1] for x in writable} == {"/home/user", "/tmp", "/dev/shm"}
    assert all("size=" in x[3] for x in writable)


def test_no_privilege_is_left_or_to_be_gained(sandbox: Sandbox) -> None:
    status = dict(
        line.split(":\t", 1) for line in sandbox.files.read("/proc/self/status").splitlines()
    )
    assert {status[x] for x in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert fails(sandbox, "unshare --user true")
    assert fails(sandbox, "exec 3>/proc/sys/vm/swappiness")
    assert fails(sandbox, "exec 3>/proc/sys/kernel/core_pattern")
    assert fails(sandbox, "exec 3>/proc/sysrq-trigger")


def test_a_root_server_gives_its_sandboxes_to_nobody(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("exec sleep 86421", background=True, timeout=0)
    owners = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we looked
            if (process / "cmdline").read_bytes() == b"sleep\x0086421\x00":
                owners.add(process.stat().st_uid)
    assert owners == {NOBODY if os.geteuid() == 0 else os.geteuid()}
    handle.kill()


def test_the_hosts_ports_are_out_of_reach(lab: Lab, sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ports = [listener.getsockname()[1]]
        ports += [int(lab.ready[x].rpartition(":")[2]) for x in ("api_url", "gateway_url")]
        for port in ports:
            assert fails(sandbox, f"exec 3<>/dev/tcp/127.0.0.1/{port}"), port
    assert sandbox.commands.run("ls /proc/sys/net/ipv4/conf").stdout.split() == [
        "all",
        "default",
        "lo",
    ]


def test_sandboxes_do_not_see_each_other(lab: Lab, sandbox: Sandbox) -> None:
    with lab.sandbox() as other:
        other.files.write("/tmp/mine", "secret")
        handle = other.commands.run("exec sleep 97531", background=True, timeout=0)
        assert not sandbox.files.exists("/tmp/mine")
        assert "97531" not in sandbox.commands.run("cat /proc/*/cmdline | tr '\\0' ' '").stdout
        handle.kill()
        keys = [x.commands.run("echo $ANTHROPIC_API_KEY").stdout for x in (sandbox, other)]
        assert keys[0] != keys[1]


def test_links_do_not_lead_the_files_api_out(sandbox: Sandbox, open_folder: Path) -> None:
    secret = open_folder / "secret"
    secret.write_text("of the host")
    secret.chmod(0o666)
    sandbox.commands.run(f"ln -s {secret} ~/file; ln -s {open_folder} ~/folder; ln -s / ~/root")
    for path in ("file", "folder/secret", f"root{secret}", f"../../../..{secret}", str(secret)):
        with pytest.raises(NotFoundException):
            sandbox.files.read(path)
    with pytest.raises(NotFoundException):
        sandbox.files.list("folder")
    for path in ("file", "folder/new", f"root{open_folder}/new"):
        with contextlib.suppress(SandboxException):  # or it wrote in the sandbox's own /tmp
            sandbox.files.write(path, "from the sandbox")
    sandbox.files.remove("folder")
    assert secret.read_text() == "of the host"
    assert [x.name for x in open_folder.iterdir()] == ["secret"]


def test_devices_and_processes_are_no_files(sandbox: Sandbox) -> None:
    for path in ("/dev/zero", "/proc/self/fd/0", "/dev/stdin"):
        with pytest.raises(SandboxException):
            sandbox.files.read(path)


def test_killing_everything_inside_ends_the_sandbox(lab: Lab) -> None:
    sandbox = lab.create()
    with pytest.raises(SandboxException):
        sandbox.commands.run("kill -9 -1")
    assert eventually(lambda: not sandbox.is_running())


def test_what_speaks_in_the_agents_place_only_ends_its_own_sandbox(lab: Lab) -> None:
    """The agent shares its user with the sandbox's programs: they may take its descriptors."""
    sandbox = lab.create()
    steal = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for number in range(3, 64):
    fd = libc.syscall(438, libc.syscall(434, 2, 0), number, 0)  # pidfd_getfd, pidfd_open
    if fd >= 0:
        os.write(fd, b"\\x00\\x00\\x00\\x05nonsense")
"""
    sandbox.files.write("steal.py", steal)
    try:
        sandbox.commands.run("python3 ~/steal.py")
    except SandboxException:
        assert eventually(lambda: not sandbox.is_running())
    sandbox.kill()
    with lab.sandbox() as healthy:
        assert healthy.commands.run("echo fine").stdout == "fine\n"

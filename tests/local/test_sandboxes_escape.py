"""What tries to get out of a sandbox in bubblewrap, or to harm its host, and fails."""

import contextlib
import os
import platform
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2b import CommandExitException, NotFoundException, Sandbox, SandboxException
from e2b.exceptions import NotEnoughSpaceException

from autocoder.local.sandboxes.bubblewrap import NOBODY
from autocoder.local.sandboxes.network import MOST_CONNECTIONS
from autocoder.local.sandboxes.seccomp import denied
from tests.local.sandbox_lab import ROOT, Lab, processes_with
from tests.waiting import eventually

HOST_SECRET = "sk-ant-the-hosts-own"
KEYS = ("ANTHROPIC_API_KEY", "E2B_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    state_dir = tmp_path_factory.mktemp("isolation") / "state"
    small = ["--memory-mb", "300", "--disk-mb", "64"]
    lab = Lab(state_dir, "bubblewrap", small, **dict.fromkeys(KEYS, HOST_SECRET))
    yield lab
    assert lab.stop() == 0
    assert HOST_SECRET not in lab.log()


@pytest.fixture(scope="module")
def sandbox(lab: Lab) -> Iterator[Sandbox]:
    with lab.sandbox() as sandbox:
        yield sandbox


OPEN_FOR_WRITING = """
import os
for folder, folders, files in os.walk("/proc"):
    own = ("self", "thread-self", "pressure")  # its processes, and notices of a busy machine
    folders[:] = [x for x in folders if not x.isdigit() and x not in own]
    for name in files:
        try:
            os.close(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_NONBLOCK))
            print(f"{folder}/{name}")
        except OSError:
            pass
print("looked")
"""
SYSTEM_CALLS = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
for number in map(int, sys.argv[1:]):
    ctypes.set_errno(0)
    libc.syscall(number, 0, 0, 0, 0, 0)
    print(errno.errorcode.get(ctypes.get_errno(), "none"))
"""
TRACE = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH = 16
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
mine = Piece(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
for pid in map(int, sys.argv[1:]):
    for call in (
        lambda: libc.ptrace(PTRACE_ATTACH, pid, None, None),
        lambda: libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(mine), 1, 0),
        lambda: libc.kill(pid, 0),
    ):
        print("done" if call() >= 0 else errno.errorcode[ctypes.get_errno()])
"""
REACH = """
import sys, urllib.error, urllib.request
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for opener in (direct, urllib.request.build_opener()):
    try:
        print(opener.open(sys.argv[1], timeout=10).status)
    except urllib.error.HTTPError as error:
        print(error.code)
    except OSError:
        print("unreachable")
"""
EVIL_ARCHIVE = """
import io, sys, tarfile
target = sys.argv[1]
with tarfile.open("evil.tar", "w") as tar:
    def add(name, kind=tarfile.REGTYPE, link=""):
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        member.size = 1 if kind == tarfile.REGTYPE else 0
        tar.addfile(member, io.BytesIO(b"x"))
    add(f"{target}/absolute")
    add(f"../../../..{target}/dots")
    add("out", tarfile.SYMTYPE, target)
    add("out/behind-link")
    add("hard", tarfile.LNKTYPE, f"{target}/absolute")
    add("device", tarfile.BLKTYPE)
"""


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


def test_who_prints_everything_finds_no_key(sandbox: Sandbox) -> None:
    everything = "env; cat /proc/*/environ /proc/*/cmdline /proc/*/mountinfo /proc/keys"
    everything += "; grep -rsah . /home /tmp /run /etc /var /dev/shm"
    found = sandbox.commands.run(f"({everything}) 2>/dev/null | cat", timeout=60).stdout
    assert sandbox.sandbox_id in found  # it did look at the environment
    assert HOST_SECRET not in found


def test_no_process_of_the_host_is_there(sandbox: Sandbox) -> None:
    names = sandbox.commands.run("cat /proc/[0-9]*/comm").stdout.split()
    assert set(names) <= {"bwrap", "python3", "cat", "bash"}


def test_no_open_descriptor_leads_out(sandbox: Sandbox) -> None:
    links = sandbox.commands.run("readlink /proc/1/fd/* /proc/2/fd/* || true").stdout.split()
    assert links
    # The memfd takes bwrap's last words: it has a fixed size, and nobody's files in it.
    kinds = ("pipe:", "socket:", "anon_inode:", "/dev/null", "/memfd:words", "(deleted)")
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


def test_no_setting_of_the_kernel_can_be_changed(sandbox: Sandbox) -> None:
    sandbox.files.write("write.py", OPEN_FOR_WRITING)
    opened = sandbox.commands.run("python3 ~/write.py", timeout=60).stdout.split()
    assert opened == ["looked"]
    for call in ("mount -t proc none /tmp", "mount --bind /tmp /etc", "mknod ~/sda b 8 0"):
        assert fails(sandbox, call), call


def test_a_program_that_is_to_run_as_root_does_not(sandbox: Sandbox) -> None:
    """Neither the host's own, nor one made inside."""
    make = "cp /usr/bin/id ~/id && chmod 6755 ~/id"
    assert sandbox.commands.run(f"{make}; ~/id -u").stdout == "1000\n"
    assert fails(sandbox, "su -c true")
    assert fails(sandbox, "python3 -c 'import os; os.setuid(0)'")


def test_keyrings_and_other_doors_of_the_kernel_are_shut(sandbox: Sandbox) -> None:
    numbers = denied(platform.machine())
    assert numbers, "this machine has no filter of system calls"
    sandbox.files.write("calls.py", SYSTEM_CALLS)
    names = [*numbers, "control"]
    arguments = [*numbers.values(), 63]  # of no use by itself, and refused by nobody
    result = sandbox.commands.run(f"python3 ~/calls.py {' '.join(map(str, arguments))}")
    answers = dict(zip(names, result.stdout.split(), strict=True))
    assert answers.pop("control") != "EPERM"
    assert set(answers.values()) == {"EPERM"}, answers


def test_the_hosts_processes_can_be_neither_traced_nor_read_nor_signalled(
    lab: Lab, sandbox: Sandbox
) -> None:
    sandbox.files.write("trace.py", TRACE)
    numbers = f"{lab.process.pid} {os.getpid()}"
    answers = sandbox.commands.run(f"python3 ~/trace.py {numbers}").stdout.split()
    assert answers == ["ESRCH"] * 6
    assert lab.process.poll() is None


def test_no_device_terminal_or_socket_of_the_host_is_there(sandbox: Sandbox) -> None:
    devices = {"null", "zero", "full", "random", "urandom", "tty", "ptmx"}
    others = {"pts", "shm", "fd", "stdin", "stdout", "stderr", "core"}  # core leads to no file
    assert set(sandbox.commands.run("ls /dev").stdout.split()) == devices | others
    assert fails(sandbox, "exec 3<>/dev/tty")
    sockets = "find / -path /proc -prune -o -type s -print 2>/dev/null || true"
    assert sandbox.commands.run(sockets).stdout == ""


def test_a_root_server_gives_its_sandboxes_to_nobody(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("exec sleep 86421", background=True, timeout=0)
    owners = set()

    def found() -> bool:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended while we looked
                if (process / "cmdline").read_bytes() == b"sleep\x0086421\x00":
                    owners.add(process.stat().st_uid)
        return bool(owners)

    assert eventually(found)
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


@pytest.mark.parametrize("address", ["169.254.169.254", "[fd00:ec2::254]", "10.0.0.1"])
def test_the_metadata_address_is_out_of_reach(sandbox: Sandbox, address: str) -> None:
    """Neither directly nor through the proxy for packages."""
    sandbox.files.write("reach.py", REACH)
    result = sandbox.commands.run(f"python3 ~/reach.py 'http://{address}/latest/meta-data/'")
    assert result.stdout.split() == ["unreachable", "403"]


def test_a_token_of_another_task_is_nowhere_to_be_found(lab: Lab, sandbox: Sandbox) -> None:
    with lab.sandbox() as other:
        token = other.commands.run("echo $ANTHROPIC_API_KEY").stdout.strip()
        look = "(env; cat /proc/*/environ; grep -rsah local- /home /tmp /run) 2>/dev/null | cat"
        found = sandbox.commands.run(look).stdout
        assert token.startswith("local-") and "local-" in found
        assert token not in found


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
    sandbox.commands.run("ln -s /etc/shadow ~/shadow; ln -s /proc/1/root/etc/shadow ~/shadow2")
    for path in ("shadow", "shadow2"):
        with pytest.raises(NotFoundException):
            sandbox.files.read(path)
    sandbox.commands.run("ln -s /etc/passwd ~/passwd")
    assert str(sandbox.files.read("passwd")).startswith("user:x:1000:")
    for path in ("file", "folder/new", f"root{open_folder}/new"):
        with contextlib.suppress(SandboxException):  # or it wrote in the sandbox's own /tmp
            sandbox.files.write(path, "from the sandbox")
    sandbox.files.remove("folder")
    assert secret.read_text() == "of the host"
    assert [x.name for x in open_folder.iterdir()] == ["secret"]


def test_an_archive_unpacks_nowhere_else(sandbox: Sandbox, open_folder: Path) -> None:
    """Absolute names, names with `..`, members behind links, hard links: all end inside."""
    sandbox.files.write("evil.py", EVIL_ARCHIVE)
    unpack = f"python3 evil.py {open_folder}; tar -xPf evil.tar 2>/dev/null; true"
    sandbox.commands.run(unpack, cwd="/home/user")
    assert list(open_folder.iterdir()) == []


def test_a_name_of_an_upload_that_climbs_out_ends_inside(
    sandbox: Sandbox, open_folder: Path
) -> None:
    sandbox.files.write(f"../../..{open_folder}/climbed", "x")
    assert sandbox.files.exists(f"{open_folder}/climbed")
    assert list(open_folder.iterdir()) == []
    with pytest.raises(SandboxException):
        sandbox.files.write("../../../etc/climbed", "x")


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
    with pytest.raises(SandboxException):  # it did steal, and spoke
        sandbox.commands.run("python3 ~/steal.py; sleep 5", timeout=20)
    assert eventually(lambda: not sandbox.is_running())
    with lab.sandbox() as healthy:
        assert healthy.commands.run("echo fine").stdout == "fine\n"


def test_a_fork_bomb_stays_within_its_sandbox(lab: Lab, sandbox: Sandbox) -> None:
    mark = str(100_000_000 + secrets.randbelow(1_000_000_000))
    bomb = f"while true; do setsid sleep {mark} >/dev/null 2>&1 & done 2> ~/errors"
    bombed = lab.create()
    bombed.commands.run(bomb, background=True, timeout=0)
    refused = "Resource temporarily unavailable"
    assert eventually(lambda: refused in str(bombed.files.read("errors")))
    assert 500 < len(processes_with(mark)) <= 1024
    assert sandbox.commands.run("echo fine").stdout == "fine\n"
    with lab.sandbox() as fresh:
        assert fresh.commands.run("echo fine").stdout == "fine\n"
    assert bombed.is_running()
    bombed.kill()
    assert processes_with(mark) == []


HOGS = {
    "one process": "python3 -c 'import sys; x = bytearray(600_000_000); sys.stdin.read()'",
    "shared memory": "python3 -c 'import mmap, sys; x = mmap.mmap(-1, 600_000_000);"
    " x.write(bytes(600_000_000)); sys.stdin.read()'",
    "many processes": "for i in 1 2 3 4 5 6 7 8; do"
    " python3 -c 'import sys; x = bytearray(75_000_000); sys.stdin.read()' <&0 & done;"
    " for job in $(jobs -p); do wait $job || exit; done",
}


@pytest.mark.parametrize("hog", HOGS)
def test_a_memory_hog_is_killed_and_its_sandbox_lives(lab: Lab, hog: str) -> None:
    """It would wait for ever: only being killed ends it."""
    with lab.sandbox() as box:
        handle = box.commands.run(HOGS[hog], background=True, stdin=True, timeout=0)
        assert eventually(lambda: f"{box.sandbox_id} is out of memory: killing" in lab.log())
        box.commands.close_stdin(handle.pid)  # for those that were spared
        with pytest.raises(CommandExitException) as killed:
            handle.wait()
        assert killed.value.exit_code in (-1, 137)
        assert box.commands.run("echo fine").stdout == "fine\n"


def test_memory_that_forks_share_is_counted_once(lab: Lab) -> None:
    fork = "x = bytearray(150_000_000); import os, time; [os.fork() for _ in range(2)]"
    with lab.sandbox() as box:
        box.commands.run(f"python3 -c '{fork}; time.sleep(2)'")
        assert f"{box.sandbox_id} is out of memory" not in lab.log()


def test_a_disk_filler_fills_only_its_own(lab: Lab, sandbox: Sandbox) -> None:
    before = shutil.disk_usage("/tmp").free
    fill = "for d in ~ /tmp /dev/shm /var/tmp; do dd if=/dev/zero of=$d/full bs=1M; done"
    with lab.sandbox() as filler:
        filled = filler.commands.run(f"({fill}) 2>&1; du -sm ~ /tmp /dev/shm").stdout
        assert filled.count("No space left on device") == 4
        assert sum(int(x.split()[0]) for x in filled.splitlines()[-3:]) <= 64 + 32 + 64
        with pytest.raises(NotEnoughSpaceException):
            filler.files.write("more", "x" * 10_000)
        assert fails(filler, "truncate -s 3G ~/sparse")
        assert sandbox.commands.run("echo x > ~/still && cat ~/still").stdout == "x\n"
    assert before - shutil.disk_usage("/tmp").free < 50_000_000  # others use it too


def test_a_flood_of_connections_harms_nobody_else(lab: Lab) -> None:
    with lab.sandbox() as hostile, lab.sandbox() as other:
        flood = """
import os, socket, time
from urllib.parse import urlsplit
url = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
kept = []
for _ in range(1000):
    try:
        kept.append(socket.create_connection((url.hostname, url.port), timeout=5))
    except OSError:
        break
alive = 0
time.sleep(1)
for one in kept:
    one.setblocking(False)
    try:
        one.recv(1)
    except BlockingIOError:
        alive += 1  # it was not closed
    except OSError:
        pass
print(alive)
"""
        hostile.files.write("flood.py", flood)
        alive = int(hostile.commands.run("python3 ~/flood.py", timeout=60).stdout)
        assert 0 < alive <= MOST_CONNECTIONS
        assert other.commands.run("echo fine").stdout == "fine\n"


def test_another_sandboxs_access_token_opens_nothing(lab: Lab) -> None:
    with lab.sandbox() as one, lab.sandbox() as other:
        url = f"{lab.ready['sandbox_url']}/files?path=.bashrc"
        own = {"e2b-sandbox-id": one.sandbox_id, "x-access-token": str(one._envd_access_token)}
        assert httpx.get(url, headers=own).status_code != 401
        for token in (str(other._envd_access_token), "", "x"):
            answer = httpx.get(url, headers={**own, "x-access-token": token})
            assert answer.status_code == 401

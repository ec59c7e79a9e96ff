"""The process inside a sandbox that acts for the server: one file, standard library only.

Usage: python3 agent.py SOCKET_FD SETTINGS_JSON

It starts processes and opens files where the sandbox's own view of the file system applies, so no
symbolic link or mount trick made in the sandbox can reach beyond it, and hands descriptors to the
server over a unix socket. A message is a 4-byte length and a JSON object; `fds` in it says how
many descriptors came with its first byte. When the socket closes, the agent ends what it started.
"""

import contextlib
import errno
import grp
import json
import os
import pwd
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Reply = tuple[Any, list[int]]

_PR_SET_CHILD_SUBREAPER = 36


class Wire:
    """The socket to the server; several threads may send."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def send(self, message: Message, fds: list[int]) -> None:
        body = json.dumps({**message, "fds": len(fds)}).encode()
        data = struct.pack("!I", len(body)) + body
        # A server that is gone needs no answer; `messages` ends then, and the agent with it.
        with self._lock, contextlib.suppress(BrokenPipeError):
            sent = socket.send_fds(self._sock, [data], fds) if fds else 0
            self._sock.sendall(data[sent:])

    def messages(self) -> Iterator[tuple[Message, list[int]]]:
        data, fds = b"", []
        while True:
            chunk, new_fds, _, _ = socket.recv_fds(self._sock, 65536, 16)
            if not chunk:
                return
            data += chunk
            fds += new_fds
            while len(data) >= 4 and len(data) >= (end := 4 + struct.unpack("!I", data[:4])[0]):
                message = json.loads(data[4:end])
                data = data[end:]
                yield message, fds[: message["fds"]]
                del fds[: message["fds"]]


class Files:
    """What the files API asks for. Relative paths start at the home folder."""

    def __init__(self, home: str, home_alias: str) -> None:
        self._home = Path(home)
        self._alias = Path(home_alias)

    def resolve(self, path: str) -> Path:
        """The path as this process sees it; `home_alias` is the name that callers know."""
        wanted = Path(os.path.normpath(self._home / path))
        if wanted.is_relative_to(self._alias):
            return self._home / wanted.relative_to(self._alias)
        return wanted

    def open_read(self, path: str) -> Reply:
        # Non-blocking: opening a FIFO must not hang; the check below then refuses it.
        fd = os.open(self.resolve(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._require_regular(fd, path)
        return {}, [fd]

    def open_write(self, path: str) -> Reply:
        target = self.resolve(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(target, flags, 0o644)
        self._require_regular(fd, path)
        os.ftruncate(fd, 0)
        return {"name": target.name, "path": str(target), "type": "file"}, [fd]

    @staticmethod
    def _require_regular(fd: int, path: str) -> None:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return
        os.close(fd)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, "not a regular file", path)

    def stat(self, path: str) -> Reply:
        return _entry(self.resolve(path)), []

    def make_dir(self, path: str) -> Reply:
        target = self.resolve(path)
        target.mkdir(parents=True)
        return _entry(target), []

    def move(self, source: str, destination: str) -> Reply:
        target = self.resolve(destination)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.resolve(source).rename(target)
        return _entry(target), []

    def remove(self, path: str) -> Reply:
        target = self.resolve(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            with contextlib.suppress(FileNotFoundError):  # as E2B: removing nothing is no error
                target.unlink()
        return {}, []

    def list_dir(self, path: str, depth: int) -> Reply:
        folder = self.resolve(path)
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return list(_walk(folder, max(depth, 1))), []


def _walk(folder: Path, depth: int) -> Iterator[Message]:
    for child in sorted(folder.iterdir()):
        try:
            entry = _entry(child)
        except FileNotFoundError:
            continue  # deleted since it was listed
        yield entry
        if depth > 1 and entry["type"] == "dir" and not entry["is_symlink"]:
            yield from _walk(child, depth - 1)


def _entry(path: Path) -> Message:
    """A file's properties; a link's `type` is its target's, as E2B reports it."""
    info = path.lstat()
    is_symlink = stat.S_ISLNK(info.st_mode)
    target = None
    kind_mode = info.st_mode
    if is_symlink:
        target = _text(path.readlink())
        with contextlib.suppress(OSError):  # a dangling link, or a loop, has no target
            kind_mode = path.stat().st_mode
    kind = "dir" if stat.S_ISDIR(kind_mode) else "file" if stat.S_ISREG(kind_mode) else "other"
    return {
        "name": _text(path.name),
        "path": _text(path),
        "type": kind,
        "is_symlink": is_symlink,
        "symlink_target": target,
        "size": info.st_size,
        "mode": stat.S_IMODE(info.st_mode),
        "permissions": stat.filemode(info.st_mode),
        "owner": _name(pwd.getpwuid, info.st_uid),
        "group": _name(grp.getgrgid, info.st_gid),
        "mtime_ns": info.st_mtime_ns,
    }


def _text(path: "str | Path") -> str:
    """A path as text, also where its bytes are not UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def _name(lookup: Callable[[int], Any], number: int) -> str:
    try:
        return str(lookup(number)[0])
    except KeyError:
        return str(number)


class Processes:
    """Commands, each leading its own session; their exits are reported as events."""

    def __init__(self, files: Files, wire: Wire, *, shares_pids: bool) -> None:
        self._files = files
        self._wire = wire
        self._shares_pids = shares_pids
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def spawn(
        self, key: int, argv: list[str], env: dict[str, str], cwd: str, fds: list[int]
    ) -> Reply:
        """Start a command on the three descriptors that the server sent.

        The server chose `key`: it may hear of the exit before it hears the process id.
        """
        stdin, stdout, stderr = fds
        folder = self._files.resolve(cwd)
        if not folder.is_dir():  # else the error would name the program, not the folder
            raise OSError(errno.EINVAL, "the working directory does not exist", cwd)
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=folder,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self._running[key] = process
        try:
            threading.Thread(target=self._report_exit, args=(key, process), daemon=True).start()
        except RuntimeError:
            del self._running[key]
            process.kill()
            raise OSError(errno.EAGAIN, "the sandbox has too many processes") from None
        return {"pid": process.pid}, []

    def _report_exit(self, key: int, process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        del self._running[key]
        self._wire.send({"event": "exit", "key": key, "code": code}, [])

    def signal(self, key: int, number: int) -> Reply:
        process = self._running.get(key)
        if process is None:
            raise ProcessLookupError(errno.ESRCH, "the process has ended")
        process.send_signal(number)
        return {}, []

    def signal_all(self, number: int) -> Reply:
        """Signal everything in the sandbox but this process, also what has detached itself."""
        if not self._shares_pids:
            with contextlib.suppress(ProcessLookupError):  # there is none
                os.kill(-1, number)
            return {}, []
        done: set[int] = set()
        while pids := _descendants() - done:  # a process may fork between the look and the signal
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            done |= pids
        return {}, []


class Agent:
    def __init__(self, wire: Wire, settings: Message) -> None:
        self._wire = wire
        files = Files(settings["home"], settings["home_alias"])
        processes = Processes(files, wire, shares_pids=settings["shares_pids"])
        self._operations: dict[str, Callable[..., Reply]] = {
            "open_read": files.open_read,
            "open_write": files.open_write,
            "stat": files.stat,
            "make_dir": files.make_dir,
            "move": files.move,
            "remove": files.remove,
            "list_dir": files.list_dir,
            "spawn": processes.spawn,
            "signal": processes.signal,
            "signal_all": processes.signal_all,
        }

    def serve(self) -> None:
        """Answer until the server closes its end; a slow listing delays nothing else."""
        for message, fds in self._wire.messages():
            try:
                threading.Thread(target=self._answer, args=(message, fds), daemon=True).start()
            except RuntimeError:  # the sandbox's programs left no thread for it
                self._answer(message, fds)

    def _answer(self, message: Message, fds: list[int]) -> None:
        try:
            arguments = {**message["args"], "fds": fds} if fds else message["args"]
            result, reply_fds = self._operations[message["op"]](**arguments)
            reply: Message = {"result": result}
        except OSError as error:
            reply_fds = []
            code = errno.errorcode.get(error.errno or 0, "EIO")
            reply = {"error": {"errno": code, "message": str(error)}}
        except Exception as error:  # the server must hear of it, whatever it was
            reply_fds = []
            reply = {"error": {"errno": "EIO", "message": f"{type(error).__name__}: {error}"}}
        finally:
            for fd in fds:
                os.close(fd)
        self._wire.send({"id": message["id"], **reply}, reply_fds)
        for fd in reply_fds:
            os.close(fd)


def _listen(port: int) -> socket.socket:
    """A port of the sandbox's own loopback, for the server to answer on."""
    return socket.create_server(("127.0.0.1", port), backlog=128)


def _go_first() -> None:
    """Where the whole machine runs out of memory, the kernel ends a sandbox before its host."""
    with contextlib.suppress(OSError):  # a kernel that has no such order
        Path("/proc/self/oom_score_adj").write_text("1000")


def _adopt_orphans() -> None:
    """Without a PID namespace: make whatever daemonises stay a descendant of this process."""
    import ctypes  # here only: it costs more than the rest of the start

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _process_table() -> list[tuple[int, int]]:
    """(pid, parent) of every process."""
    if Path("/proc/self/stat").exists():
        table = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended while we looked
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                table.append((int(folder.name), int(fields[1])))
        return table
    listing = subprocess.run(["/bin/ps", "-axo", "pid=,ppid="], capture_output=True, check=True)
    return [(int(a), int(b)) for a, b in (x.split() for x in listing.stdout.splitlines())]


def _descendants() -> set[int]:
    table = _process_table()
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in table if parent in found} - found
        if not more:
            return found - {os.getpid()}
        found |= more


def _end_descendants() -> None:
    """Kill until none is left: a process may fork between the look and the kill."""
    while pids := _descendants():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def main() -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    settings = json.loads(sys.argv[2])
    for name, limit in settings["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]  # the host's own may be lower
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (most, most))
    if settings["shares_pids"] and sys.platform == "linux":
        _adopt_orphans()
    if sys.platform == "linux":
        _go_first()
    listeners = [_listen(port) for port in settings["ports"]]
    scratch = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in settings["scratch"]]
    wire = Wire(sock)
    ports = [listener.getsockname()[1] for listener in listeners]
    wire.send({"event": "ready", "ports": ports}, [x.fileno() for x in listeners] + scratch)
    for listener in listeners:
        listener.close()
    for folder in scratch:
        os.close(folder)
    try:
        Agent(wire, settings).serve()
    finally:
        if settings["shares_pids"]:
            _end_descendants()
    os._exit(0)  # threads that wait for processes must not delay the end


if __name__ == "__main__":
    main()

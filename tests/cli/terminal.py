"""A command in a terminal of its own, in which a test reads and types."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`shown` is all that the command has printed."""

    def __init__(
        self, command: list[str], environment: dict[str, str], folder: Path, columns: int = 60
    ) -> None:
        """Start it in a terminal of this width."""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.raw = b""
        self.read_to = 0
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    @property
    def shown(self) -> str:
        """Without what only moves the cursor."""
        return ESCAPE.sub("", self.raw.decode(errors="replace")).replace("\r\n", "\n")

    def answer(self, question: str, *lines: str) -> None:
        """Wait for a question that was not answered yet, and type."""
        while question not in self.shown[self.read_to :]:
            self.raw += os.read(self.master, 1024)  # the test's own time-out bounds it
        self.read_to = self.shown.index(question, self.read_to) + len(question)
        os.write(self.master, "".join(lines).encode())

    def end(self) -> tuple[int, str]:
        """Wait for the end; give the exit code and what was shown."""
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while more := os.read(self.master, 1024):
                self.raw += more
        os.close(self.master)
        return self.process.wait(60), self.shown

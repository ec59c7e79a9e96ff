"""A proxy on loopback in front of the sandbox server, which fails as networks and E2B do.

One connection carries one request, so bytes are passed on as they are: nothing of HTTP is
understood here but the first line. A rule applies to the requests whose first line it matches, so
often as it says; all others go through.
"""

import re
import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Rule:
    """What happens to a request.

    `answer` is sent in the server's place. `cut_after` lets so many bytes of the server's own
    answer through, then the connection ends: 0 is an answer that is lost, though it was acted on.
    With `stalls` it does not end: nothing more comes, as long as the client waits.
    """

    matches: str
    times: int = 1
    answer: str | None = None
    cut_after: int | None = None
    stalls: bool = False
    seen: int = 0


def reply(status: str, body: str, **headers: str) -> str:
    """An answer of HTTP, word for word."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", body])


class FaultProxy:
    """Passes requests on to `upstream`, or does not, by its rules."""

    def __init__(self, upstream: str) -> None:
        """`upstream` is a URL without a path."""
        parts = urlsplit(upstream)
        self.upstream = (str(parts.hostname), int(parts.port or 80))
        self.rules: list[Rule] = []
        self.requests: list[str] = []
        self.url = ""

    def fail(self, rule: Rule) -> Rule:
        """Add a rule."""
        self.rules.append(rule)
        return rule

    def rule_for(self, line: str) -> Rule | None:
        """Take the first rule that applies."""
        self.requests.append(line)
        for rule in self.rules:
            if rule.seen < rule.times and re.search(rule.matches, line):
                rule.seen += 1
                return rule
        return None

    def serve(self, client: socket.socket) -> None:
        """Serve one connection."""
        head = b""
        while b"\r\n\r\n" not in head:
            data = client.recv(65536)
            if not data:
                return
            head += data
        rule = self.rule_for(head.partition(b"\r\n")[0].decode())
        if rule and rule.answer is not None:
            client.sendall(rule.answer.encode())
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):  # or the client may fail to send, and never hear the answer
                pass
            return
        head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head, count=1)
        head = head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        with socket.create_connection(self.upstream) as server:
            server.sendall(head)
            pump(client, server, rule.cut_after if rule else None)
            if rule and rule.stalls:
                while client.recv(65536):
                    pass


def pump(client: socket.socket, server: socket.socket, most: int | None) -> None:
    """Pass bytes both ways until the server ends, or until it has said as much as it may."""
    while True:
        ready, _, _ = select.select([client, server], [], [])
        if client in ready:
            data = client.recv(65536)
            if not data:
                return
            server.sendall(data)
        if server in ready:
            data = server.recv(65536)
            if not data:
                return
            if most is not None:
                data, most = data[:most], most - len(data)
            client.sendall(data)
            if most is not None and most <= 0:
                return


@contextmanager
def faults(upstream: str) -> Iterator[FaultProxy]:
    """Run a proxy."""
    proxy = FaultProxy(upstream)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            proxy.serve(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A peer that went away is what this is for."""

    with Server(("127.0.0.1", 0), Handler) as server:
        proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield proxy
        finally:
            server.shutdown()

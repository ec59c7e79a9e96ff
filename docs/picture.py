"""`make picture`: runs the demo in a terminal and draws what it printed as docs/demo.svg."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
DEMO = ["make", "--silent", "demo"]
COLUMNS = 108
# Rich would fetch a font from the network, and name itself.
FONTS = re.compile(r"^\s*@font-face \{\{.*?^\s*\}\}\n", re.MULTILINE | re.DOTALL)
COMMENTS = re.compile(r"^\s*<!--.*?-->\n", re.MULTILINE | re.DOTALL)


def run() -> str:
    """What the demo prints to a terminal; one that can't move its cursor gets the lines alone."""
    master, slave = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if "ANTHROPIC" not in name}
    environment |= {"TERM": "dumb", "COLUMNS": str(COLUMNS)}
    with subprocess.Popen(
        DEMO, cwd=ROOT, env=environment, stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        said = b""
        while True:
            try:
                said += os.read(master, 65536)
            except OSError:  # how Linux says that the other side is closed
                break
    os.close(master)
    if process.returncode:
        sys.exit(f"the demo failed:\n{said.decode()}")
    return said.decode().replace("\r\n", "\n")


def drawn(said: str) -> str:
    """The picture, as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ {' '.join(DEMO)}".replace(" --silent", ""), style="bold"))
    for line in said.splitlines():  # cut as a terminal does, not between words
        console.print(Text("\n".join(re.findall(f".{{1,{COLUMNS}}}", line))))
    plain = COMMENTS.sub("", FONTS.sub("", CONSOLE_SVG_FORMAT))
    plain = plain.replace("Fira Code, monospace", "monospace")
    picture = console.export_svg(title="autocoder", code_format=plain, unique_id="demo")
    return re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE).rstrip() + "\n"


if __name__ == "__main__":
    run()  # the first one may have to synthesize: that is not what the picture is of
    (ROOT / "docs" / "demo.svg").write_text(drawn(run()))

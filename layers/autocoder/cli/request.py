"""What `autocoder run` is asked to run: the message's body, and who answers for the model."""

import json
import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from autocoder.cli.compose import Options, composed, standard_input, text_of
from autocoder.cli.problems import UsageError
from autocoder.errors import InputError
from autocoder.local.gateway.forward import Upstream
from autocoder.local.gateway.recorder import recordings
from autocoder.local.scenario import Scenario, load, shipped
from autocoder.message import decode, parse
from autocoder.registries import is_loopback

ANTHROPIC = "https://api.anthropic.com"
KEY, URL = "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"


class Request(NamedTuple):
    """One task to run: replayed from `script`, or answered by the model at `upstream`."""

    body: str
    script: Scenario | None = None
    upstream: Upstream | None = None


class Asked(NamedTuple):
    """What the command line says."""

    specification: str | None = None
    file: Path | None = None
    scenario: Path | None = None
    message: Path | None = None
    options: Options = Options()


def requested(asked: Asked) -> Request:
    """Read what is to run, or say in a sentence what is missing."""
    specifications = [s for s in (asked.specification, asked.file) if s is not None]
    if len(specifications) > 1 or (specifications and (asked.scenario or asked.message)):
        raise UsageError("give one of: a specification, --file, --scenario or --message.")
    upstream = take_upstream()
    if specifications:
        body = json.dumps(composed({"specification": specification_of(asked)}, asked.options))
        return Request(body, upstream=upstream or no_model("a specification"))
    asked.options.refuse()
    script = load(asked.scenario) if asked.scenario else None
    if asked.message is None:
        if script is None:
            raise UsageError(f"say what to run. {possible()}")
        return Request(json.dumps(script.task_message()), script)
    body = text_of("--message", asked.message)
    if script is None and upstream is None and accepted(body):
        no_model(f"--message {asked.message}: the message is valid, and")
    return Request(body, script, None if script else upstream)


def specification_of(asked: Asked) -> str:
    """The specification: the argument, a file's text, or standard input's."""
    if asked.file is not None:
        return text_of("--file", asked.file)
    return standard_input() if asked.specification == "-" else str(asked.specification)


def accepted(body: str) -> bool:
    """Whether the service would take the message; one that it rejects needs no model."""
    try:
        parse(decode(body))
    except InputError:
        return False
    return True


def take_upstream() -> Upstream | None:
    """Take the key out of the environment: no process that is started from now on inherits it."""
    key, url = os.environ.get(KEY, "").strip(), os.environ.get(URL, "").strip() or ANTHROPIC
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        del os.environ[name]
    if not key:
        return None
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError(f"{KEY} is no key: it has characters that no header can carry.")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise UsageError(f"{URL} is no URL of an API: {url!r}.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UsageError(f"{URL} would send the key unencrypted: use https instead of {url!r}.")
    folder = recordings()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        reason = f"{folder}, where what the model answers is kept, can't be made: {error.strerror}"
        raise UsageError(f"{reason}. Name another place in XDG_STATE_HOME.") from None
    return Upstream(base_url=url, api_key=key, recordings=folder)


def no_model(what: str) -> Upstream:
    """Say what is possible without a key."""
    raise UsageError(f"{what} needs a model to work on it. {possible()}")


def possible() -> str:
    """What can be run."""
    names = shipped()
    return (
        f"With a key, any specification: export {KEY}=…, then autocoder run 'Build a …' (the key "
        "stays outside of the sandbox). Without one, a scenario, whose answers are replayed: "
        f"autocoder run --scenario NAME; there are {', '.join(names)}."
    )

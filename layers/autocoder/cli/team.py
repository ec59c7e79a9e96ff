"""The E2B team as set-up and checks see it: what is asked of it, and what its refusals mean."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import e2b
import httpx
from e2b.template.main import TemplateBuilder

from autocoder.errors import Mendable

NETWORK = "E2B can't be reached from here: check the network, the proxy variables and E2B_DOMAIN."
BUSY = "E2B is busy or has a fault: try again in a minute, and look at its status page."
KEY = "Make a new key in E2B's dashboard, and run `autocoder setup` with it."
NO_SECRETS = (
    "This E2B team seems to have no secrets. Ask E2B for them; or set key_in_sandbox in cdk.json, "
    "at a price: every agent, and whatever it runs, can then read the Anthropic key and carry it "
    "off."
)
BUILD = "Read the lines above; `autocoder setup` again continues from E2B's cache."
ODD = "Look at E2B's status page, and whether a newer version of this project is out."
SERVER_ERROR = re.compile(r"5\d\d\b")  # the SDK has no class for most of them, only this text
NOT_ALLOWED = re.compile(r"40[34]\b")


class TeamError(Mendable):
    """E2B did not do what it was asked; the text says why, and what helps."""


@contextmanager
def asked() -> Iterator[None]:
    """Say what the SDK raises by its kind: it has no common base, and some of it no class."""
    try:
        yield
    except e2b.AuthenticationException as problem:
        raise TeamError(f"E2B refused the key: {problem}. {KEY}") from None
    except (
        e2b.RateLimitException,
        e2b.ServiceBusyException,
        json.JSONDecodeError,  # a 5xx that is not JSON
    ) as problem:
        raise TeamError(f"{problem}. {BUSY}") from None
    except (e2b.TimeoutException, httpx.TransportError) as problem:
        raise TeamError(f"{type(problem).__name__}: {problem}. {NETWORK}") from None
    except e2b.BuildException as problem:
        raise TeamError(f"{problem}. {BUILD}") from None
    except (e2b.SandboxException, e2b.SecretException) as problem:
        remedy = BUSY if SERVER_ERROR.match(str(problem)) else ODD
        if isinstance(problem, e2b.SecretException) and NOT_ALLOWED.match(str(problem)):
            remedy = NO_SECRETS
        raise TeamError(f"{problem}. {remedy}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        # The SDK takes answers apart without looking at them first.
        found = f"{type(problem).__name__}: {problem}"
        raise TeamError(f"E2B's answer is not what its SDK expects ({found}). {ODD}") from None


class Team:
    """What one API key gives."""

    def __init__(self, api_key: str) -> None:
        """Nothing is asked yet."""
        self.api_key = api_key

    def accepts_the_key(self) -> None:
        """Ask for something that costs nothing."""
        with asked():
            e2b.Sandbox.list(limit=1, api_key=self.api_key).next_items()

    def has_secret(self, name: str) -> bool:
        """Say whether there is a secret of this name; its value can't be read back."""
        with asked():
            return bool(e2b.Secret.exists(name, api_key=self.api_key))

    def store_secret(self, name: str, value: str) -> int:
        """Create or rotate a secret; give its version."""
        write = e2b.Secret.update if self.has_secret(name) else e2b.Secret.create
        with asked():
            return int(write(name, value, api_key=self.api_key).version)

    def template_tags(self, name: str) -> list[str]:
        """The tags of a template; none where there is no template."""
        with asked():
            if not e2b.Template.exists(name, api_key=self.api_key):
                return []
            return [tag.tag for tag in e2b.Template.get_tags(name, api_key=self.api_key)]

    def build(
        self,
        description: TemplateBuilder,
        name: str,
        *,
        tag: str,
        cpus: int,
        memory_mb: int,
        say: Callable[[str], None],
    ) -> None:
        """Build a template and wait for it; `say` gets the log."""
        with asked():
            e2b.Template.build(
                description,
                name,
                tags=[tag],
                cpu_count=cpus,
                memory_mb=memory_mb,
                on_build_logs=lambda entry: say(entry.message),
                api_key=self.api_key,
            )

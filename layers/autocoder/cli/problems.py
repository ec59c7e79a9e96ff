"""The errors that a caller can mend, and how they are said: a sentence, no traceback."""

from botocore.exceptions import BotoCoreError, ClientError

from autocoder.local.assembly import SynthError
from autocoder.local.aws.deploy import DeployError
from autocoder.local.cloud import LocalCloudError
from autocoder.local.scenario import ScenarioError
from autocoder.local.toolchain import ToolchainError


class UsageError(Exception):
    """The command was called in a way that can't work."""


PROBLEMS = (
    BotoCoreError,
    ClientError,
    DeployError,
    LocalCloudError,
    ScenarioError,
    SynthError,
    ToolchainError,
    UsageError,
)

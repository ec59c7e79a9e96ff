"""The errors that a caller can mend, and how they are said: a sentence, no traceback."""

from botocore.exceptions import BotoCoreError, ClientError

from autocoder.local.assembly import SynthError
from autocoder.local.aws.deploy import DeployError
from autocoder.local.cloud import LocalCloudError
from autocoder.local.scenario import ScenarioError
from autocoder.local.toolchain import ToolchainError
from infra.settings import SettingsError


class UsageError(Exception):
    """The caller must act before the command can work; the text says how."""


PROBLEMS = (
    BotoCoreError,
    ClientError,
    DeployError,
    LocalCloudError,
    ScenarioError,
    SettingsError,
    SynthError,
    ToolchainError,
    UsageError,
)

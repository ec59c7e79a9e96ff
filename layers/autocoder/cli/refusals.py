"""What AWS's refusals mean, and what helps: a sentence each."""

import re

from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

LOG_IN = "log in as for the aws CLI (`aws configure`, `aws sso login`, or AWS_* variables)"
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
UNKNOWN = (
    "AuthFailure",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
)
DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403")
SSO = (boto.SSOTokenLoadError, boto.UnauthorizedSSOTokenError, boto.TokenRetrievalError)


def refusal(problem: Exception) -> str | None:
    """Say an error of botocore's; None if it is another's."""
    if isinstance(problem, ClientError):
        return answered(problem)
    if isinstance(problem, BotoCoreError):
        return not_asked(problem)
    return None


def not_asked(problem: BotoCoreError) -> str:
    """Say why AWS was not asked, or did not answer."""
    match problem:
        case boto.NoCredentialsError() | boto.PartialCredentialsError():
            return (
                f"there are no AWS credentials: {LOG_IN}, or name a --profile. A local cloud needs "
                "none: `autocoder local up`."
            )
        case boto.ProfileNotFound():
            return f"{problem}: name one of `aws configure list-profiles`."
        case boto.NoRegionError():
            return (
                "no AWS region is chosen: set AWS_REGION, or name one with --region. A local cloud "
                "needs none: `autocoder local up`."
            )
        case boto.InvalidRegionError():
            return f"{problem} Name one such as eu-west-1 with --region."
        case _ if isinstance(problem, SSO):
            return f"the AWS log-in has expired: {LOG_IN} again. ({problem})"
        case boto.EndpointConnectionError() if region := unknown_region(problem):
            return f"there is no AWS region {region}: name one such as eu-west-1 with --region."
        case boto.HTTPClientError() | boto.ConnectionError():
            return (
                f"AWS can't be reached: {str(problem).rstrip('.')}. Check the network, "
                "the proxy variables, the region, and AWS_ENDPOINT_URL if it is set."
            )
        case _:
            return f"AWS could not be asked: {type(problem).__name__}: {problem}"


def unknown_region(problem: BotoCoreError) -> str | None:
    """The region of the host that was not found, if botocore does not know it either."""
    url = str(problem.kwargs.get("endpoint_url", ""))
    found = re.match(r"https://[a-z0-9-]+\.([a-z0-9-]+)\.amazonaws\.com", url)
    if not found:
        return None
    session = Session()
    known = {
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("cloudformation", partition)
    }
    return None if found[1] in known else found[1]


def answered(problem: ClientError) -> str:
    """Say what AWS answered."""
    error, asked = problem.response.get("Error", {}), problem.operation_name
    code, message = error.get("Code", ""), error.get("Message", "").rstrip(".")
    if code in EXPIRED:
        return f"the AWS credentials have expired: {LOG_IN} again."
    if code in UNKNOWN:
        return f"AWS does not know these credentials ({code}): {LOG_IN}, or name a --profile."
    if code in DENIED:
        return (
            f"AWS denies {asked} to these credentials: {message or code}. Ask whoever runs the "
            "account for this permission, or name another --profile."
        )
    return f"AWS refused {asked}: {code}: {message}."

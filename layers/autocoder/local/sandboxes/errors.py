"""One place that says how a failure looks to an SDK caller, over REST and over Connect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from starlette.responses import JSONResponse

from autocoder.local.sandboxes.channel import AgentError, SandboxGoneError
from autocoder.local.sandboxes.watching import WatchEndedError

SANDBOX_NOT_FOUND = "The sandbox was not found"
"""The words by which the SDK knows that a sandbox has ended."""

_BY_ERRNO: dict[str, tuple[int, Code]] = {
    "ENOENT": (404, Code.NOT_FOUND),
    "ESRCH": (404, Code.NOT_FOUND),
    "EEXIST": (409, Code.ALREADY_EXISTS),
    "EACCES": (403, Code.PERMISSION_DENIED),
    "EPERM": (403, Code.PERMISSION_DENIED),
    "EROFS": (403, Code.PERMISSION_DENIED),
    "ENOSPC": (507, Code.RESOURCE_EXHAUSTED),
    "EDQUOT": (507, Code.RESOURCE_EXHAUSTED),
    "EFBIG": (507, Code.RESOURCE_EXHAUSTED),
    "EISDIR": (400, Code.INVALID_ARGUMENT),
    "ENOTDIR": (400, Code.INVALID_ARGUMENT),
    "ENOTEMPTY": (400, Code.INVALID_ARGUMENT),
    "EINVAL": (400, Code.INVALID_ARGUMENT),
    "ELOOP": (400, Code.INVALID_ARGUMENT),
    "ENAMETOOLONG": (400, Code.INVALID_ARGUMENT),
}
_UNKNOWN = (500, Code.INTERNAL)


def error_response(status: int, message: str) -> JSONResponse:
    """Always JSON: the SDK can't read anything else."""
    return JSONResponse({"code": status, "message": message}, status)


def http_error(error: AgentError) -> JSONResponse:
    return error_response(_BY_ERRNO.get(error.errno, _UNKNOWN)[0], str(error))


@contextmanager
def as_connect_errors() -> Iterator[None]:
    """What goes wrong in here is told to the RPC's caller in Connect's terms."""
    try:
        yield
    except AgentError as error:
        code = _BY_ERRNO.get(error.errno, _UNKNOWN)[1]
        raise ConnectError(code, str(error)) from error
    except SandboxGoneError as error:
        raise ConnectError(Code.UNAVAILABLE, SANDBOX_NOT_FOUND) from error
    except WatchEndedError as error:
        raise ConnectError(Code.INVALID_ARGUMENT, str(error)) from error


def unavailable(what: str) -> str:
    return f"not available in the local cloud: {what}"


def unimplemented(what: str) -> ConnectError:
    return ConnectError(Code.UNIMPLEMENTED, unavailable(what))

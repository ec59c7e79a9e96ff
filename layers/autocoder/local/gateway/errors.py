"""Errors as the Messages API tells them."""

from starlette.responses import JSONResponse, Response

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class RefusedError(Exception):
    """The request gets an error of the Messages API's shape."""

    def __init__(self, status: int, message: str, *, taken: bool = False) -> None:
        """`status` is the HTTP status; `taken`: upstream has the request and may bill it."""
        self.taken = taken
        self.status = status
        self.message = message
        super().__init__(status, message)

    def response(self) -> Response:
        """The answer."""
        error = {"type": TYPES.get(self.status, "api_error"), "message": self.message}
        return JSONResponse({"type": "error", "error": error}, self.status)

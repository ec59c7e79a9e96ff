"""KMS: signs with a key that never leaves it."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from autocoder.errors import ConfigurationError

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient

# What no further try mends.
UNUSABLE = (
    "DisabledException", "KMSInvalidStateException", "NotFoundException", "AccessDeniedException",
    "InvalidKeyUsageException",
)  # fmt: skip


class Signer:
    """The stack's key: ECDSA on P-256 with SHA-256."""

    def __init__(self, kms: "KMSClient", key: str) -> None:
        """`key` is the key's ARN."""
        self.kms = kms
        self.key = key

    def sign(self, data: bytes) -> bytes:
        """Sign data of any size: KMS takes 4 KiB of it, or its digest."""
        digest = hashlib.sha256(data).digest()
        with self._usable():
            answer = self.kms.sign(
                KeyId=self.key,
                Message=digest,
                MessageType="DIGEST",
                SigningAlgorithm="ECDSA_SHA_256",
            )
        return answer["Signature"]

    @cached_property
    def public_key(self) -> bytes:
        """The public half, as DER."""
        with self._usable():
            return self.kms.get_public_key(KeyId=self.key)["PublicKey"]

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Say that the key can't be used, where that is the operator's to mend."""
        try:
            yield
        except ClientError as error:
            if error.response["Error"]["Code"] not in UNUSABLE:
                raise
            why = error.response["Error"].get("Message") or error.response["Error"]["Code"]
            message = f"The key that signs evidence can't be used: {why}"
            raise ConfigurationError("signing_key_unusable", message) from error

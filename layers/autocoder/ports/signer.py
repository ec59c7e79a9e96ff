"""KMS: signs with a key that never leaves it."""

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient


class Signer:
    """The stack's key: ECDSA on P-256 with SHA-256."""

    def __init__(self, kms: "KMSClient", key: str) -> None:
        """`key` is the key's ARN."""
        self.kms = kms
        self.key = key

    def sign(self, data: bytes) -> bytes:
        """Sign data of any size: KMS takes 4 KiB of it, or its digest."""
        digest = hashlib.sha256(data).digest()
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
        return self.kms.get_public_key(KeyId=self.key)["PublicKey"]

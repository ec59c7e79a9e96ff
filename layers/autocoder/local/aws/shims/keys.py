"""KMS: keys that sign."""

import json
from typing import Any

from autocoder.local.aws.shims.hooks import Hooks
from autocoder.local.signing import load


class Digest(bytes):
    """What was hashed already."""


def make_keys_as_templates_say(hooks: Hooks) -> None:
    """moto makes every key of a template a symmetric one; and keys in KMS outlive a process."""
    from moto.kms.models import Key, kms_backends

    def create_from_cloudformation_json(
        resource_name: str,
        cloudformation_json: dict[str, Any],
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> Any:
        properties = cloudformation_json["Properties"]
        key = kms_backends[account_id][region_name].create_key(
            policy=json.dumps(properties["KeyPolicy"]),
            key_usage=properties.get("KeyUsage", "ENCRYPT_DECRYPT"),
            key_spec=properties.get("KeySpec", "SYMMETRIC_DEFAULT"),
            description=properties.get("Description"),
            tags=properties.get("Tags", []),
        )
        if hooks.signing_key and key.key_spec == "ECC_NIST_P256":
            key.private_key.private_key = load(hooks.signing_key)
        return key

    Key.create_from_cloudformation_json = staticmethod(create_from_cloudformation_json)


def sign_digests() -> None:
    """moto takes a digest for a message, and hashes it once more. KMS signs it as it is."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
    from moto.kms.responses import KmsResponse
    from moto.kms.utils import ECDSAPrivateKey

    get_param, sign = KmsResponse._get_param, ECDSAPrivateKey.sign

    def marked(self: Any, name: str, if_none: Any = None) -> Any:
        value = get_param(self, name, if_none)
        is_digest = name == "Message" and get_param(self, "MessageType") == "DIGEST"
        return Digest(value) if is_digest else value

    def sign_digest(self: Any, message: bytes, signing_algorithm: str) -> Any:
        if not isinstance(message, Digest):
            return sign(self, message, signing_algorithm)
        return self.private_key.sign(message, ec.ECDSA(Prehashed(hashes.SHA256())))

    KmsResponse._get_param, ECDSAPrivateKey.sign = marked, sign_digest

"""The key that every local cloud of this user signs evidence with.

One for all of them: whoever keeps its public half can tell what was made here, as with a stack's.
"""

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from autocoder.local.state import LocalCloudError, ensure_state_home, state_home, unusable


def public_key_file() -> Path:
    """What `autocoder verify --key` takes."""
    return state_home() / "evidence.pem"


def signing_key() -> Path:
    """The file of the private key, for this user alone; made when it is first asked for."""
    folder = ensure_state_home()
    try:
        return kept_in(folder)
    except OSError as error:
        raise unusable(folder, error) from None


def kept_in(folder: Path) -> Path:
    """Make the key if there is none, and its public half in any case."""
    file = folder / "evidence.key"
    aside = file.with_name(f"{file.name}.{os.getpid()}")
    if not file.exists():
        write(aside, private_pem(ec.generate_private_key(ec.SECP256R1())))
        try:
            os.link(aside, file)
        except FileExistsError:
            pass  # another cloud that starts now was first
        finally:
            aside.unlink()
    public = (
        load(file)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    write(aside, public)
    aside.replace(public_key_file())
    return file


def load(file: Path) -> ec.EllipticCurvePrivateKey:
    """Read the private key."""
    try:
        key = serialization.load_pem_private_key(file.read_bytes(), password=None)
    except ValueError:
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise LocalCloudError(f"{file} holds no key on the curve P-256: remove it for a new one.")
    return key


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Write a private key as others' tools read it."""
    form, protection = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, protection)


def write(file: Path, content: bytes) -> None:
    """Write a file that nobody else may read, not even while it is written."""
    file.unlink(missing_ok=True)
    file.touch(mode=0o600, exist_ok=False)
    file.write_bytes(content)

"""`autocoder verify`: is a result what the service signed, to the byte?

Nothing in the folder is believed before the signature holds; what was signed is then held against
what is there, and the first difference ends it.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import ValidationError

from autocoder.cli.problems import UsageError
from autocoder.evidence import Evidence, fingerprint
from autocoder.local.signing import public_key_file
from autocoder.model import Hashed
from autocoder.summary import with_rules
from autocoder.text import printable

EVIDENCE, SIGNATURE, KEY = PROOF = "evidence.json", "evidence.sig", "evidence.pem"
NUMBER = re.compile(r"(?<![^/])\d+(?=[./])")  # an iteration's, in a path
FINGERPRINT = re.compile(r"[0-9a-f]{64}")
NAMED_AT_MOST = 5  # files of a folder that are not covered; more are said by their number


class MismatchError(Exception):
    """The folder is not what was signed; the text names the file, and what is wrong with it."""


def verify(
    folder: Path, key: str | None, say: Callable[[str], object], *, as_json: bool = False
) -> int:
    """Check a folder and say what that proves; 1 if something in it does not match."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: name one that holds a task's results.")
    named = named_key(key) if key else None
    if not any((folder / name).is_symlink() or (folder / name).exists() for name in PROOF):
        raise UsageError(
            f"{folder} has no evidence: the task ended before it had results, or this is not a "
            "task's folder."
        )
    try:
        used = key_of(folder, named)
        evidence = signed(folder, used)
        check(folder, evidence)
    except MismatchError as mismatch:
        said = printable(str(mismatch))
        say(json.dumps({"verified": False, "mismatch": said}) if as_json else f"MISMATCH: {said}")
        return 1
    if as_json:
        facts: dict[str, Any] = {"task_id": evidence.task_id, "status": evidence.status}
        facts |= {"allowed": evidence.allowed, "replayed": evidence.software.replayed}
        facts |= {"key": fingerprint(as_der(used)), "trusted": named is not None}
        say(json.dumps({"verified": True, **facts}))
        return 0
    for line in proven(folder, evidence, used, trusted=named is not None):
        say(printable(line))
    return 0


def named_key(key: str) -> str:
    """The fingerprint of the key that the caller trusts: given as such, or as a file."""
    if FINGERPRINT.fullmatch(key.lower()):
        return key.lower()
    try:
        return fingerprint(as_der(load_key(Path(key).read_bytes())))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"--key {key}: is neither a fingerprint (64 hex digits) nor a file with a public key "
            f"in PEM ({reason}); name one of both."
        ) from None


def key_of(folder: Path, named: str | None) -> ec.EllipticCurvePublicKey:
    """The key that lies beside the evidence, if it is the one that the caller trusts."""
    try:
        found = load_key(content(folder, KEY))
    except ValueError as error:
        raise MismatchError(f"{KEY}: is no public key of evidence ({error}).") from None
    if named and fingerprint(as_der(found)) != named:
        raise MismatchError(
            f"{KEY}: is the key {fingerprint(as_der(found))}, not the one of --key."
        )
    return found


def load_key(text: bytes) -> ec.EllipticCurvePublicKey:
    """Read a key as the service has them; ValueError if it is none."""
    try:
        key = serialization.load_pem_public_key(text)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
        raise ValueError("it is not on the curve P-256")
    return key


def as_der(key: ec.EllipticCurvePublicKey) -> bytes:
    """A key as its fingerprint is made from."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.DER, form)


def signed(folder: Path, key: ec.EllipticCurvePublicKey) -> Evidence:
    """Read the evidence, once its signature holds."""
    body, signature = content(folder, EVIDENCE), content(folder, SIGNATURE)
    try:
        key.verify(signature, body, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise MismatchError(
            f"{EVIDENCE}: does not match its signature in {SIGNATURE}; it was changed or cut "
            "short, or another key signed it."
        ) from None
    try:
        return Evidence.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "as a whole"
        raise MismatchError(
            f"{EVIDENCE}: is signed, but not evidence of version 2 ({where}: {first['msg']})."
        ) from None


def check(folder: Path, evidence: Evidence) -> None:
    """Hold everything that was signed against what is there."""
    archive = [evidence.archive] if evidence.archive else []
    for expected in [*evidence.documents, *evidence.files, *archive, *evidence.logs]:
        check_file(folder, expected)
    listed = {file.path for file in evidence.files}
    for path in files_in(folder):
        if path.startswith("files/") and path not in listed:
            raise MismatchError(f"{path}: is not in the evidence; it was added.")


def check_file(folder: Path, expected: Hashed) -> None:
    """Hold one file against its hash."""
    data = content(folder, expected.path)
    if len(data) != expected.bytes:
        raise MismatchError(
            f"{expected.path}: has {len(data)} bytes, {expected.bytes} were signed."
        )
    found = hashlib.sha256(data).hexdigest()
    if found != expected.sha256:
        raise MismatchError(f"{expected.path}: was changed: its SHA-256 is {found}, not as signed.")


def content(folder: Path, name: str) -> bytes:
    """Read a file of the folder, and none that a name or a link leads to elsewhere."""
    path = folder / name
    if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()):
        raise MismatchError(f"{name}: leads out of the folder.")
    if not path.exists():
        raise MismatchError(f"{name}: is missing.")
    if not path.is_file():  # a pipe, of which reading would never end
        raise MismatchError(f"{name}: is no file.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise MismatchError(f"{name}: can't be read ({error.strerror}).") from None


def files_in(folder: Path) -> list[str]:
    """Every file below the folder, and every link."""
    paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return [path.relative_to(folder).as_posix() for path in paths]


def groups(paths: list[str]) -> list[str]:
    """Name files by what they are: those of all iterations as one, those of a full folder too."""
    folders: dict[str, dict[str, None]] = {}
    for path in paths:
        name = NUMBER.sub("*", path)
        folders.setdefault(name.rpartition("/")[0], {})[name] = None
    return [
        name
        for folder, names in folders.items()
        for name in ([f"{folder or '.'}/* ({len(names)})"] if len(names) > NAMED_AT_MOST else names)
    ]


def proven(
    folder: Path, evidence: Evidence, key: ec.EllipticCurvePublicKey, *, trusted: bool
) -> Iterable[str]:
    """Say what is proven by all this, and what is not."""
    name = fingerprint(as_der(key))
    failure = f" ({evidence.failure.code})" if evidence.failure else ""
    rules = with_rules(evidence.status, evidence.allowed)
    yield f"VERIFIED: task {evidence.task_id}, which {evidence.status}{failure}{rules}"
    yield f"  signature  evidence.json, by the key {name}"
    yield f"  files      {len(evidence.files)}, and no other in files/; with the archive of them"
    yield f"  logs       {len(evidence.logs)}, of every command that the service ran"
    yield f"  documents  {', '.join(file.path for file in evidence.documents)}"
    if evidence.allowed:
        yield f"  allowed    {', '.join(evidence.allowed)}: broken, by leave of the task's sender"
    yield "Proven: all of these are, to the byte, what the holder of this key signed. The evidence"
    yield f"  says which commands ran and how they ended; it is of {evidence.written_at}."
    if trusted:
        yield "Proven: the key is the one that you named with --key."
    else:
        yield "Not proven: whose key it is, for it came with the evidence. Name the one that you"
        yield "  trust with --key: the stack's EvidenceKeyArn, by `aws kms get-public-key`, or for"
        yield f"  what was made on this machine {public_key_file()}."
    if evidence.software.replayed:
        yield "Not proven: that a model can do this; the agent's answers came from a scenario."
    covered = {file.path for file in [*evidence.documents, *evidence.files, *evidence.logs]}
    covered |= {EVIDENCE, SIGNATURE, KEY, *([evidence.archive.path] if evidence.archive else [])}
    if others := [path for path in files_in(folder) if path not in covered]:
        yield f"Not covered: {', '.join(groups(others))}."
    yield "Not proven: that the project's tests ask for the right things."

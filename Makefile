# make demo    set everything up and show a real kernel bug, its obvious repair and its right one
# make test    set everything up and run linters and all tests
# make lint, make test-unit   the parts of it that need no guest
# make fuzz-device   feed the device models' server and models FUZZ_RUNS inputs each, and say which lines they reached
# make test-report   look at reports in a real browser: Chromium is installed as the other packages of the host are
# make test-vagrant   install Debian's vagrant and vagrant-libvirt; check the Vagrantfile, and its provisioning in a
#                fresh Debian
# make setup   only set everything up; what is there already is left alone
#
# TESTBED_CACHE    where toolchain root, kernels, images and snapshots are kept (default: the user's cache directory)
# TESTBED_MIRROR   address of a Debian archive (default: the one that this machine's apt uses)
# TESTBED_GUESTS   guests at once in `make test` (default 2)

PYTHON ?= python3
TESTBED_GUESTS ?= 2
VENV := .venv

# What the host must have: the same names as testbed/toolchain/host.py gives in its remedies.
HOST_PACKAGES := bubblewrap mmdebstrap uidmap

# Fuzz targets of device models; what each of them is there to reach is what its file names COVERS.
DEVICE_TARGETS := $(wildcard fuzz/vfio_user_*.py fuzz/dwmac_*.py)
# Fuzz targets of what reads bytes from others: files, the agent, a guest's memory.
HOST_TARGETS := fuzz/scenario_parser.py fuzz/agent_channel.py fuzz/trace_decoder.py
FUZZ_SECONDS ?= 30
FUZZ_RUNS ?= 1000000
FUZZ_CORPUS ?= .fuzz

# Hundreds of testbeds are started in the tests: each would compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

# Processes that run guest tests: one more than guests, for tests wait now and then, and some need no guest.
WORKERS = $(shell expr $(TESTBED_GUESTS) + 1)

.PHONY: demo test lint test-unit test-report test-vagrant fuzz-device fuzz-smoke setup host clean
.DELETE_ON_ERROR:

demo: setup
	$(VENV)/bin/testbed demo

test: setup
	$(MAKE) --no-print-directory -j2 --output-sync=target lint test-unit
	$(VENV)/bin/pytest tests/guest -n $(WORKERS) --guests $(TESTBED_GUESTS)

lint: $(VENV)/installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test-unit: $(VENV)/installed
	$(VENV)/bin/pytest tests/unit -n 2

test-report: $(VENV)/installed
	$(MAKE) --no-print-directory host HOST_PACKAGES=chromium
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[dev,browser]'
	$(VENV)/bin/pytest tests/browser

fuzz-device: $(VENV)/installed
	@set -e; for target in $(DEVICE_TARGETS); do \
		corpus=$(FUZZ_CORPUS)/$$(basename $$target .py); mkdir -p $$corpus; \
		echo "$$target: $(FUZZ_RUNS) inputs"; \
		$(VENV)/bin/python $$target -runs=$(FUZZ_RUNS) -max_len=600 -len_control=0 -verbosity=0 \
			-artifact_prefix=$$corpus- $$corpus; \
		$(VENV)/bin/python fuzz/line_coverage.py $$target $$corpus; \
	done

fuzz-smoke: $(VENV)/installed
	@set -e; for target in $(HOST_TARGETS) $(DEVICE_TARGETS); do \
		corpus=$(FUZZ_CORPUS)/$$(basename $$target .py); mkdir -p $$corpus; \
		echo "$$target: $(FUZZ_SECONDS) s"; \
		$(VENV)/bin/python $$target -max_total_time=$(FUZZ_SECONDS) -max_len=700 -len_control=0 -verbosity=0 \
			-artifact_prefix=$$corpus- $$corpus; \
	done

test-vagrant: $(VENV)/installed
	$(MAKE) --no-print-directory host HOST_PACKAGES='vagrant vagrant-libvirt'
	$(VENV)/bin/pytest tests/vagrant

setup: $(VENV)/installed
	$(VENV)/bin/testbed setup

$(VENV)/installed: pyproject.toml | host
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# Installs what is missing, as root or by a sudo that asks nothing; else prints the one line to run.
host:
	@set -e; \
	if ! command -v dpkg-query >/dev/null; then \
		echo "testbed: no Debian here: see 'testbed doctor' for what is missing"; exit 0; \
	fi; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "testbed: Python 3.11 or newer is needed: make PYTHON=python3.11"; exit 1; }; \
	missing=; \
	for package in $(HOST_PACKAGES); do \
		[ "$$(dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null)" = installed ] || missing="$$missing $$package"; \
	done; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ]; then as_root=env; \
	elif sudo -n true 2>/dev/null; then as_root='sudo -n env'; \
	else echo "testbed: packages are missing; run: sudo apt-get install$$missing"; exit 1; fi; \
	install="$$as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends$$missing"; \
	echo "testbed: installing$$missing"; \
	$$install </dev/null >/dev/null 2>&1 || { $$as_root apt-get update -qq && $$install </dev/null >/dev/null; }

clean:
	rm -rf $(VENV)

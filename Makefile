# gpudoctor: `make demo` installs and runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PINS   := requirements/ci.txt
DEMO   := fixtures/hosts/a100x4-sxm-gpu2-nvlinks-down

.PHONY: demo test lint type bench golden catalogue faults fuzz dist pyz man clean

# Without a C compiler it is Python alone, and reads large logs more slowly.
$(BIN)/gpudoctor: setup.cfg setup.py gpudoctor/read/_lines.c
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(PINS) --editable .
	@touch $@

# The tools of the tests come on top; the stamp spares a second `make test` the look-up.
$(VENV)/.test-tools: $(BIN)/gpudoctor
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(PINS) --editable '.[test,build]'
	@touch $@

# On this host where it has NVIDIA GPUs, else on a recorded one; a fault found is not a failed demonstration.
demo: $(BIN)/gpudoctor
	@if ls /proc/driver/nvidia/gpus/* >/dev/null 2>&1 || command -v nvidia-smi >/dev/null 2>&1; then \
	    echo "== this host: gpudoctor check"; $(BIN)/gpudoctor check; \
	else \
	    echo "== no NVIDIA GPU here, so a recorded host: gpudoctor check --from $(DEMO)"; $(BIN)/gpudoctor check --from $(DEMO); \
	fi; status=$$?; echo "== exit status $$status (0 in order, 1 a fault, 3 could not tell)"; test $$status -ne 2

test: $(VENV)/.test-tools
	@$(BIN)/python -c 'import torch' 2>/dev/null || echo "== SKIPPED: tests marked 'torch' (PyTorch is not installed: $(BIN)/pip install torch)"
	@command -v systemd-analyze >/dev/null || echo "== NOT TESTED: whether systemd takes deploy/systemd (systemd-analyze is not installed: apt-get install systemd)"
	@$(BIN)/python -c 'import kubernetes_validate' 2>/dev/null || echo "== NOT TESTED: deploy/kubernetes against the API's schema ($(BIN)/pip install -e '.[deploy]')"
	$(BIN)/python -m pytest

# The scripts of deploy/slurm under a real Slurm on this machine. Needs root and apt-get, and says so where they are not.
.PHONY: test-slurm
test-slurm: $(BIN)/gpudoctor
	@deploy/slurm/test/run; status=$$?; test $$status -eq 77 || exit $$status

lint: $(VENV)/.test-tools
	$(BIN)/ruff check gpudoctor tests tools
type: $(VENV)/.test-tools
	$(BIN)/mypy

# Rewrites the expected reports; read the diff before you commit it.
golden: $(VENV)/.test-tools
	$(BIN)/python -m tests.golden --update
	$(BIN)/python -m tests.golden --readme
catalogue: $(VENV)/.test-tools
	$(BIN)/python -m tests.golden --catalogue
bench: $(VENV)/.test-tools
	$(BIN)/python -m tests.bench
# Coverage-guided, one family after another: `make fuzz FAMILIES=nccl-log SECONDS=60`.
FAMILIES ?= topology nvidia-smi pci host probes nccl-log measured hang report archive policy
SECONDS  ?= 600
# Every fault of every program and of the system, under every command: some minutes. Writes docs/faults.md.
faults: $(VENV)/.test-tools
	$(BIN)/python -m tests.faults.matrix --save docs/faults.md
fuzz: $(VENV)/.test-tools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	for family in $(FAMILIES); do $(BIN)/python -m tests.fuzz.run $$family $(SECONDS) || exit 1; done

# The source archive and the wheel, and the program as one file: the same bytes from the same commit and Pythons.
dist: $(VENV)/.test-tools
	@rm -f dist/gpudoctor-*.whl dist/gpudoctor-*.tar.gz
	$(BIN)/python -m tools.dist dist
# Compiled for every Python that is here; others run it too, with a slower start.
PYTHONS = $(foreach minor,10 11 12 13 14,$(shell python3.$(minor) -c 'import sys; print(sys.executable)' 2>/dev/null))
pyz: dist
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)} \
	    $(BIN)/python -m tools.pyz dist/gpudoctor-*.whl dist/gpudoctor.pyz $(PYTHONS)
# Manual pages and completions as they lie under /usr/share.
man: $(VENV)/.test-tools
	$(BIN)/python -m tools.man share
clean:
	rm -rf $(VENV) build dist share *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The commands of the project; each does its own set-up in .venv and needs only python3 (3.11 or newer), pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RIVALS := .venv-rivals
ORDERED := .venv-ordered
INSTALL := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet

.PHONY: quickstart test check format rivals rivals-quality ordered-rival clean

quickstart: $(VENV)/.ready-to-run
	$(BIN)/loca demo --out loca-demo

test: $(VENV)/.ready-to-test
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term:skip-covered --cov-fail-under=95

check: $(VENV)/.ready-to-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.ready-to-check
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Times training and bulk recommendation beside cornac and lenskit; needs LOCA_DATA, or RIVALS_ARGS=--quick.
rivals: $(RIVALS)/.ready-to-run
	$(RIVALS)/bin/python benchmarks/rivals.py $(RIVALS_ARGS)

# Holds our models' validation NDCG@100 beside that of cornac, lenskit and implicit, e.g. QUALITY_ARGS="ml-100k"; needs LOCA_DATA.
rivals-quality: $(RIVALS)/.ready-to-run
	$(RIVALS)/bin/python benchmarks/rivals_quality.py $(QUALITY_ARGS)

# Trains RecTools' SASRec on our splits, e.g. ORDERED_ARGS="ml-1m --seeds 0 1 2 --out sasrec.json"; needs LOCA_DATA.
ordered-rival: $(ORDERED)/.ready-to-run
	$(ORDERED)/bin/python benchmarks/ordered_rival.py $(ORDERED_ARGS)

clean:
	rm -rf $(VENV) $(RIVALS) $(ORDERED) loca-demo .pytest_cache .mypy_cache .ruff_cache .coverage

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-to-run: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[tune,wmf]'
	touch $@

$(VENV)/.ready-to-test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[test]'
	touch $@ $(VENV)/.ready-to-run

$(VENV)/.ready-to-check: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[test,check]'
	touch $@ $(VENV)/.ready-to-run $(VENV)/.ready-to-test

# Their own environment, because lenskit wants an older pandas than the project's.
$(RIVALS)/.ready-to-run: pyproject.toml benchmarks/rivals-constraints.txt
	$(PYTHON) -m venv $(RIVALS)
	PIP_CONSTRAINT=benchmarks/rivals-constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(RIVALS)/bin/python -m pip install --quiet --editable '.[wmf]' cornac lenskit
	touch $@

# RecTools comes without its requirements: they ask for numpy < 2 before python 3.13, yet it runs with the project's.
$(ORDERED)/.ready-to-run: pyproject.toml benchmarks/ordered-rival-constraints.txt
	$(PYTHON) -m venv $(ORDERED)
	PIP_CONSTRAINT=benchmarks/ordered-rival-constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(ORDERED)/bin/python -m pip install --quiet --editable . attrs pandas pm-implicit pytorch-lightning tqdm typeguard
	PIP_CONSTRAINT=benchmarks/ordered-rival-constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(ORDERED)/bin/python -m pip install --quiet --no-deps rectools
	touch $@

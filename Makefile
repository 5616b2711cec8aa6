# The commands of the project; each does its own set-up in .venv and needs only python3 (3.11 or newer), pip and make.
PYTHON ?= python3
VENV := .venv
BIN_FOLDER := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(BIN_FOLDER)
CLEAN := .venv-dist
RIVALS := .venv-rivals
ORDERED := .venv-ordered
INSTALL := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet

.PHONY: quickstart test coverage check types format docs dist rivals rivals-quality ordered-rival clean

quickstart: $(VENV)/.ready-to-run
	$(BIN)/loca demo --out loca-demo

TESTS = OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n 2 --dist worksteal

test: $(VENV)/.ready-to-test
	$(TESTS)

# The tests, and the share of the lines that they run; it takes 1.6 times as long.
coverage: $(VENV)/.ready-to-test
	$(TESTS) --cov --cov-report=term:skip-covered --cov-fail-under=95

check: $(VENV)/.ready-to-check types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.ready-to-check
	$(BIN)/mypy

format: $(VENV)/.ready-to-check
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation, as pages in site/ that need no network; a warning is an error.
docs: $(VENV)/.ready-for-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html; for the search, serve it: python3 -m http.server -d site"

# Wheel and source package in dist/, checked, and the wheel tried in an empty environment.
dist: $(VENV)/.ready-for-dist
	rm -rf dist $(CLEAN)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(CLEAN)
	$(CLEAN)/$(BIN_FOLDER)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	cd $(CLEAN) && $(BIN_FOLDER)/loca fit planted --model loca-ease --set communities.n=5 --out smoke.loca --quiet
	cd $(CLEAN) && $(BIN_FOLDER)/loca recommend smoke.loca --user u0002 -n 3
	cd $(CLEAN) && $(BIN_FOLDER)/loca reproduce table1 --out smoke --quiet

# Times training and bulk recommendation beside cornac and lenskit; needs LOCA_DATA, or RIVALS_ARGS=--quick.
rivals: $(RIVALS)/.ready-to-run
	$(RIVALS)/$(BIN_FOLDER)/python benchmarks/rivals.py $(RIVALS_ARGS)

# Holds our models' validation NDCG@100 beside that of cornac, lenskit and implicit, e.g. QUALITY_ARGS="ml-100k"; needs LOCA_DATA.
rivals-quality: $(RIVALS)/.ready-to-run
	$(RIVALS)/$(BIN_FOLDER)/python benchmarks/rivals_quality.py $(QUALITY_ARGS)

# Trains RecTools' SASRec on our splits, e.g. ORDERED_ARGS="ml-1m --seeds 0 1 2 --out sasrec.json"; needs LOCA_DATA.
ordered-rival: $(ORDERED)/.ready-to-run
	$(ORDERED)/$(BIN_FOLDER)/python benchmarks/ordered_rival.py $(ORDERED_ARGS)

clean:
	rm -rf $(VENV) $(CLEAN) $(RIVALS) $(ORDERED) loca-demo dist site .pytest_cache .mypy_cache .ruff_cache .coverage

$(VENV)/pyvenv.cfg:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-to-run: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(INSTALL) --editable '.[tune,wmf]'
	touch $@

$(VENV)/.ready-to-test: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(INSTALL) --editable '.[test]'
	touch $@ $(VENV)/.ready-to-run

$(VENV)/.ready-to-check: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(INSTALL) --editable '.[test,check]'
	touch $@ $(VENV)/.ready-to-run $(VENV)/.ready-to-test

$(VENV)/.ready-for-docs: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(INSTALL) --editable '.[docs]'
	touch $@

$(VENV)/.ready-for-dist: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(INSTALL) build twine
	touch $@

# Their own environment, because lenskit wants an older pandas than the project's.
$(RIVALS)/.ready-to-run: pyproject.toml benchmarks/rivals-constraints.txt
	$(PYTHON) -m venv $(RIVALS)
	PIP_CONSTRAINT=benchmarks/rivals-constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(RIVALS)/$(BIN_FOLDER)/python -m pip install --quiet --editable '.[wmf]' cornac lenskit
	touch $@

# RecTools comes without its requirements: they ask for numpy < 2 before python 3.13, yet it runs with the project's.
$(ORDERED)/.ready-to-run: pyproject.toml benchmarks/ordered-rival-constraints.txt
	$(PYTHON) -m venv $(ORDERED)
	PIP_CONSTRAINT=benchmarks/ordered-rival-constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(ORDERED)/$(BIN_FOLDER)/python -m pip install --quiet --editable . attrs pandas pm-implicit pytorch-lightning tqdm typeguard
	PIP_CONSTRAINT=benchmarks/ordered-rival-constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(ORDERED)/$(BIN_FOLDER)/python -m pip install --quiet --no-deps rectools
	touch $@

# Needs python3 (3.10 or newer) and the package index; everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
# Processes that share the tests; tests wait for their own processes, so that three keep two cores busy.
WORKERS ?= 3

.PHONY: demo test test-slow lint check size bench gpu faults site clean

demo: .venv/installed  ## the main job, from nothing: make an example and classify it
	rm -rf .demo
	$(BIN)/virnucpro demo .demo

# xdist would leave files of few tests, which are the longest, to the end: both processes must end together.
test: .venv/checked  ## every test, from nothing; a file of tests stays in one process
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test-slow: .venv/slow  ## the tests that need minutes or other programs: the wheel, the site, workflows, clusters
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

check: lint test  ## ruff, the type checker, and the tests

lint: .venv/checked
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

size: .venv/installed  ## the size of the program, and what one record costs
	$(BIN)/python -m tools.size

bench: .venv/checked  ## a whole run with 8 devices that sleep instead of computing
	$(BIN)/python -m benchmarks.whole_run --frames 100000

gpu:  ## check the GPU path and measure it, with the packages that PYTHON has; twice ten minutes
	$(PYTHON) -m benchmarks.gpu facts .gpu; facts=$$?; \
	$(PYTHON) -m benchmarks.gpu decisions .gpu && exit $$facts

faults: .venv/checked  ## stop and fail every command at every operation on the disk, flip a bit of every byte; hours
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow --numprocesses $(WORKERS) tests/faults/test_survival.py

site: .venv/slow  ## the documentation as a site, .site/site/index.html; a broken link is an error
	rm -rf .site && mkdir .site && cp -r docs .site/pages
	mv .site/pages/mkdocs.yml .site && rm .site/pages/description.md
	cp *.md LICENSE .site/pages && mv .site/pages/README.md .site/pages/index.md
	sed -i -E 's#\]\((\.\./|docs/)#](#g; s#\]\(README\.md#](index.md#g' .site/pages/*.md
	cd .site && $(abspath $(BIN))/python -m zensical build --clean --strict

clean:
	rm -rf .venv .demo .gpu .site

# pip compiles no modules: most of those of large packages are never imported. One call resolves everything.
INSTALL = $(PYTHON) -m venv .venv && \
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable

.venv/installed: pyproject.toml constraints.txt
	$(INSTALL) .
	touch $@

.venv/checked: pyproject.toml constraints.txt
	$(INSTALL) '.[dev]'
	touch $@

.venv/slow: .venv/checked
	$(INSTALL) '.[slow]'
	touch $@

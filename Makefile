# Two commands matter: `make book` and `make test`. Each installs what it needs into .venv first.
# Choose a Python with `make book PYTHON=/path/to/python3.12`.

.DEFAULT_GOAL := help
.PHONY: help install venv book test browser lint serve clean outputs bench figure7 certificates live links student slides epub pdf
PY := .venv/bin/python
NEW := -c "import sys; sys.exit(sys.version_info < (3, 11))"
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
            $$p $(NEW) 2>/dev/null && echo $$p && break; done)
PINS := requirements.txt constraints.txt pyproject.toml

help:  ## list the targets
	@echo "make book     install, run every chapter, build the pages in _build/html"
	@echo "make test     install, then check everything: style, code, notebooks, pages"
	@echo "make browser  the part of make test that looks at every page in Chromium"
	@echo "make lint     check the code's style (ruff) and which module imports which (import-linter)"
	@echo "make serve    show the built book at http://localhost:8000"
	@echo "make outputs  renew the kept notebooks in tests/notebooks (ONLY=book/NN-name.md: one)"
	@echo "make figure7  train what isn't recorded yet of Figure 7 (about 7 minutes a seed and noise)"
	@echo "make certificates  make the certificates of runs A, B and C (about 2 minutes)"
	@echo "make live     make the stored curves and static pictures of the live figures (about 10 minutes)"
	@echo "make student  notebooks without solutions, and a zip of them, in _build/student"
	@echo "make slides   slides for each week and block of the teaching guide's plans, in _build/html/slides"
	@echo "make epub     the book as an EPUB, in _build/epub"
	@echo "make pdf      the book as one PDF, in _build/pdf (needs Chromium and its driver)"
	@echo "make bench    time a private step beside plain SGD and Opacus, and measure its memory"
	@echo "make links    ask every external link once (needs the network)"
	@echo "make clean    remove everything built; .venv stays (rm -rf .venv removes it too)"

install:  # instant when neither the pins nor this folder's place changed
	@{ echo "$(CURDIR)"; cat $(PINS); } | cmp -s - .venv/installed || $(MAKE) --no-print-directory venv

venv:
	@$(or $(PYTHON),false) $(NEW) || { echo "No Python of version 3.11 or newer: install one, or name it:" \
	  "make book PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(PY) -m pip install -q --disable-pip-version-check -r requirements.txt -c constraints.txt
	$(PY) -m pip install -q --disable-pip-version-check --no-deps -e .
	$(PY) tools/frame.py
	@{ echo "$(CURDIR)"; cat $(PINS); } > .venv/installed

book: install
	@$(PY) tools/build_book.py

test: install
	@$(PY) tools/run_tests.py

browser: install
	@$(PY) -m pytest tests/test_browser.py -n 2 --dist loadscope -q

lint: install
	@$(PY) -m ruff check .
	@.venv/bin/lint-imports --no-cache

serve: book
	@echo "The book is at http://localhost:8000 (Ctrl-C stops)"
	@$(PY) -m http.server 8000 --bind 127.0.0.1 --directory _build/html

outputs: install
	@$(PY) tools/outputs.py $(if $(ONLY),"$(ONLY)")

bench: install
	@$(PY) benchmarks/bench_step.py
	@$(PY) benchmarks/bench_memory.py

figure7: install  # stop it at any moment; it goes on where it was
	@$(PY) tools/figure7.py

certificates: install  # about two minutes; `tools/certificates.py --verify` proves what is kept
	@$(PY) tools/certificates.py

live: install
	@$(PY) tools/live_grid.py

links: install
	@$(PY) -m jupyter_book.cli.main build . --path-output . --builder linkcheck

student: install
	@$(PY) tools/student.py

slides: book
	@$(PY) tools/slides.py

epub: install
	@$(PY) tools/epub.py

pdf: book
	@$(PY) tools/pdf.py

clean:
	rm -rf _build .cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path "./.venv/*" -prune -exec rm -rf {} +

# Two commands matter: `make book` and `make test`. Each installs what it needs into .venv first.
# Choose a Python with `make book PYTHON=/path/to/python3.12`.

.DEFAULT_GOAL := help
.PHONY: browser help install book test lint serve clean outputs bench figure7 links upgrade live student epub pdf mutants fuzz
PY := .venv/bin/python

help:  ## list the targets
	@echo "make book     install, run every chapter, build the pages in _build/html"
	@echo "make test     install, then check everything: style, code, notebooks, pages"
	@echo "make browser  the part of make test that looks at every page in Chromium"
	@echo "make lint     check the code's style (ruff)"
	@echo "make serve    show the built book at http://localhost:8000"
	@echo "make outputs  renew the kept notebooks in tests/notebooks (ONLY=book/NN-name.md: one)"
	@echo "make figure7  train what isn't recorded yet of Figure 7 (about 7 minutes a seed and noise)"
	@echo "make live     make the stored curves and static pictures of the live figures (about 10 minutes)"
	@echo "make student  notebooks without solutions, and a zip of them, in _build/student"
	@echo "make epub     the book as an EPUB, in _build/epub"
	@echo "make pdf      the book as one PDF, in _build/pdf (needs Chromium and its driver)"
	@echo "make bench    time the slow parts"
	@echo "make mutants  break the mathematics in small ways, count what the tests notice (ONLY=laws: one module)"
	@echo "make fuzz     ten minutes of broken data files and odd command lines (installs atheris; Linux, macOS)"
	@echo "make links    ask every external link once (needs the network)"
	@echo "make upgrade  pin the newest versions that fit together, then run make test"
	@echo "make clean    remove everything built; .venv stays (rm -rf .venv removes it too)"

install:  # instant when nothing changed
	@PYTHON="$(PYTHON)" sh tools/install.sh

book: install
	@$(PY) tools/build_book.py

test: install
	@$(PY) tools/run_tests.py

browser: install
	@$(PY) -m pytest tests/test_browser.py -n 2 --dist loadscope -q

lint: install
	@$(PY) -m ruff check .

serve: install
	@$(PY) tools/build_book.py --serve

outputs: install
	@$(PY) tools/outputs.py $(if $(ONLY),"$(ONLY)")

mutants: install  # stop it at any moment; it goes on where it was
	@$(PY) tools/mutants.py --jobs 2 $(ONLY)

fuzz: install  # its inputs stay in .cache/fuzz: a second call goes on from there
	@$(PY) -m pip install -q atheris==3.0.0
	@$(PY) tools/fuzz.py

bench: install
	@$(PY) tools/bench.py

figure7: install  # stop it at any moment; it goes on where it was
	@$(PY) tools/figure7.py

live: install
	@$(PY) tools/live_grid.py

links: install
	@$(PY) tools/links.py

upgrade: install
	@$(PY) tools/upgrade.py

student: install
	@$(PY) tools/student.py

epub: install
	@$(PY) tools/epub.py

pdf: book
	@$(PY) tools/pdf.py

clean:
	rm -rf _build .cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path "./.venv/*" -prune -exec rm -rf {} +

"""The guards pass on the book, and each of them refuses a made-up bad notebook."""

import guards
import nbformat.v4 as nb
import pytest


def cell(source="x = f(1)", *, count=1, text="", outputs=(), **metadata):
    outputs = list(outputs)
    if text:
        outputs.append(nb.new_output("stream", name="stdout", text=text))
    return nb.new_code_cell(source, execution_count=count, outputs=outputs, metadata=metadata)


def notebook(*cells):
    return nb.new_notebook(cells=list(cells))


def prose(text):
    return nb.new_markdown_cell(text)


def glued(name):
    return nb.new_output("display_data", data={"application/papermill.record/text/plain": "1"},
                         metadata={"scrapbook": {"name": name, "mime_prefix": "x/"}})


FIGURE = nb.new_output("display_data", data={"text/plain": "<Figure size 640x400 with 1 Axes>"})
DESCRIBED = {"figure": {"name": "fig-1", "caption": "What one sees."},
             "image": {"alt": "A falling curve of ε against the number of steps."}}
SOLUTION = "def f(x):\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION"


def solution(name="ex-1", source=SOLUTION):
    return cell(source, nbgrader={"solution": True, "grade": False, "grade_id": name})


def check_cell(name="ex-1-check", source="check(f, like=g, on=[1])", locked=True):
    return cell(source, nbgrader={"solution": False, "grade": True, "grade_id": name,
                                  "locked": locked})


def test_the_book_passes_every_guard():
    assert guards.book_problems() == []


def test_no_less_is_compared_than_in_the_first_edition():
    """Its kept notebooks held 364 compared cells with 2583 numbers in their output."""
    counts = [guards.compared(kept) for _, kept in guards.kept_notebooks()]
    cells, numbers = map(sum, zip(*counts, strict=True))
    assert cells >= 364 and numbers >= 2583


LESSON, KEEP = {"tags": ["lesson"]}, {"tags": ["keep", "remove-cell"]}


def checking(shown="Checked: 3 cases", printed="some cases\n3 cases\n",
             source="assert f(1) > 0\nprint('3 cases')"):
    return cell(source, text=printed, tags=["check", "hide-cell"],
                mystnb={"code_prompt_show": shown})


@pytest.mark.parametrize("good", [
    cell("def f(x):\n    return x", **LESSON),
    cell("\n\n".join(["x = f(1)"] * 15), text="1", **LESSON),
    cell("x = " + "1" * 74, **LESSON),
    cell("record('a', 1)", text="a = 1", **KEEP),
    cell("draw()\nassert x > 0", outputs=[FIGURE], tags=["figure", "hide-input"]),
    cell("train()\nassert x > 0", text="9", tags=["nbval-ignore-output", *KEEP["tags"]]),
    checking(),
    solution(), check_cell(),
], ids=range(9))
def test_a_cell_of_each_kind_is_let_through(good):
    assert guards.unkind(notebook(good)) == []


@pytest.mark.parametrize("bad", [
    cell(),
    cell(tags=["keep"]),                                       # the text would see its key
    cell(tags=["lesson", "hide-input"]),
    cell("assert f(1) > 0", **LESSON),
    cell("for x in grid:\n    assert f(x) > 0", **LESSON),
    cell("record('a', f(1))", text="a = 1", **LESSON),
    cell("draw()\nrecord('a', f(1))", outputs=[FIGURE], tags=["figure", "hide-input"]),
    cell("\n".join(["x = f(1)"] * 16), **LESSON),
    cell("x = " + "1" * 75, **LESSON),
    checking(shown="Checked: 4 cases"),
    checking(shown="3 cases"),
    checking(shown=""),
    checking(printed=""),
    checking(source="print('3 cases')"),
], ids=range(14))
def test_a_cell_that_is_not_what_its_kind_promises_is_refused(bad):
    assert len(guards.unkind(notebook(bad))) == 1


def test_what_a_page_shows_is_counted():
    kept = notebook(cell("x = f(1)\n\ny = 2", text="3 4", **LESSON),
                    cell("a b", text="c d", **KEEP), checking(),
                    cell("p q", outputs=[FIGURE], text="5", tags=["figure", "hide-input"]),
                    solution(),
                    prose("one two three"))
    assert guards.budget(kept) == (2, 9, 12)
    assert guards.over_budget({"page": (2, 9, 12)}) and not guards.over_budget({"page": (2, 2, 10)})
    assert guards.over_budget({"a": (1500, 1, 10), "b": (501, 1, 10)})
    assert guards.compared(kept) == (4, 4)


def test_the_line_of_a_check_is_what_it_printed_last():
    assert "Checked: 3 cases" in guards.unkind(notebook(checking(shown="Checked: 2 cases")))[0]


def test_a_cell_that_was_not_run_is_refused():
    assert guards.unrun(notebook(cell(count=None)))
    assert not guards.unrun(notebook(cell()))


@pytest.mark.parametrize("kept", [
    notebook(cell("x = 1")),                                   # one cell missing
    notebook(cell("x = 1"), prose("text"), cell("y = 3")),     # one cell appended
    notebook(cell("x = 2"), prose("text")),                    # older code
    notebook(cell("x = 1"), prose("older text")),              # older text
    notebook(cell("x = 1", tags=["hide-input"]), prose("text")),  # another tag
    notebook(prose("text"), cell("x = 1")),                    # another order
])
def test_a_kept_notebook_that_is_not_the_chapter_is_refused(kept):
    chapter = notebook(cell("x = 1"), prose("text"))
    assert guards.unpaired(chapter, kept)
    assert not guards.unpaired(chapter, notebook(cell("x = 1", text="3"), prose("text")))


@pytest.mark.parametrize("source", ["f(1);", "f(1); \n", "x = f(1)\nx;"])
def test_a_trailing_semicolon_is_refused(source):
    assert guards.trailing_semicolons(notebook(cell(source)))
    assert not guards.trailing_semicolons(notebook(cell("a = 1; f(a)")))


@pytest.mark.parametrize("source", [
    "x = f(1)",
    "f(1)",
    "for i in range(3):\n    f(i)",
    "def g():\n    assert f(1) == 2\ng()",  # what runs inside can't be seen from here
    "assert True",
    "%timeit f(1)",
])
def test_a_working_cell_that_nothing_compares_is_refused(source):
    assert guards.uncompared(notebook(cell(source)))
    assert guards.uncompared(notebook(cell(source, outputs=[FIGURE, glued("a")])))
    assert not guards.uncompared(notebook(cell(source, text="1.259")))


@pytest.mark.parametrize("source", [
    "import numpy as np\nfrom math import pi",
    "def f(x):\n    return x",
    "q, sigma = 0.01, 4.0\nsteps = [1, 10, 100]",
    "x = f(1)\nassert x > 0",
    "for q in grid:\n    assert f(q) > 0",
    "with context():\n    assert f(1) > 0",
    "np.testing.assert_allclose(f(1), 2)",
    "check(f, like=g, on=[1])",
])
def test_definitions_and_assertions_need_no_output(source):
    assert not guards.uncompared(notebook(cell(source)))


def test_an_ignored_output_needs_an_assertion():
    ignored = {"tags": ["nbval-ignore-output"]}
    assert guards.uncompared(notebook(cell("train()", text="94.7", **ignored)))
    assert not guards.uncompared(notebook(cell("a = train()\nassert a > 94", text="9", **ignored)))


@pytest.mark.parametrize("tag", sorted(guards.SILENT_TAGS))
def test_tags_that_hide_a_cell_are_refused(tag):
    assert guards.silenced(notebook(cell(tags=[tag])))


def test_comments_that_hide_a_cell_are_refused():
    assert guards.silenced(notebook(cell("# NBVAL_SKIP\nf(1)")))
    assert guards.silenced(notebook(cell("f(1)  # NBVAL_IGNORE_OUTPUT")))
    assert not guards.silenced(notebook(cell("f(1)  # nothing special", tags=["hide-input"])))


def test_a_memory_address_is_refused():
    address = nb.new_output("execute_result", data={"text/plain": "<Legend at 0x7f3a4c5d6e7f>"})
    assert guards.unstable(notebook(cell(outputs=[address])))


@pytest.mark.parametrize("missing", ["name", "caption", "alt"])
def test_a_figure_that_is_not_described_is_refused(missing):
    figure = {k: v for k, v in DESCRIBED["figure"].items() if k != missing}
    image = {} if missing == "alt" else DESCRIBED["image"]
    bad = cell(outputs=[FIGURE], mystnb={"figure": figure, "image": image})
    assert guards.undescribed(notebook(bad))
    assert not guards.undescribed(notebook(cell(outputs=[FIGURE], mystnb=DESCRIBED)))


def test_a_short_alternative_text_is_refused():
    short = DESCRIBED | {"image": {"alt": "a plot"}}
    assert guards.undescribed(notebook(cell(outputs=[FIGURE], mystnb=short)))


@pytest.mark.parametrize("text, refused", [
    ("A plot.", True), ("{numref}`fig-other` shows", True), ("`fig-a`", True),
    ("{numref}`fig-a` shows", False), ("{numref}`the plot <fig-a>`", False),
    ("{numref}`fig-a`\n```{figure} a.svg\n:name: fig-b\n```", True),
])
def test_a_figure_that_is_not_referred_to_is_refused(text, refused):
    figure = cell(outputs=[FIGURE], mystnb={"figure": {"name": "fig-a"}})
    assert bool(guards.unreferred(notebook(figure, prose(text)))) == refused


def test_a_quoted_number_that_no_cell_records_is_refused():
    recorded = cell("record('a', 1)", text="a = 1\n", outputs=[glued("a")])
    assert not guards.unrecorded(notebook(recorded, prose("So {glue:text}`a`.")))
    assert guards.unrecorded(notebook(recorded, prose("So {glue:text}`b`.")))
    assert guards.unrecorded(notebook(recorded, prose("```{glue:figure} b\n```")))
    assert guards.unrecorded(notebook(cell(outputs=[glued("a")]), prose("{glue:text}`a`")))


def test_a_name_recorded_twice_is_refused():
    twice = cell(text="a = 1\na = 2\n", outputs=[glued("a"), glued("a")])
    assert guards.unrecorded(notebook(twice))


def test_exercises_need_marks_and_a_check():
    assert not guards.unchecked_exercises(notebook(solution(), check_cell()))
    for bad in [
        notebook(solution()),                                          # never checked
        notebook(check_cell()),                                        # nothing to check
        notebook(check_cell(), solution()),                            # checked too early
        notebook(solution(source="def f(x):\n    return x"), check_cell()),  # no marks
        notebook(solution(source=SOLUTION.replace("### END SOLUTION", "")), check_cell()),
        notebook(solution(), check_cell("ex-2-check")),                # another exercise's check
        notebook(solution(), check_cell(source="f(1)")),               # doesn't check
        notebook(solution(), check_cell(locked=False)),
        notebook(solution(), check_cell(), solution(), check_cell()),  # the same name twice
        notebook(cell(SOLUTION)),                                      # marks outside
    ]:
        assert guards.unchecked_exercises(bad)


PROOF = "```{exercise} Title\n:label: ex-1\n\nProve.\n\n*Practises: {ref}`sec`.*\n```"
MARKS = {"grade": True, "solution": True, "grade_id": "ex-1", "points": 4}


def test_a_proof_without_an_answer_cell_or_a_section_is_refused():
    def proof(text=PROOF, **marks):
        answer = nb.new_markdown_cell("Solution.", metadata={"nbgrader": {**MARKS, **marks}})
        return notebook(nb.new_markdown_cell(text), answer)

    assert guards.unanswered(proof()) == []
    unnamed = proof(text=PROOF.replace("*Practises: ", "See "))
    for bad in (proof(points=0), proof(grade_id="ex-2"), proof(grade=False), unnamed):
        assert len(guards.unanswered(bad)) == 1


def test_pages_and_table_of_contents_must_agree():
    toc = {"root": "book/intro", "parts": [{"chapters": [{"file": "book/03-a"}]}]}
    assert guards.toc_problems(toc, ["book/intro", "book/03-a"]) == []
    assert guards.toc_problems(toc, ["book/intro", "book/03-a", "book/04-b"])
    assert guards.toc_problems(toc, ["book/intro"])


def test_chapters_and_kept_notebooks_must_pair(tmp_path):
    chapter, kept = tmp_path / "03-a.md", tmp_path / "03-a.ipynb"
    assert guards.pairing_problems([chapter], [kept]) == []
    assert guards.pairing_problems([chapter], [])
    assert guards.pairing_problems([], [kept])


def test_text_is_renewed_without_a_run_only_when_the_code_is_the_same(tmp_path, monkeypatch):
    import nbformat
    import outputs
    page, kept = tmp_path / "03-a.md", tmp_path / "03-a.ipynb"
    head = "---\njupytext:\n  text_representation: {extension: .md, format_name: myst}\n---\n"
    page.write_text(head + "# Old\n\n```{code-cell} ipython3\nprint(1)\n```\n")
    monkeypatch.setattr(outputs, "kept_notebook", lambda chapter: kept)
    ran = outputs.convert(page)
    ran.cells[1].outputs, ran.cells[1].execution_count = cell(text="1\n").outputs, 1
    nbformat.write(ran, kept)

    page.write_text(page.read_text().replace("Old", "New"))
    assert outputs.take_text(page)
    after = nbformat.read(kept, as_version=4)
    assert after.cells[0].source == "# New" and after.cells[1].outputs[0].text == "1\n"
    assert guards.chapter_problems(outputs.convert(page), after) == []

    page.write_text(page.read_text().replace("print(1)", "print(2)"))
    assert not outputs.take_text(page)
    assert nbformat.read(kept, as_version=4) == after

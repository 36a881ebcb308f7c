"""The report in a real browser: it opens, filters, sorts, downloads, and draws in any size."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report_data import Shown, mixed, write_run
from virnucpro.report.page import report_page
from virnucpro.results import open_run

pytest.importorskip("playwright")
from tests.slow.browser import CHROMIUM, Browser, browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("drawn"),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
HOSTILE = "</script><img/src=x/onerror=alert(1)>"
ROWS = "return document.querySelectorAll('#rows tbody tr').length"
CELL = "return document.querySelector('#rows tbody tr').cells[{}].textContent"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def _report(folder: Path, records: list[Shown]) -> str:
    """Write the report of a run, and return its address."""
    write_run(folder, records)
    path = folder / "s_report.html"
    path.write_text(report_page(open_run(folder)), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page(window: Browser, tmp_path: Path) -> Browser:
    """The report of 42 viruses, a provirus and other records."""
    records = [*mixed(), Shown(HOSTILE, "virus", [0.9] * 4, 0.02), Shown("ж", "virus", [0.6], 0.9)]
    window.messages()
    window.look(1200, 900)
    window.page.goto(_report(tmp_path, records))
    return window


def test_it_opens_without_a_message_and_no_id_becomes_markup(page):
    assert page.messages() == []
    assert page.run(ROWS) == 43
    assert page.run("return document.images.length") == 0
    cells = "return [...document.querySelectorAll('td.id')].map((cell) => cell.title || cell.textContent)"
    assert HOSTILE in page.run(cells)


def test_tiles_search_and_sliders_filter_the_rows(page):
    tile = "document.querySelector('.tile[data-kind={}]').click()"
    for kind, rows in (("nonvirus", 41), ("unscored", 1), ("region", 1), ("virus", 42)):
        page.run(tile.format(kind))
        assert page.run(ROWS) == rows, kind
    page.run(tile.format("virus"))
    assert page.run(ROWS) == 43, "the same tile again"
    set_value = (
        "const input = document.getElementById('{}'); input.value = '{}';"
        "input.dispatchEvent(new Event('input'));"
    )
    for name, value, back, rows in (
        ("search", "VIRUS_1", "", 11),
        ("score", "0.5", "-1", 42),
        ("fdr", "0.01", "1", 11),
        ("length", "85", "0", 1),
    ):
        page.run(set_value.format(name, value))
        assert page.run(ROWS) == rows, name
        page.run(set_value.format(name, back))
    assert page.run("return document.getElementById('count').textContent") == "Matching rows: 43."
    assert page.messages() == []


def test_a_click_on_a_heading_sorts_by_it(page):
    head = "document.querySelectorAll('#rows th button')[{}].click()"
    page.run(head.format(2))
    assert page.run(CELL.format(2)) == "5,000"
    page.run(head.format(2))
    assert page.run(CELL.format(2)) == "500"
    page.run(head.format(4))
    page.run(head.format(4))
    assert page.run(CELL.format(4)) == "<0.001", "the smallest, and not text"
    page.run(head.format(0))
    page.run(head.format(0))
    assert page.run(CELL.format(0)) == "ж", "text begins with A, and then with the last letter"
    sorted_by = "return document.querySelectorAll('th[aria-sort=descending]').length"
    assert page.run(sorted_by) == 1


def test_rows_and_tracks_can_be_saved(page):
    saved = {}
    for button in ("#download", ".track-box button"):
        with page.page.expect_download() as download:
            page.page.locator(button).first.click()
        name = download.value.suggested_filename
        saved[name] = download.value.path().read_text(encoding="utf-8")
    lines = saved["s_rows.tsv"].splitlines()
    assert len(lines) == 44
    assert lines[0].startswith("id\tkind\tlength\tscore\tfdr")
    assert saved["host.svg"].startswith("<svg")
    assert "currentColor" in saved["host.svg"]
    assert page.messages() == []


def test_it_is_readable_in_light_and_dark_and_on_a_phone(page):
    colours = "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
    light = page.run(colours)
    page.look(1200, 900, dark=True)
    dark = page.run(colours)
    assert light[1] == "rgb(255, 255, 255)"
    assert sum(map(int, dark[1][4:-1].split(","))) < 100 < sum(map(int, dark[0][4:-1].split(",")))
    page.look(360, 740)
    wide = "return [document.documentElement.scrollWidth, window.innerWidth]"
    content, shown = page.run(wide)
    assert content <= shown == 360, "nothing but tables and tracks scrolls sideways"
    drawn = (
        "return [...document.querySelectorAll('.figures svg, .track-box svg')].every((svg) => "
        "svg.getBoundingClientRect().width > 250 && svg.getBoundingClientRect().height > 80)"
    )
    assert page.run(drawn)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 360])
def test_axe_finds_no_barrier(page, width, dark):
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("axe is not installed")
    page.look(width, 800, dark=dark)
    page.run(Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8"))
    told = "[rule.id, ...rule.nodes.map((node) => node.html)]"
    assert page.run(f"return axe.run().then((all) => all.violations.map((rule) => {told}))") == []


def test_a_print_has_the_first_rows_and_tracks(page, tmp_path):
    page.page.goto(_report(tmp_path, mixed(60)))
    page.page.emulate_media(media="print")
    shown = "return [...document.querySelectorAll('{}')].filter((e) => e.offsetHeight).length"
    numbers = [page.run(shown.format(name)) for name in ("#rows tbody tr", ".track-box")]
    assert numbers == [50, 10]
    page.page.emulate_media(media="null")


def test_without_javascript_tiles_and_table_are_there(window, tmp_path):
    plain = window.page.context.browser.new_page(java_script_enabled=False)
    plain.goto(_report(tmp_path, mixed()))
    shown = plain.locator("body").inner_text()
    assert "other_39" in shown
    assert "with viral regions" in shown

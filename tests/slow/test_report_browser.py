"""The report in a real browser: it opens, filters, sorts, downloads, and draws in any size."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.report_data import Shown, mixed, write_run
from virnucpro.report.page import report_page
from virnucpro.results import open_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("drawn"),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
HOSTILE = "</script><img/src=x/onerror=alert(1)>"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def _report(folder: Path, records: list[Shown]) -> str:
    """Write the report of a run, and return its address."""
    write_run(folder, records)
    path = folder / "s_report.html"
    path.write_text(report_page(open_run(folder)), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page(window: Browser, tmp_path: Path) -> Iterator[Page]:
    """The report of 42 viruses, a provirus and other records; its console stays empty."""
    messages: list[str] = []
    opened = window.new_page(viewport={"width": 1200, "height": 900})
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    records = [*mixed(), Shown(HOSTILE, "virus", [0.9] * 4, 0.02), Shown("ж", "virus", [0.6], 0.9)]
    opened.goto(_report(tmp_path, records))
    yield opened
    opened.close()
    assert messages == []


def _rows(page: Page) -> int:
    return page.locator("#rows tbody tr").count()


def test_it_opens_and_no_id_becomes_markup(page):
    assert _rows(page) == 43
    assert page.locator("img").count() == 0
    ids = page.locator("td.id").evaluate_all("all => all.map(e => e.title || e.textContent)")
    assert HOSTILE in ids


def test_tiles_search_and_sliders_filter_the_rows(page):
    found = []
    for kind in ("nonvirus", "unscored", "region", "virus", "virus"):  # again: all rows
        page.locator(f".tile[data-kind={kind}]").click()
        found.append(_rows(page))
    assert found == [41, 1, 1, 42, 43]
    change = "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')) }"
    for name, value, back, rows in (
        ("search", "VIRUS_1", "", 11),
        ("score", "0.5", "-1", 42),
        ("fdr", "0.01", "1", 11),
        ("length", "85", "0", 1),
    ):
        page.locator(f"#{name}").evaluate(change, value)
        assert _rows(page) == rows, name
        page.locator(f"#{name}").evaluate(change, back)
    for name, choice, rows in (("tier", "medium", 1), ("virus_kind", "phage", 42)):
        page.locator(f"#{name}").select_option(choice)
        assert _rows(page) == rows, name
        page.locator(f"#{name}").select_option("any")
    page.locator("#hallmarks").check()
    assert _rows(page) == 11
    page.locator("#hallmarks").uncheck()
    assert page.locator("#count").text_content() == "Matching rows: 43."


def test_a_click_on_a_heading_sorts_by_it(page):
    for column, clicks, first in (
        (2, 1, "5,000"),
        (2, 1, "500"),
        (4, 2, "<0.001"),  # the smallest, and not text
        (9, 1, "2: portal protein, terminase large subunit"),
        (0, 2, "ж"),  # text begins with A, and then with the last letter
    ):
        for _ in range(clicks):
            page.locator("#rows th button").nth(column).click()
        assert (
            page.locator("#rows tbody tr").first.locator("td").nth(column).text_content() == first
        )
    assert page.locator("th[aria-sort=descending]").count() == 1


def test_rows_and_tracks_can_be_saved(page):
    saved = {}
    for button in ("#download", ".track-box button"):
        with page.expect_download() as download:
            page.locator(button).first.click()
        saved[download.value.suggested_filename] = download.value.path().read_text("utf-8")
    lines = saved["s_rows.tsv"].splitlines()
    assert len(lines) == 44
    assert lines[0].startswith("id\tkind\tlength\tscore\tfdr")
    assert saved["host.svg"].startswith("<svg")
    assert "currentColor" in saved["host.svg"]


def test_it_is_readable_in_light_and_dark_and_on_a_phone(page):
    colours = (
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert page.evaluate(colours)[1] == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    text, ground = (sum(map(int, c[4:-1].split(","))) for c in page.evaluate(colours))
    assert ground < 100 < text
    page.set_viewport_size({"width": 360, "height": 740})
    spaces = "all => all.map(e => getComputedStyle(e).whiteSpace)"
    assert set(page.locator("#rows .id").evaluate_all(spaces)) == {"nowrap"}, "ids do not break"
    # nothing but tables and tracks scrolls sideways
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    drawn = page.locator(".figures svg, .track-box svg")
    assert drawn.evaluate_all(
        "all => all.map(e => e.getBoundingClientRect()).every(e => e.width > 250 && e.height > 80)"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_axe_finds_no_barrier(page, width, scheme):
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("axe is not installed")
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.evaluate(Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8"))
    told = "[rule.id, ...rule.nodes.map((node) => node.html)]"
    assert page.evaluate(f"axe.run().then((all) => all.violations.map((rule) => {told}))") == []


def test_a_print_has_the_first_rows_and_tracks(page, tmp_path):
    page.goto(_report(tmp_path, mixed(60)))
    page.emulate_media(media="print")
    for name, shown in (("#rows tbody tr", 50), (".track-box", 10)):
        assert page.locator(f"{name} >> visible=true").count() == shown


def test_without_javascript_tiles_and_table_are_there(window, tmp_path):
    plain = window.new_page(java_script_enabled=False)
    plain.goto(_report(tmp_path, mixed()))
    shown = plain.locator("body").inner_text()
    assert "other_39" in shown
    assert "with viral regions" in shown


def test_the_link_behind_the_first_regions_shows_all_of_them(window, tmp_path):
    scores, places = [0.1] * 3 + [0.9] * 16, [(n, n) for n in range(3, 19)]
    opened = window.new_page()
    opened.goto(_report(tmp_path, [*mixed(), Shown("many", "nonvirus", scores, 0.6, places)]))
    opened.get_by_role("link", name="6 more").click()
    assert _rows(opened) == 16
    assert opened.evaluate("location.hash") == "#table"

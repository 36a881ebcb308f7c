"""The report of a run: what it says, that ids are only text in it, and how large it becomes."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report_data import Shown, mixed, write_run
from virnucpro.errors import InputError
from virnucpro.events import Event, Progressed, ReportFinished, ReportStarted
from virnucpro.report import content
from virnucpro.report.page import report_page
from virnucpro.report.writing import write_report
from virnucpro.results import open_run
from virnucpro.store.disk import Disk

VOID = {"meta", "link", "br", "input", "img", "hr"}
SECTIONS = ["answer", "counts", "table", "figures", "tracks", "run", "next"]


class Page(HTMLParser):
    """Parses a page, and checks that its elements are nested properly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and all(attributes.get(k.strip("_")) == v for k, v in wanted.items())
        ]


def test_progress_is_told_while_the_table_of_records_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "ROWS_PER_EVENT", 20)
    records = mixed(50)
    write_run(tmp_path, records)
    events: list[Event] = []
    write_report(open_run(tmp_path), Disk(), events.append)
    begun, *read, finished = events
    assert begun == ReportStarted(len(records))
    assert isinstance(finished, ReportFinished)
    assert [e.sequences for e in read if isinstance(e, Progressed)] == [20] * 5 + [3]
    write_report(open_run(tmp_path), Disk(), events.append)
    assert events[-1] is finished


def page_of(folder: Path, records: list[Shown], **changes: object) -> tuple[str, Page]:
    write_run(folder, records, **changes)
    text = report_page(open_run(folder))
    return text, Page(text)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page]:
    return page_of(tmp_path_factory.mktemp("report"), mixed())


def test_the_sections_are_in_order_and_the_answer_comes_first(page: tuple[str, Page]) -> None:
    text, parsed = page
    assert [section["id"] for section in parsed.all("section")] == SECTIONS
    assert "40 of 83 records are called virus, 40 of them surely; these are 80,000 of " in text
    assert "1 more record holds viral regions" in text
    assert "&lt;b&gt;s.fa" in text


def test_nothing_is_loaded_and_only_the_own_script_may_run(page: tuple[str, Page]) -> None:
    _, parsed = page
    loading = [
        v for _, a in parsed.elements for k, v in a.items() if k in ("src", "srcset", "data")
    ]
    assert loading == []
    assert parsed.all("link") == []
    policy = parsed.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"] or ""
    assert policy.startswith("default-src 'none'")
    assert re.search(r"script-src 'sha256-[\w+/=]+'$", policy)
    assert not [k for _, attributes in parsed.elements for k in attributes if k.startswith("on")]


def test_tiles_count_records_and_bases_and_the_table_has_its_rows(page: tuple[str, Page]) -> None:
    text, parsed = page
    tiles = {a["data-kind"]: a["data-total"] for a in parsed.all("button") if "data-kind" in a}
    assert tiles == {
        "virus": "40",
        "region": "1",
        "undecided": "1",
        "nonvirus": "41",
        "unscored": "1",
    }
    assert '<span class="number">40</span><span>records, 80,000 bases</span>' in text
    kinds = [row["data-kind"] for row in parsed.all("tr") if "data-kind" in row]
    assert kinds == ["virus"] * 40 + ["region"] + ["undecided"] + ["nonvirus"] * 41 + ["unscored"]
    assert "host|region_10001_15000" in text
    assert "bases 10,001 to 15,000; flanks -0.80" in text


def test_every_figure_and_track_has_a_text_in_its_place(page: tuple[str, Page]) -> None:
    text, parsed = page
    drawings = parsed.all("svg")
    assert len(drawings) == len(parsed.all("svg", role="img")) == 4 + 30
    assert all(drawing["aria-label"] for drawing in drawings)
    assert "Viral regions: bases 10,001 to 15,000." in text
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(set(ids)) == len(ids), "two elements have the same id"
    # numbers of axes are not cut off when coordinates are made shorter
    assert "0.5" in {word.strip() for word in parsed.texts["text"]}


def test_a_chunk_without_a_score_is_not_drawn_as_one(page: tuple[str, Page]) -> None:
    text, _ = page
    track = text[text.index('<svg class="track"') :].split("</svg>")[0]
    drawn = dict(re.findall(r'<path class="(?:dots )?(\w)" d="([^"]*)"', track))
    assert {kind: path.count("M") for kind, path in drawn.items()} == {"v": 10, "n": 22, "u": 1}
    data = json.loads(text.split('id="track-data">')[1].split("</script>")[0])
    assert data[0]["v"].count(-1) == data[0]["o"].count(-1) == 1
    assert (data[0]["d"][:2], data[0]["s"]) == ([1, 500], [500])


@pytest.mark.parametrize(
    "name",
    [
        "</script><script>alert(1)</script>",
        '"><img/src=x/onerror=alert(1)>',
        "вирус" * 40,
        "x" * 5000,
        "<!--",
        "&lt;",
    ],
)
def test_an_id_is_only_text(tmp_path: Path, name: str) -> None:
    records = [Shown(name, "virus", [0.9] * 4, 0.1), Shown(f"{name}2", "nonvirus", [0.1] * 5, 0.5)]
    _, parsed = page_of(tmp_path, records)
    assert len(parsed.all("script")) == 2
    assert parsed.all("img") == []
    assert name in parsed.texts["td"]
    assert name in parsed.texts["h3"]


def test_warnings_say_what_to_be_careful_about(tmp_path: Path) -> None:
    records = [Shown("a", "virus", [0.9] * 4), Shown("b", "unscored", [None], length=100)]
    text, _ = page_of(tmp_path / "a", records, notice="model type lite: small")
    for words in ("Model type lite: small.", "is not calibrated", "not judged, because", "shorter"):
        assert words in text, words
    assert 'id="fdr"' not in text
    calm, parsed = page_of(tmp_path / "b", [Shown("a", "virus", [0.9] * 4, 0.01)])
    assert "warnings" not in {attributes.get("class") for _, attributes in parsed.elements}
    assert "Figures are drawn from 10 scored records on; this run has 1." in calm


def test_an_input_without_records_has_a_report(tmp_path: Path) -> None:
    text, parsed = page_of(tmp_path, [])
    assert "The input has no records." in text
    assert [section["id"] for section in parsed.all("section")] == SECTIONS


def test_a_large_run_has_a_small_page(tmp_path: Path) -> None:
    long = [Shown(f"{n}{'y' * 5000}", "virus", [0.9] * 3, 0.01) for n in range(600)]
    many = [Shown(f"n{n}", "nonvirus", [0.1], 0.5) for n in range(5000)]
    scores = [(i * 7919) % 1000 / 1000 for i in range(9000)]
    wide = [Shown(f"w{n}", "undecided", scores, 0.4) for n in range(7)]
    text, parsed = page_of(tmp_path, [*long, *many, *wide])
    assert len(text.encode()) < 5_000_000
    assert 300 < len([row for row in parsed.all("tr") if "data-kind" in row]) < 612
    assert "null" in text.split('id="track-data">')[1].split("</script>")[0]
    assert "<image " in text, "so many dots are an image"


def test_the_table_keeps_room_for_every_call(tmp_path: Path) -> None:
    records = [Shown(f"v{n}", "virus", [0.9], 0.01) for n in range(6000)]
    records += [Shown(f"n{n}", "nonvirus", [0.1], 0.5, length=400 + n) for n in range(500)]
    _, parsed = page_of(tmp_path, records)
    kinds = [row["data-kind"] for row in parsed.all("tr") if "data-kind" in row]
    assert (kinds.count("virus"), kinds.count("nonvirus")) == (4600, 400)
    assert "n499" in parsed.texts["td"], "the longest ones"


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, mixed())
    chunks = tmp_path / "s_chunks.tsv"
    chunks.write_text(chunks.read_text()[:1000])
    with pytest.raises(InputError, match=r"s_chunks.tsv"):
        report_page(open_run(tmp_path))
    (tmp_path / "s_contigs.tsv").write_text("record\n")
    with pytest.raises(InputError, match=r"s_contigs.tsv"):
        report_page(open_run(tmp_path))
    write_run(tmp_path, mixed(), settings={"analysis": []})
    with pytest.raises(InputError, match=r"s_run.json"):
        report_page(open_run(tmp_path))

"""The report of a run: what it says, that ids are only text in it, and how large it becomes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report_data import Shown, mixed, write_run
from virnucpro import columns
from virnucpro.errors import InputError
from virnucpro.formatting import shortened_ids
from virnucpro.report import content
from virnucpro.report.content import HEADS, read_content
from virnucpro.report.page import LONGEST_ID, report_page
from virnucpro.results import open_run

pytestmark = pytest.mark.usefixtures("drawn")

UNCALIBRATED = {"path": "c", "sha256": "cd" * 32, "calibrated": False}
VOID = {"meta", "link", "br", "input", "img", "hr"}
SECTIONS = ["answer", "counts", "table", "figures", "tracks", "run", "next"]


class Page(HTMLParser):
    """The elements of a page, which are nested properly, and the texts in elements of each kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.open = text, list[str]()
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

    def values(self, attribute: str, tag: str | None = None) -> list[str | None]:
        return [a[attribute] for t, a in self.elements if attribute in a and tag in (None, t)]


def page_of(folder: Path, records: list[Shown], **changes: object) -> Page:
    write_run(folder, records, **changes)
    return Page(report_page(open_run(folder)))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(tmp_path_factory.mktemp("report"), mixed())


def test_sections_tiles_and_rows_are_in_order(page):
    assert page.values("id", "section") == SECTIONS
    for words in (
        "40 of 83 records are classified as viral (tier high: 40), 3 of them with hallmark genes. "
        "1 viral region with 5,000 bases; 1 record not classified as viral holds regions.",
        "&lt;b&gt;s.fa",
        '<span class="number"><b>40</b> records</span><span class="number">80,000 bases</span>',
        '<span class="number"><b>1</b> record</span><span class="number">5,000 bases</span>',
        '<td class="n" title="0.000000">&lt;0.001</td>',
        '<td class="n">0.001</td>',
        "host|region_10001_15000",
        "10,001 to 15,000.",
        '<td>medium</td><td class="n">10,001</td><td class="n">15,000</td><td>unsure</td>',
        '<td>phage</td><td class="words">2: portal protein, terminase large subunit</td>',
        "Hollow dots are weak evidence, 9 records:",
    ):
        assert words in page.text, words
    calls = ["virus", "region", "undecided", "nonvirus", "unscored"]
    assert page.values("data-kind", "button") == calls
    assert page.values("data-total") == ["40", "1", "1", "41", "1"]
    rows = ["region"] + ["virus"] * 40 + ["undecided"] + ["nonvirus"] * 41 + ["unscored"]
    assert page.values("data-kind", "tr") == rows


def test_tracks_are_in_order_of_region_and_length_and_rows_in_order_of_score(tmp_path):
    records = [Shown(name, "nonvirus", [0.1] * 3, 0.5) for name in ("first", "second", "third")]
    records.append(Shown("long", "nonvirus", [0.1] * 8, 0.5))
    records.append(Shown("host", "nonvirus", [0.1] * 3 + [0.9, None, 0.9], 0.6, [(3, 4), (5, 5)]))
    records.append(Shown("few", "undecided", [0.9, 0.9, *[None] * 7], 0.5, length=1000))
    records += [Shown("one", "undecided", [0.6], 0.5), Shown("none", "unscored", [None])]
    page = page_of(tmp_path, records)
    assert dict(re.findall(r'class="id">([^<]+)<.*class="words">([^<]+)</td></tr>', page.text)) == {
        "host|region_1501_2500": "score beside it -0.80",
        "host|region_2501_3000": "score beside it -0.80",
        "host": "viral regions: 2",
        "one": "one chunk",
        "few": "little scored",
        "none": "no open frame",
    }
    assert '<td class="n">0.50</td>' in page.text, "of the first region"
    counts = read_content(open_run(tmp_path)).counts
    assert [counts[name] for name in ("regions", "hosts")] == [2, 1]
    names = ["host", "long", "first", "second", "third"]
    assert page.texts["h3"][:5] == names
    assert [cell for cell in page.texts["td"] if cell in names] == names
    sorted_by = [a["title"] for _, a in page.elements if a.get("aria-sort") == "descending"]
    assert sorted_by == [HEADS["score"]]
    assert page.values("title", "th") == [*HEADS.values()]
    assert "0" in page.texts["td"]
    assert page.text.count(str(HEADS["fdr"])) == 2, "in the legend, too"


def test_viral_records_come_first_and_few_others_have_tracks(tmp_path):
    records = [Shown(f"other_{n}", "nonvirus", [0.1] * (40 + n), 0.5) for n in range(20)]
    records += [Shown(f"virus_{n}", "virus", [0.9 - n / 20] * (3 + n), 0.1) for n in range(9)]
    parts = [(n, n) for n in range(3, 19)]
    records.append(Shown("host", "nonvirus", [0.1] * 3 + [0.9] * 16, 0.6, parts))
    page = page_of(tmp_path, records)
    assert '6,500 and <a href="#table" data-record="host">6 more</a>.' in page.text
    names = ["host", *(f"virus_{n}" for n in range(9))]  # the most certain first
    names += [f"other_{n}" for n in range(19, 14, -1)]
    assert page.texts["h3"][2 : 2 + len(names) + 1] == [*names, "Command"]


def test_a_chromosome_is_smoothed_and_its_regions_have_drawings_with_genes(tmp_path):
    scores = [0.1 if n % 50 else None for n in range(2000)]
    scores[700:740] = [0.9] * 40
    records = [
        Shown("chr|1", "nonvirus", scores, 0.6, [(700, 739)]),
        Shown("v", "virus", [0.9] * 9),
    ]
    genes = [(350_101, 351_000, "+", ""), (351_100, 352_000, "-", ";product=portal%20protein")]
    lines = [
        f"chr|1\tx\tCDS\t{a}\t{b}\t1\t{strand}\t0\tID=1{more}\n" for a, b, strand, more in genes
    ]
    text = "##gff-version 3\nv\tx\tregion\t1\t9\t.\t+\t.\tID=v\nv\tx\tCDS\t1\t900\t1\t+\t0\tID=2\n"
    (tmp_path / "s_virus_genes.gff3").write_text(text + "".join(lines))
    page = page_of(tmp_path, records)
    region = "chr|1|region_350001_370000"
    assert page.values("id", "figure") == ["record-chr|1", f"record-{region}", "record-v"]
    assert page.values("href", "a").count("#record-chr%7C1%7Cregion_350001_370000") == 1
    assert page.texts["h3"][:3] == ["chr|1", region, "v"]
    drawings = page.text.split('class="track-box"')[1:]
    dots = [drawing.split("</svg>")[0].count("<use ") for drawing in drawings]
    assert dots[0] < 20 < dots[1] < 100
    assert "2 genes, among them: portal protein." in drawings[1]
    assert ["1 gene." in drawing for drawing in drawings] == [False, False, True]


@pytest.mark.parametrize(("chunks", "is_warned"), [(100, True), (50, False)])
def test_regions_come_first_where_a_sample_may_be_one_genome(tmp_path, chunks, is_warned):
    scores = [0.1] * (chunks - 4) + [0.9] * 4
    records = [Shown("chr", "nonvirus", scores, 0.6, [(chunks - 4, chunks - 1)])]
    records.append(Shown("plasmid", "virus", [0.9] * 9, 0.01))
    text = page_of(tmp_path, records).text
    assert (text.index("1 viral region with") < text.index("1 of 2 records")) is is_warned
    assert ("of one genome" in text) is is_warned


def test_long_ids_stay_different_and_whole_in_the_title(tmp_path):
    ids = [f"NODE_{n}_length_{'7' * 40}_cov_{n}.5" for n in (1, 2, 31)] + ["a" * 99, "a" * 98, "b"]
    page = page_of(tmp_path, [Shown(id, "virus", [0.9], 0.1) for id in ids])
    shown = re.findall(r'class="id"[^>]*>([^<]+)<', page.text)
    assert len(set(shown)) == len(ids)
    assert max(map(len, shown[:3])) == LONGEST_ID + 1
    assert set(page.values("title", "td")) == set(ids[:3])


@pytest.mark.parametrize(
    ("paired", "lengths", "tiles", "figures"),
    [
        (True, [300] * 20, 4, 1),
        (False, [150] * 19 + [120], 4, 1),
        (False, [150] * 10 + [900] * 10, 4, 2),
        (False, [150] * 10 + [2000] * 10, 5, 2),
    ],
)
def test_only_what_can_be_is_shown_and_pairs_are_called_so(
    tmp_path, paired, lengths, tiles, figures
):
    records = [
        Shown(f"r{n}", ("nonvirus", "virus")[n % 2], [0.9 - n % 2] * -(-each // 500), 0.2, [], each)
        for n, each in enumerate(lengths)
    ]
    source = {"path": "r1.fq", "sha256": "ab" * 32} | ({"interleaved": True} if paired else {})
    page = page_of(tmp_path, records, input=source)
    assert len(page.values("data-kind", "button")) == tiles
    drawn = page.text.split('<div class="figures">')[1].split("</section>")[0]
    assert drawn.count("<figure>") == figures
    nouns = {word.removesuffix("s") for word in re.findall(r"\b(?:pairs?|records?)\b", drawn)}
    assert nouns <= {"pair" if paired else "record"}


def test_nothing_is_loaded_and_only_the_own_script_may_run(page):
    assert not [*page.values("src"), *page.values("srcset"), *page.values("data")]
    policy = str(page.values("content")[0])
    assert policy.startswith("default-src 'none'")
    assert re.search(r"script-src 'sha256-[\w+/=]+'$", policy)
    names = {name for tag, attributes in page.elements for name in (f"<{tag}", *attributes)}
    assert not {name for name in names if name.startswith("on") or name == "<link"}


def test_every_figure_and_track_has_a_text_in_its_place(page):
    assert page.values("role", "svg") == ["img"] * (2 + 30)
    assert all(page.values("aria-label", "svg"))
    ids = page.values("id")
    assert len(set(ids)) == len(ids), "two elements have the same id"
    # numbers of axes are not cut off when coordinates are made shorter
    assert "0.5" in {word.strip() for word in page.texts["text"]}


def test_a_chunk_without_a_score_is_not_drawn_as_one(page):
    track = page.text.split('class="track-box"')[1].split("</svg>")[0]
    drawn = re.findall(r'<use [^>]*style="(?:fill|stroke): (#\w+)', track)
    numbers = [drawn.count(colour) for colour in ("#d9480f", "#3b8fd1", "#8a93a3")]
    assert numbers == [10, 22, 1]


@pytest.mark.parametrize(
    "name",
    [
        "</script><script>alert(1)</script>",
        '"><img/src=x/onerror=alert(1)>',
        "вирус" * 40,
        "x" * 5000,
        "<!--",
        "&lt;",
        "{{ 7 * 7 }}{% if",
    ],
)
def test_an_id_is_only_text(tmp_path, name):
    records = [Shown(name, "virus", [0.9] * 4, 0.1), Shown(f"{name}2", "nonvirus", [0.1] * 5, 0.5)]
    page = page_of(tmp_path, records)
    tags = [tag for tag, _ in page.elements]
    assert (tags.count("script"), tags.count("img")) == (1, 0)
    (shown, _), titles = (
        shortened_ids([name, f"{name}2"], LONGEST_ID).values(),
        page.values("title"),
    )
    assert (shown in page.texts["td"], shown in page.texts["h3"]) == (True, True)
    assert (name in titles) == (shown != name)


@pytest.mark.parametrize(
    ("record", "changes", "warned", "rates"),
    [
        (Shown("a", "virus", [0.9], 0.01, length=300), {}, False, True),
        (Shown("a", "virus", [0.9], None, length=300), {}, False, True),
        (Shown("a", "virus", [0.9], 0.3, length=300), {}, True, True),
        (Shown("a", "virus", [0.9] * 4), {"notice": "model type lite: small"}, True, True),
        (Shown("a", "virus", [0.9] * 4), {"models": {"classifier": UNCALIBRATED}}, True, False),
    ],
)
def test_warnings_are_there_where_something_is_wrong(tmp_path, record, changes, warned, rates):
    page = page_of(tmp_path, [record], **changes)
    assert ("warnings" in page.values("class"), 'id="fdr"' in page.text) == (warned, rates)


def test_the_thresholds_are_said_of_an_empty_run_too(tmp_path):
    analysis = {"model_type": "500", "chunk_length": 500}
    settings = {"analysis": analysis, "thresholds": {"min_score": 0.6}}
    page = page_of(tmp_path, [], settings=settings)
    assert "virus score above 0.6" in page.text
    assert page.values("id", "section") == SECTIONS


def test_a_large_run_has_a_small_page_with_room_for_every_call(tmp_path):
    records = [Shown(f"v{n}", "virus", [0.4], 0.1, [], 99 + n % 400) for n in range(6000)]
    records += [Shown(f"n{n}", "nonvirus", [0.1], 0.5, length=400 + n) for n in range(500)]
    scores = [(i * 7919) % 1000 / 1000 for i in range(9000)]
    records += [Shown(f"wide{n}", "virus", scores, 0.4) for n in range(7)]
    page = page_of(tmp_path, records)
    kinds = page.values("data-kind", "tr")
    assert (kinds.count("virus"), kinds.count("nonvirus")) == (4600, 400)
    assert "n499" in page.texts["td"], "the longest ones"
    assert len(page.text.encode()) < 5_000_000
    assert "<image " in page.text, "so many dots are an image"


@pytest.mark.parametrize("rows", [1, 7])
def test_what_is_shown_is_the_same_however_many_rows_are_read_at_a_time(
    tmp_path, monkeypatch, rows
):
    monkeypatch.setattr(content, "MOST_OTHER_ROWS", 3)
    records = mixed() + [
        Shown(f"n{n}", "nonvirus", [0.1] * 3, 0.5, length=1200 + n % 5) for n in range(20)
    ]
    write_run(tmp_path, records)
    whole = read_content(open_run(tmp_path))
    names = ["host", "other_4", "other_9", "silent", "unsure"]
    assert sorted(row.record for row in whole.others) == names
    monkeypatch.setattr(columns, "ROWS_AT_A_TIME", rows)
    parts = read_content(open_run(tmp_path))
    assert (parts.counts, parts.tracked, parts.others) == (
        whole.counts,
        whole.tracked,
        whole.others,
    )
    assert parts.numbers.tobytes() == whole.numbers.tobytes()


def test_a_damaged_file_is_an_error_of_the_input(tmp_path):
    write_run(tmp_path, mixed(), settings={"analysis": []})
    with pytest.raises(InputError, match=r"were changed"):
        report_page(open_run(tmp_path))
    write_run(tmp_path, [Shown("a", "vrius", [0.9])])
    with pytest.raises(InputError, match=r"were changed"):
        report_page(open_run(tmp_path))
    for name, text in (("s_chunks.tsv", "{:.1000}"), ("s_contigs.tsv", "records\n")):
        write_run(tmp_path, mixed())
        (tmp_path / name).write_text(text.format((tmp_path / name).read_text()))
        with pytest.raises(InputError, match=name):
            report_page(open_run(tmp_path))

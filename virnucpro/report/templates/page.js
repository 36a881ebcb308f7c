"use strict";
// The report is complete without this script. It adds: filters, sorting, copying and downloading
// of the table, and downloading of the tracks.

const FIRST_ROWS = 200; // shown at once; a button shows all others
const byId = (id) => document.getElementById(id);
const number = (text) => parseFloat(text.replace("−", "-").replaceAll(",", ""));

function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function copy(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // The browser does not allow it for this page: try the older way.
    }
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

function table() {
  const body = document.querySelector("#rows tbody");
  const heads = [...document.querySelectorAll("#rows thead th")];
  const names = heads.map((head) => head.dataset.name);
  const rows = [...body.rows].map((row) => {
    const cells = [...row.cells].map((cell) => cell.title || cell.textContent);
    const named = Object.fromEntries(names.map((name, place) => [name, cells[place]]));
    return { row, cells, named, kind: row.dataset.kind, text: cells[0].toLowerCase(),
      length: number(named.length), score: number(named.score), fdr: number(named.fdr ?? "") };
  });
  const tiles = [...document.querySelectorAll(".tile")];
  const found = rows.some((row) => row.kind === "virus" || row.kind === "region");
  const longest = rows.reduce((most, row) => Math.max(most, row.length), 1);
  let kind = null;
  let all = false;
  let shown = rows;

  const least = () => Math.round(longest ** (byId("length").value / 100));
  const wanted = (row) => {
    if (kind ? row.kind !== kind : found && row.kind !== "virus" && row.kind !== "region") return false;
    if (["tier", "virus_kind"].some((name) => byId(name)?.value && row.named[name] !== byId(name).value)) return false;
    if (byId("hallmarks")?.checked && !(number(row.named.hallmarks) > 0)) return false;
    if (byId("search").value && !row.text.includes(byId("search").value.toLowerCase())) return false;
    if (Number(byId("score").value) > -1 && !(row.score >= Number(byId("score").value))) return false;
    if (byId("fdr") && Number(byId("fdr").value) < 1 && !(row.fdr <= Number(byId("fdr").value))) return false;
    return Number(byId("length").value) === 0 || row.length >= least();
  };

  function show() {
    byId("score-value").textContent = Number(byId("score").value).toFixed(2);
    if (byId("fdr")) byId("fdr-value").textContent = Number(byId("fdr").value).toFixed(3);
    byId("length-value").textContent = Number(byId("length").value) ? least().toLocaleString("en") : "any";
    shown = rows.filter(wanted);
    const drawn = all ? shown : shown.slice(0, FIRST_ROWS);
    body.replaceChildren(...drawn.map((row) => row.row));
    const more = drawn.length < shown.length ? `, of which the first ${drawn.length} are shown` : "";
    const tile = tiles.find((each) => each.dataset.kind === kind);
    const here = rows.filter((row) => row.kind === kind).length;
    const left = tile && here < Number(tile.dataset.total)
      ? `. This page has ${here.toLocaleString("en")} of ${Number(tile.dataset.total).toLocaleString("en")}; the files have all` : "";
    byId("count").textContent = `Matching rows: ${shown.length.toLocaleString("en")}${more}${left}.`;
    byId("all").hidden = drawn.length === shown.length;
    tiles.forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.kind === kind)));
  }

  function sort(place) {
    const numeric = heads[place].classList.contains("n") || ["hallmarks", "host_markers"].includes(names[place]);
    const before = heads[place].getAttribute("aria-sort");
    const down = before === "none" ? numeric : before === "ascending";
    heads.forEach((head) => head.setAttribute("aria-sort", "none"));
    heads[place].setAttribute("aria-sort", down ? "descending" : "ascending");
    const sign = down ? -1 : 1;
    rows.sort((a, b) => {
      const [x, y] = [a.cells[place], b.cells[place]];
      if (!numeric) return sign * x.localeCompare(y, "en", { numeric: true });
      const [p, q] = [number(x), number(y)];
      if (Number.isNaN(p) || Number.isNaN(q)) return Number.isNaN(p) - Number.isNaN(q);
      return sign * (p - q);
    });
    show();
  }

  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(place));
    head.replaceChildren(button);
  });
  tiles.forEach((tile) => tile.addEventListener("click", () => {
    kind = kind === tile.dataset.kind ? null : tile.dataset.kind;
    all = false;
    show();
  }));
  ["search", "score", "fdr", "length", "tier", "virus_kind", "hallmarks"].forEach((id) => byId(id)?.addEventListener("input", show));
  document.querySelectorAll("[data-record]").forEach((link) => link.addEventListener("click", () => {
    kind = "region";
    byId("search").value = link.dataset.record;
    show();
  }));
  byId("all").addEventListener("click", () => { all = true; show(); });
  byId("copy").addEventListener("click", async () => {
    const done = await copy(shown.map((row) => row.cells[0]).join("\n") + "\n");
    byId("count").textContent = done ? `Copied ids: ${shown.length.toLocaleString("en")}.` : "The browser does not allow copying.";
  });
  byId("download").addEventListener("click", () => {
    const lines = [heads.map((head) => head.textContent), ...shown.map((row) => row.cells)];
    const text = lines.map((cells) => cells.join("\t")).join("\n") + "\n";
    save(byId("download").dataset.name, "text/tab-separated-values", text);
  });
  byId("controls").hidden = false;
  show();
}

function tracks() {
  document.querySelectorAll(".track-box").forEach((box) => {
    const download = box.querySelector("button");
    download.hidden = false;
    download.addEventListener("click", () => {
      const text = new XMLSerializer().serializeToString(box.querySelector("svg"));
      save(download.dataset.name, "image/svg+xml", text);
    });
  });
}

document.documentElement.classList.add("script");
table();
tracks();

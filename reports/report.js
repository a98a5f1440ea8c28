"use strict";
// The report's behaviour: sorting, filtering, opening kernels, unpacking what is packed. Reads only this page.
(() => {
  const root = document.documentElement;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const PAGE = 60; // rows drawn at once
  const TEXTS = { name: ".c-name bdi", n: ".c-name .n", time: ".t", share: ".s", sign: ".c-verdict .sign", title: ".v", word: ".w", win: ".g", range: ".r", why: ".c-why" };
  const WORDS = { accepted: "accepted", lapsed: "no longer accepted" };
  const REPORT = root.dataset.report;
  root.classList.add("js");

  /** Unpacks an element that holds base64 of raw deflate; stops at the size that the element declares. */
  async function unpack(element) {
    const limit = Number(element.dataset.size);
    const packed = element.textContent.trim();
    const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(packed) : Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    const decoder = new TextDecoder();
    let text = "";
    let size = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.length;
      if (size > limit) throw new Error("more data than declared");
      text += decoder.decode(value, { stream: true });
    }
    if (size !== limit) throw new Error("less data than declared");
    return text + decoder.decode();
  }

  /** Resolves when the whole file is parsed: chunks stand after this script. */
  const parsed = new Promise((resolve) => {
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => resolve());
    else resolve();
  });
  async function chunk(id) {
    const early = document.getElementById(id);
    if (early && early.nextSibling) return early; // closed, so complete
    await parsed;
    return document.getElementById(id);
  }

  // ---- the table ----
  const body = $("#rows");
  const total = body ? Number($(".ktable").getAttribute("aria-rowcount")) - 1 : 0;
  const single = total === 1;
  const state = { q: "", klass: "", sort: "time", down: true, accepted: false };
  /** @type {{id:string,name:string,klass:string,title:string,time:number,win:number,state:string,row:HTMLElement|null,at:number}[]} */
  let rows = [];
  let columns = null;
  let order = [];
  let drawn = 0;
  const pattern = body && body.firstElementChild;

  if (body) {
    rows = [...body.children].map((row) => ({
      id: row.dataset.id, name: $(TEXTS.name, row).textContent, klass: row.dataset.class, title: $(TEXTS.title, row).textContent,
      time: Number(row.dataset.time), win: Number(row.dataset.win), state: row.dataset.state, row, at: 0,
    }));
    rows.forEach((item, at) => { item.at = at; });
    order = rows;
    drawn = rows.length;
  }

  /** The value of a column in a row: values stand in a list, or once each (`d`) with the rows' places among them (`i`). */
  const of = (key, at) => (Array.isArray(columns[key]) ? columns[key][at] : columns[key].d[columns[key].i[at]]);
  /** What a filter's words are looked for in; made when asked for, as 10,000 of them are some megabytes. */
  function searched(item) {
    const { full, tags } = columns ? { full: of("full", item.at), tags: of("tags", item.at) } : item.row.dataset;
    return `${item.name}\n${full}\n${tags}\n${item.title}`.toLowerCase();
  }

  function rowOf(item) {
    if (item.row) return item.row;
    const row = pattern.cloneNode(true);
    for (const [key, selector] of Object.entries(TEXTS)) $(selector, row).textContent = of(key, item.at);
    row.dataset.id = item.id;
    row.dataset.class = item.klass;
    row.dataset.time = item.time;
    row.dataset.win = item.win;
    row.dataset.full = of("full", item.at);
    row.dataset.tags = of("tags", item.at);
    row.dataset.state = item.state;
    $(".st", row).textContent = WORDS[item.state] || "";
    $("a", row).setAttribute("href", "#k=" + item.id);
    $(".c-verdict .sign", row).setAttribute("class", "sign c-" + item.klass);
    $(".m", row).setAttribute("class", "m c-" + item.klass);
    $(".m", row).setAttribute("width", of("width", item.at));
    item.row = row;
    return row;
  }

  function draw(more) {
    const from = more ? drawn : 0;
    const upto = Math.min(order.length, from + PAGE);
    const part = [];
    for (let i = from; i < upto; i++) {
      const row = rowOf(order[i]);
      row.setAttribute("aria-rowindex", i + 2);
      part.push(row);
    }
    if (more) body.append(...part);
    else body.replaceChildren(...part);
    drawn = upto;
  }

  function fits(item, words) {
    if (!words.length) return true;
    const text = searched(item);
    return words.every((word) => text.includes(word));
  }
  function arrange() {
    if (!body) return;
    const wanted = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const folds = !state.accepted && !wanted.includes("accepted");
    const folded = rows.filter((item) => item.state === "accepted").length;
    order = rows.filter((item) => !(folds && item.state === "accepted") && (!state.klass || item.klass === state.klass) && fits(item, wanted));
    const sign = state.down ? -1 : 1;
    const by = {
      time: (a, b) => a.time - b.time, win: (a, b) => a.win - b.win,
      name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0), verdict: (a, b) => (a.title < b.title ? -1 : a.title > b.title ? 1 : 0),
    }[state.sort];
    order.sort((a, b) => sign * by(a, b) || a.at - b.at);
    draw(false);
    const all = total;
    const shown = rows.length < total && !wanted.length && !state.klass ? total : order.length; // the index is on its way
    const what = all === 1 ? "kernel" : "kernels";
    $("#count").textContent = shown === all ? `${all.toLocaleString("en")} ${what}` : `${shown.toLocaleString("en")} of ${all.toLocaleString("en")} ${what}`;
    const fold = $("#showaccepted");
    fold.hidden = !folded;
    fold.textContent = `${state.accepted ? "Hide" : "Show"} ${folded} accepted`;
    fold.setAttribute("aria-pressed", String(state.accepted));
    $("#none").hidden = order.length > 0;
    $(".ktable").setAttribute("aria-rowcount", shown + 1);
    for (const head of $$(".ktable [data-sort]")) {
      if (head.dataset.sort === state.sort) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    for (const chip of $$(".chip")) chip.setAttribute("aria-pressed", String(chip.dataset.class === state.klass));
  }

  /** The filter and the order as a hash, empty when both are the default. */
  function listHash() {
    const parts = new URLSearchParams();
    if (state.q) parts.set("q", state.q);
    if (state.klass) parts.set("class", state.klass);
    if (state.sort !== "time" || !state.down) parts.set("sort", (state.down ? "-" : "") + state.sort);
    if (state.accepted) parts.set("accepted", "1");
    return String(parts);
  }
  function keep() {
    arrange();
    history.replaceState(null, "", "#" + listHash());
  }

  async function loadIndex() {
    if (!body || total === rows.length) return;
    const element = await chunk("ix");
    columns = JSON.parse(await unpack(element));
    const front = rows;
    rows = columns.id.map((id, at) => ({
      id, name: of("name", at), klass: of("klass", at), title: of("title", at), time: of("by_time", at), win: of("by_win", at),
      state: of("state", at), row: at < front.length ? front[at].row : null, at,
    }));
    arrange();
  }

  // ---- one kernel ----
  let opener = null;
  function partOf(id) {
    return $$("#parts > .kernel").find((part) => part.dataset.id === id) || null;
  }
  async function bring(id) {
    const there = partOf(id);
    if (there && !there.classList.contains("brief")) return there;
    const packed = await chunk("k-" + id);
    if (!packed) throw new Error("this report has no such kernel");
    const part = document.createElement("details");
    part.className = "kernel";
    part.dataset.id = id;
    const article = document.createElement("article");
    article.className = "body";
    article.id = "k=" + id;
    article.innerHTML = await unpack(packed); // written by our template, escaped there; the policy lets no script in it run
    part.append(document.createElement("summary"), article);
    const again = partOf(id);
    if (again && again !== there) return again;
    if (there) there.replaceWith(part);
    else $("#parts").append(part);
    return part;
  }

  function view(name) {
    root.dataset.view = name;
  }
  function mark(element) {
    for (const old of $$(".target")) old.classList.remove("target");
    if (!element) return;
    for (let up = element; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    element.classList.add("target");
    element.scrollIntoView({ block: element.offsetHeight > innerHeight * 0.7 ? "start" : "center" });
  }

  // ---- links ----
  let aliases = null;
  /** The id of the row that holds a launch; of a link from another report the kernel with the likest name. */
  async function known(id, foreign, name) {
    if (partOf(id) || document.getElementById("k-" + id)) return id;
    await parsed;
    if (document.getElementById("k-" + id)) return id;
    const element = document.getElementById("al");
    if (element && !aliases) aliases = JSON.parse(await unpack(element));
    if (aliases && Object.hasOwn(aliases, id)) return aliases[id];
    if (!foreign || !name) return id;
    await loaded;
    const parts = name.toLowerCase().split(/[^a-z0-9]+/).filter(Boolean);
    let best = null;
    let most = 0;
    for (const item of rows) {
      const here = item.name.toLowerCase();
      const score = here === name.toLowerCase() ? 1e6 : parts.reduce((sum, part) => sum + (here.includes(part) ? part.length : 0), 0);
      if (score > most) { most = score; best = item; }
    }
    if (!best) return id;
    $("#foreign").textContent = `This link was made in another report, on ${name.slice(0, 80)}. The nearest kernel here is ${best.name}.`;
    return best.id;
  }
  /** A link that says which report it was made in. */
  function linkTo(more) {
    const parts = new URLSearchParams(location.hash.slice(1));
    for (const [key, value] of Object.entries(more || {})) parts.set(key, value);
    const item = rows.find((row) => row.id === parts.get("k"));
    if (item) parts.set("n", item.name);
    parts.set("r", REPORT);
    return location.href.split("#")[0] + "#" + parts;
  }

  // ---- the code: source and SASS side by side ----
  const COLD = 8; // instructions without samples in a row, from which they are folded
  const heat = (value, full) => (value && full ? "h" + Math.min(9, Math.floor((value / full) * 9.999)) : "h0");
  function cell(row, text, kind) {
    const one = document.createElement("td");
    one.textContent = text;
    if (kind) one.className = kind;
    row.append(one);
    return one;
  }
  function grid(label, heads) {
    const box = document.createElement("div");
    box.className = "scroll pane";
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", label);
    const table = document.createElement("table");
    table.className = "plain";
    const head = table.createTHead().insertRow();
    for (const text of heads) {
      const one = document.createElement("th");
      one.scope = "col";
      one.textContent = text;
      head.append(one);
    }
    const rows_ = table.createTBody();
    box.append(table);
    return [box, rows_];
  }
  const shown = new WeakMap();
  async function showCode(section) {
    if (shown.has(section)) return shown.get(section);
    const making = makeCode(section);
    shown.set(section, making);
    return making;
  }
  async function makeCode(section) {
    const id = section.closest(".kernel").dataset.id;
    const code = JSON.parse(await unpack(await chunk(section.dataset.code)));
    let address = 0;
    code.lines = code.text.map((text, at) => ["0x" + (address += code.pc[at]).toString(16), text, code.file[at], code.line[at]]);
    const counts = JSON.parse(await unpack(await chunk("h-" + id)));
    const pins = new Map();
    for (const [pc, rule, role] of JSON.parse(section.dataset.pins)) pins.set(pc, [...(pins.get(pc) || []), `${role}: ${rule}`]);
    const total = counts.samples.reduce((sum, n) => sum + (n || 0), 0);
    const most = Math.max(...counts.samples.map((n) => n || 0));
    /** A share of the samples as the page's other shares: see `percent` in diagnose/render/format.py. */
    const percent = (n) => {
      if (!n || !total) return "";
      const size = (100 * n) / total;
      return size < 0.05 ? "<0.1 %" : size.toFixed(size < 9.95 || (size >= 99.05 && size < 99.95) ? 1 : 0) + " %";
    };
    const bySource = new Map(); // file -> line -> {samples, at: positions}
    code.lines.forEach(([, , file, line], at) => {
      if (file === null || line === null) return;
      const lines = bySource.get(file) || bySource.set(file, new Map()).get(file);
      const here = lines.get(line) || lines.set(line, { samples: 0, at: [] }).get(line);
      here.samples += counts.samples[at] || 0;
      here.at.push(at);
    });

    const loop = (section.dataset.loop || "").split(" ").map(Number); // the main loop's first and last address
    // right: the instructions; runs of cold ones are folded into one row
    const [right, into] = grid("Machine code", ["Samples", "Address", "Waits for", "Executed", "SASS"]);
    const drawn_ = new Map();
    function line(at) {
      const [pc, text, file, number] = code.lines[at];
      const row = document.createElement("tr");
      row.dataset.at = at;
      row.dataset.pc = pc;
      if (file !== null && number !== null) row.dataset.src = `${file}:${number}`;
      if (Number(pc) >= loop[0] && Number(pc) <= loop[1]) row.className = "inloop";
      cell(row, percent(counts.samples[at]), "num heat " + heat(counts.samples[at], most));
      const link = document.createElement("a");
      link.href = `#k=${id}&sass=${pc}`;
      link.textContent = pc;
      cell(row, "").append(link);
      const stall = counts.stall[at];
      cell(row, stall === null ? "" : counts.reasons[stall]);
      cell(row, counts.executed[at] === null ? "not measured" : counts.executed[at].toLocaleString("en"), "num");
      const words = cell(row, "", "nowrap mono");
      for (const pin of pins.get(pc) || []) {
        const tag = document.createElement("span");
        tag.className = "tag pin";
        tag.textContent = pin;
        words.append(tag, " ");
      }
      words.append(text);
      drawn_.set(at, row);
      return row;
    }
    const folds = [];
    for (let at = 0; at < code.lines.length;) {
      let end = at;
      while (end < code.lines.length && !counts.samples[end] && !pins.has(code.lines[end][0])) end++;
      if (total && end - at >= COLD) {
        const from = at;
        const upto = end;
        const row = document.createElement("tr");
        const button = document.createElement("button");
        button.type = "button";
        button.className = "quiet";
        button.textContent = `${upto - from} cold instructions`;
        const one = cell(row, "");
        one.colSpan = 5;
        one.append(button);
        const open = () => {
          const lines = [];
          for (let n = from; n < upto; n++) lines.push(line(n));
          row.replaceWith(...lines);
        };
        button.addEventListener("click", open);
        folds.push({ from, upto, open });
        into.append(row);
        at = end;
      } else {
        into.append(line(at));
        at++;
      }
    }
    const rowAt = (at) => {
      if (!drawn_.has(at)) folds.find((fold) => at >= fold.from && at < fold.upto).open();
      return drawn_.get(at);
    };

    // left: the source, the file with the most samples first
    const samplesOf = (file) => [...(bySource.get(file) || new Map()).values()].reduce((sum, here) => sum + here.samples, 0);
    const files = code.files.map((_, at) => at).sort((a, b) => samplesOf(b) - samplesOf(a) || a - b);
    const [left, lines] = grid("Source", ["Samples", "Line", "Source"]);
    const choose = document.createElement("select");
    choose.setAttribute("aria-label", "Source file");
    for (const file of files) choose.append(new Option(`${code.files[file].file} (${percent(samplesOf(file)) || "no samples"})`, file));
    const note = document.createElement("p");
    note.className = "sub";
    function drawSource(file) {
      const counted = bySource.get(file) || new Map();
      const parts = code.files[file].parts; // [number of the first line, text] each; null where the report holds no text
      const full = Math.max(1, ...[...counted.values()].map((here) => here.samples));
      const source = new Map();
      for (const [first, text] of parts || []) text.split("\n").forEach((line, at) => source.set(first + at, line));
      const numbers = parts ? [...source.keys()] : [...counted.keys()].sort((a, b) => a - b);
      note.textContent = !parts ? "The report holds no text of this file: ncu keeps it where it is told to import source."
        : code.files[file].cut ? "Of this long file the lines near code are here." : "";
      lines.replaceChildren(...numbers.map((number) => {
        const here = counted.get(number);
        const row = document.createElement("tr");
        row.dataset.line = number;
        if (here) row.className = "has";
        cell(row, here && total ? percent(here.samples) : "", "num heat " + (here ? heat(here.samples, full) : "h0"));
        const first = cell(row, "", "num");
        if (here) {
          const link = document.createElement("a");
          link.href = `#k=${id}&src=${encodeURIComponent(code.files[file].file.split(/[\\/]/).pop())}:${number}`;
          link.textContent = number;
          first.append(link);
        } else first.textContent = number;
        cell(row, parts ? visible(source.get(number).slice(0, 400)) : "", "mono pre");
        if (parts && number > 1 && !source.has(number - 1)) row.className += " cut";
        return row;
      }));
      choose.value = file;
    }
    function light(file, number) {
      for (const old of $$(".lit", section)) old.classList.remove("lit");
      const here = (bySource.get(file) || new Map()).get(number);
      if (!here) return null;
      const hottest = here.at.reduce((a, b) => ((counts.samples[b] || 0) > (counts.samples[a] || 0) ? b : a));
      for (const at of here.at) if (drawn_.has(at)) drawn_.get(at).classList.add("lit");
      rowAt(hottest).classList.add("lit");
      if (Number(choose.value) !== file) drawSource(file);
      const row = $(`tr[data-line="${number}"]`, lines);
      if (row) row.classList.add("lit");
      return { row, sass: rowAt(hottest) };
    }
    const within = (box, row) => { if (row) box.scrollTop = row.offsetTop - box.clientHeight / 3; };
    lines.addEventListener("click", (event) => {
      const row = event.target.closest("tr.has");
      if (!row || event.target.closest("a")) return;
      const found = light(Number(choose.value), Number(row.dataset.line));
      if (found) within(right, found.sass);
    });
    into.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-src]");
      if (!row || event.target.closest("a, button")) return;
      const [file, number] = row.dataset.src.split(":").map(Number);
      const found = light(file, number);
      if (found) within(left, found.row);
    });
    choose.addEventListener("change", () => drawSource(Number(choose.value)));
    const panes = document.createElement("div");
    panes.className = files.length ? "panes" : "panes one";
    if (files.length) {
      const side = document.createElement("div");
      side.append(choose, note, left);
      panes.append(side);
      drawSource(files[0]);
    }
    panes.append(right);
    $(".showcode", section).hidden = true;
    section.append(panes);

    // n and p: the places with a third of the hottest one's samples, and those that findings point at
    const places = code.lines.map((_, at) => at).filter((at) => pins.has(code.lines[at][0]) || (most && (counts.samples[at] || 0) >= most / 3));
    let present = -1;
    function go(at) {
      const row = rowAt(at);
      const source = row.dataset.src ? row.dataset.src.split(":").map(Number) : null;
      const found = source ? light(source[0], source[1]) : null;
      for (const old of $$("tr.target", section)) old.classList.remove("target");
      row.classList.add("target");
      within(right, row);
      if (found) within(left, found.row);
      return row;
    }
    return {
      /** Shows the hottest place, or where a finding points, without moving the page. */
      first() {
        if (places.length) go(most ? places.reduce((a, b) => ((counts.samples[b] || 0) > (counts.samples[a] || 0) ? b : a)) : places[0]);
      },
      step(by) {
        if (!places.length) return;
        present = (present + by + places.length) % places.length;
        const row = go(places[present]);
        $("a", row).focus({ preventScroll: true });
        section.scrollIntoView({ block: "nearest" });
      },
      reveal(pc, src) {
        if (pc) {
          const at = code.lines.findIndex((one) => one[0] === pc);
          return at < 0 ? null : go(at);
        }
        const cut = src.lastIndexOf(":");
        const file = code.files.findIndex((one) => one.file.split(/[\\/]/).pop() === src.slice(0, cut).split(/[\\/]/).pop());
        const found = file < 0 ? null : light(file, Number(src.slice(cut + 1)));
        if (found) within(right, found.sass);
        return found ? found.row || found.sass : null;
      },
    };
  }
  /** Invisible and direction-changing characters written out, as the page's templates do. */
  function visible(text) {
    return text.replace(/[\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]|(?!\t)\p{Cc}/gu, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
  }

  // ---- marks: what a reviewer says of findings, kept in this browser under the report's hash ----
  const STORE = "diagnose-marks-" + REPORT;
  let marks = {};
  try { marks = JSON.parse(localStorage.getItem(STORE)) || {}; } catch { /* no storage here: marks last as long as the page */ }
  function keepMarks() {
    try { localStorage.setItem(STORE, JSON.stringify(marks)); } catch { /* as above */ }
    refreshMarks(document);
  }
  function refreshMarks(within) {
    $("#marked").textContent = Object.keys(marks).length;
    for (const button of $$(".finding .mark", within)) {
      const kernel = button.closest(".kernel");
      const found = kernel && marks[kernel.dataset.id + " " + button.closest(".finding").dataset.rule];
      button.textContent = found ? `Marked: ${found.kind}` : "Mark";
      button.setAttribute("aria-pressed", String(Boolean(found)));
    }
  }
  let marking = null;
  function openMark(finding) {
    const kernel = finding.closest(".kernel");
    const rule = finding.dataset.rule;
    const name = $("h2 bdi", kernel).textContent;
    marking = { key: kernel.dataset.id + " " + rule, id: kernel.dataset.id, rule, name, at: JSON.parse(finding.dataset.at), button: $(".mark", finding) };
    const old = marks[marking.key] || {};
    const later = new Date(Date.now() + 90 * 86400000);
    $("#markwhat").textContent = `${rule} on ${name}`;
    $("#markkind").value = old.kind || "accept";
    $("#markreason").value = old.reason || "";
    $("#markowner").value = old.owner || "";
    $("#markexpires").value = old.expires || later.toISOString().slice(0, 10);
    $("#markremove").hidden = !marks[marking.key];
    $("#markbox").showModal();
    $("#markreason").focus();
  }
  /** A TOML basic string: as JSON writes it, but DEL and what JSON leaves as it is. */
  const toml = (text) => JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029\p{Cf}]/gu, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0").slice(-4));
  /** A name as a pattern that is only itself; one that was shortened keeps its two ends. */
  const pattern_ = (name) => name.replace(/[[*?]/g, "[$&]").replaceAll("…", "*");
  function exported() {
    return Object.values(marks).map((one) => {
      const at = Object.entries(one.at).map(([key, value]) => `${key} = ${typeof value === "string" ? toml(value) : value}`).join(", ");
      const lines = ["[[accept]] # exported by the report", `finding = ${toml(one.rule)}`, `kernel = ${toml(pattern_(one.name))}`];
      if (at) lines.push(`at = { ${at} }`);
      lines.push(`reason = ${toml(one.reason || "not stated")}`, `owner = ${toml(one.owner || "not stated")}`, `expires = ${one.expires}`);
      if (one.kind === "accept") return lines.join("\n");
      return [`# ${one.kind}: not an accepted finding; remove the signs to accept it`, ...lines.map((line) => "# " + line)].join("\n");
    }).join("\n\n") + "\n";
  }
  function drawExport() {
    const asJson = $("#exportjson").getAttribute("aria-pressed") === "true";
    $("#exporttext").value = asJson ? JSON.stringify(Object.values(marks), null, 1) : Object.keys(marks).length ? exported() : "# no finding is marked: press m in a kernel\n";
  }
  $("#marksave").addEventListener("click", () => {
    const { key, id, rule, name, at } = marking;
    marks[key] = { kind: $("#markkind").value, id, rule, name, at, reason: $("#markreason").value, owner: $("#markowner").value, expires: $("#markexpires").value };
    keepMarks();
    $("#markbox").close();
  });
  $("#markremove").addEventListener("click", () => { delete marks[marking.key]; keepMarks(); $("#markbox").close(); });
  $("#markbox").addEventListener("close", () => { if (marking && marking.button.isConnected) marking.button.focus(); });
  $("#marks").addEventListener("click", () => { drawExport(); $("#exportbox").showModal(); });
  $("#exportjson").addEventListener("click", () => {
    const button = $("#exportjson");
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    drawExport();
  });
  $("#exportcopy").addEventListener("click", () => copy($("#exporttext").value, $("#exportcopy"), "Copy"));
  for (const button of $$("dialog .close")) button.addEventListener("click", () => button.closest("dialog").close());
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest(".mark, .showcode");
    if (!button) return;
    if (button.classList.contains("mark")) openMark(button.closest(".finding"));
    else showCode(button.closest(".codeview")).then((code) => code.first()).catch((error) => { button.textContent = `The code cannot be unpacked: ${error.message}.`; });
  });
  async function copy(text, button, label) {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed here: copy it by hand";
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  }

  let turn = 0;
  async function route() {
    const mine = ++turn;
    const wanted = new URLSearchParams(location.hash.slice(1));
    let id = wanted.get("k");
    const foreign = wanted.has("r") && wanted.get("r") !== REPORT;
    $("#trouble").hidden = true;
    $("#foreign").hidden = !foreign;
    if (foreign) $("#foreign").textContent = "This link was made in another report; numbers may differ here.";
    if (id) {
      let part = null;
      let trouble = "";
      try {
        id = await known(id, foreign, wanted.get("n"));
        if (mine !== turn) return;
        part = await bring(id);
      } catch (error) { trouble = error.message; }
      if (mine !== turn) return;
      for (const old of $$("#parts > .active")) old.classList.remove("active");
      view("kernel");
      if (!part) {
        $("#trouble").textContent = `Kernel ${id.slice(0, 40)} cannot be shown: ${trouble}. The rest of the report works.`;
        $("#trouble").hidden = false;
        $("#back").focus();
        return;
      }
      part.open = true;
      part.classList.add("active");
      refreshMarks(part);
      let target = null;
      if (wanted.has("f")) target = document.getElementById(`k=${id}&f=${wanted.get("f")}`);
      if (wanted.has("sass") || wanted.has("src")) {
        target = document.getElementById(`k=${id}&sass=${wanted.get("sass")}`);
        const section = $(".codeview", part);
        if (section) {
          try {
            const code = await showCode(section);
            if (mine !== turn) return;
            target = code.reveal(wanted.get("sass"), wanted.get("src")) || target;
          } catch (error) {
            $(".showcode", section).textContent = `The code cannot be unpacked: ${error.message}.`;
          }
        }
      }
      mark(target);
      if (!target) {
        scrollTo(0, 0);
        $("h2", part).focus({ preventScroll: true });
      }
      return;
    }
    view(single ? "both" : "list");
    if (single) {
      const only = $("#parts > .kernel");
      only.open = true;
      only.classList.add("active");
    }
    state.q = wanted.get("q") || "";
    state.klass = wanted.get("class") || "";
    state.accepted = wanted.get("accepted") === "1";
    const sort = wanted.get("sort") || "-time";
    state.down = sort.startsWith("-");
    state.sort = ["time", "name", "verdict", "win"].includes(sort.replace(/^-/, "")) ? sort.replace(/^-/, "") : "time";
    if ($("#q")) $("#q").value = state.q;
    arrange();
    if (opener) {
      const item = rows.find((row) => row.id === opener);
      const at = item ? order.indexOf(item) : -1;
      while (at >= drawn) draw(true);
      if (at >= 0) $("a", item.row).focus();
      opener = null;
    }
  }
  function current() {
    return new URLSearchParams(location.hash.slice(1)).get("k");
  }
  function back() {
    opener = current();
    location.hash = listHash();
  }
  function step(by) {
    const at = order.findIndex((item) => item.id === current());
    const next = order[at + by];
    if (at >= 0 && next) location.replace("#k=" + next.id);
  }

  // ---- events ----
  for (const head of $$(".ktable [data-sort]")) {
    $("button", head).addEventListener("click", () => {
      const sort = head.dataset.sort;
      state.down = state.sort === sort ? !state.down : sort === "time" || sort === "win";
      state.sort = sort;
      keep();
    });
  }
  for (const chip of $$(".chip")) {
    chip.addEventListener("click", () => {
      state.klass = state.klass === chip.dataset.class ? "" : chip.dataset.class;
      keep();
    });
  }
  if ($("#q")) $("#q").addEventListener("input", () => { state.q = $("#q").value; keep(); });
  $("#showaccepted").addEventListener("click", () => { state.accepted = !state.accepted; keep(); });
  if ($("#clear")) {
    $("#clear").addEventListener("click", () => {
      state.q = state.klass = $("#q").value = "";
      keep();
      $("#q").focus();
    });
  }
  if (body) {
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (!row || event.target.closest("a") || String(getSelection())) return;
      location.hash = "k=" + row.dataset.id;
    });
    addEventListener("scroll", () => {
      if (root.dataset.view !== "kernel" && drawn < order.length && innerHeight + scrollY > document.body.scrollHeight - 900) draw(true);
    }, { passive: true });
  }
  $("#back").addEventListener("click", (event) => { event.preventDefault(); back(); });
  $("#prev").addEventListener("click", () => step(-1));
  $("#next").addEventListener("click", () => step(1));
  $("#copy").addEventListener("click", () => {
    history.replaceState(null, "", linkTo());
    copy(location.href, $("#copy"), "Copy link");
  });
  $("#theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
    const field = event.target.closest && event.target.closest("input, textarea, select");
    const inKernel = root.dataset.view === "kernel";
    if (event.key === "Escape") {
      if (field && field.value) {
        field.value = "";
        field.dispatchEvent(new Event("input", { bubbles: true }));
      } else if (field) field.blur();
      else if (inKernel) back();
      else if (state.q || state.klass) { state.q = state.klass = $("#q").value = ""; keep(); }
      return;
    }
    if (field) {
      if (event.key === "Enter" && field.id === "q" && order.length) location.hash = "k=" + order[0].id;
      return;
    }
    const active = inKernel || single ? $("#parts > .active") : null;
    if (active && event.key === "m") {
      const finding = (document.activeElement && document.activeElement.closest(".finding")) || $(".finding.target", active) || $(".finding", active);
      if (finding) { event.preventDefault(); openMark(finding); }
    } else if (active && event.key === "y") $("#copy").click();
    else if (active && (event.key === "n" || event.key === "p")) {
      const section = $(".codeview", active);
      if (section) showCode(section).then((code) => code.step(event.key === "n" ? 1 : -1), () => {});
    } else if (event.key === "/") {
      event.preventDefault();
      if (inKernel) back();
      if (inKernel) setTimeout(() => $("#q") && $("#q").focus(), 60); // the list comes back first
      else if ($("#q")) $("#q").focus();
    } else if (event.key === "j" || event.key === "k") {
      const by = event.key === "j" ? 1 : -1;
      if (inKernel) { step(by); return; }
      if (!body) return;
      const here = document.activeElement && document.activeElement.closest("tr.row");
      const at = here ? order.findIndex((item) => item.row === here) : -1;
      const next = Math.max(0, Math.min(order.length - 1, at + by));
      while (next >= drawn) draw(true);
      if (order[next]) $("a", order[next].row).focus();
    }
  });

  // Raw metrics: unpacked when first opened, filtered as one types.
  let names = null;
  async function fillRaw(part) {
    const id = part.dataset.chunk;
    if (!id) return;
    delete part.dataset.chunk;
    const into = $("tbody", part);
    try {
      const element = await chunk(id);
      names = names || JSON.parse(await unpack(await chunk("mn")));
      const values = JSON.parse(await unpack(element)).map((shown, at) => [names[at], shown]).filter(([, shown]) => shown !== null);
      const lines = values.map(([name, shown]) => {
        const row = document.createElement("tr");
        const first = document.createElement("td");
        const code = document.createElement("code");
        const second = document.createElement("td");
        code.textContent = name;
        second.textContent = shown;
        second.className = "num";
        first.append(code);
        row.append(first, second);
        return row;
      });
      into.replaceChildren(...lines);
    } catch (error) {
      into.textContent = `These values cannot be unpacked: ${error.message}.`;
    }
  }
  document.addEventListener("toggle", (event) => {
    if (event.target.matches && event.target.matches("details.raw[data-chunk]") && event.target.open) fillRaw(event.target);
  }, true);
  document.addEventListener("input", (event) => {
    const raw = event.target.closest("details.raw");
    if (!raw) return;
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of $$("tbody tr", raw)) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  });

  // Printing opens the charts' tables of the kernel in view, and closes them again.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = $$("#parts > .active details:not([open]):not(.raw), #overview details:not([open])").filter((part) => !part.classList.contains("numbers"));
    for (const part of opened) part.open = true;
    while (drawn < Math.min(200, order.length)) draw(true);
  });
  addEventListener("afterprint", () => { for (const part of opened) part.open = false; });

  const loaded = loadIndex();
  addEventListener("hashchange", route);
  route();
  refreshMarks(document);
  loaded.then(() => { if (!current()) route(); }, () => {
    $("#count").textContent = `The list of all kernels cannot be unpacked; the ${rows.length} longest are here.`;
  });
})();

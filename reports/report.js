"use strict";
// The report's behaviour: sorting, filtering, opening kernels, unpacking what is packed. Reads only this page.
(() => {
  const root = document.documentElement;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const PAGE = 60; // rows drawn at once
  const TEXTS = { name: ".c-name bdi", n: ".c-name .n", time: ".t", share: ".s", sign: ".c-verdict .sign", title: ".v", word: ".w", win: ".g", range: ".r", why: ".c-why" };
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
  const state = { q: "", klass: "", sort: "time", down: true };
  /** @type {{id:string,name:string,klass:string,title:string,time:number,win:number,query:string,row:HTMLElement|null,at:number}[]} */
  let rows = [];
  let columns = null;
  let order = [];
  let drawn = 0;
  const pattern = body && body.firstElementChild;

  if (body) {
    rows = [...body.children].map((row) => ({
      id: row.dataset.id, name: $(TEXTS.name, row).textContent, klass: row.dataset.class, title: $(TEXTS.title, row).textContent,
      time: Number(row.dataset.time), win: Number(row.dataset.win), query: row.dataset.query, row, at: 0,
    }));
    rows.forEach((item, at) => { item.at = at; });
    order = rows;
    drawn = rows.length;
  }

  function rowOf(item) {
    if (item.row) return item.row;
    const row = pattern.cloneNode(true);
    for (const [key, selector] of Object.entries(TEXTS)) $(selector, row).textContent = columns[key][item.at];
    row.dataset.id = item.id;
    row.dataset.class = item.klass;
    row.dataset.time = item.time;
    row.dataset.win = item.win;
    row.dataset.query = item.query;
    $("a", row).setAttribute("href", "#k=" + item.id);
    $(".c-verdict .sign", row).setAttribute("class", "sign c-" + item.klass);
    $(".m", row).setAttribute("class", "m c-" + item.klass);
    $(".m", row).setAttribute("width", columns.width[item.at]);
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

  function arrange() {
    if (!body) return;
    const wanted = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    order = rows.filter((item) => (!state.klass || item.klass === state.klass) && wanted.every((word) => item.query.includes(word)));
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
      id, name: columns.name[at], klass: columns.klass[at], title: columns.title[at], time: columns.by_time[at], win: columns.by_win[at],
      query: columns.query[at], row: at < front.length ? front[at].row : null, at,
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
    element.scrollIntoView({ block: "center" });
  }

  let turn = 0;
  async function route() {
    const mine = ++turn;
    let hash = location.hash.slice(1);
    try { hash = decodeURIComponent(hash.replace(/\+/g, " ")); } catch { /* a broken escape: use it as it is */ }
    const wanted = new URLSearchParams(location.hash.slice(1));
    const id = wanted.get("k");
    $("#trouble").hidden = true;
    if (id) {
      let part = null;
      let trouble = "";
      try { part = await bring(id); } catch (error) { trouble = error.message; }
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
      const rest = wanted.has("sass") || wanted.has("f");
      const target = rest ? document.getElementById(hash) : null;
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
  $("#copy").addEventListener("click", async () => {
    const button = $("#copy");
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copy it from the address bar";
    }
    setTimeout(() => { button.textContent = "Copy link"; }, 2000);
  });
  $("#theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
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
    if (event.key === "/") {
      event.preventDefault();
      if (inKernel) back();
      setTimeout(() => $("#q") && $("#q").focus(), inKernel ? 60 : 0);
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
  async function fillRaw(part) {
    const id = part.dataset.chunk;
    if (!id) return;
    delete part.dataset.chunk;
    const into = $("tbody", part);
    try {
      const element = await chunk(id);
      const lines = JSON.parse(await unpack(element)).map(([name, shown]) => {
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

  addEventListener("hashchange", route);
  route();
  loadIndex().then(() => { if (!current()) route(); }, () => {
    $("#count").textContent = `The list of all kernels cannot be unpacked; the ${rows.length} longest are here.`;
  });
})();

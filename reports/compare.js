"use strict";
// The comparison's behaviour: chips that choose what is shown, the theme, the pair that a link names.
(() => {
  const root = document.documentElement;
  const $$ = (selector) => [...document.querySelectorAll(selector)];
  root.classList.add("js");
  let show = "";
  function arrange() {
    let shown = 0;
    for (const pair of $$(".pair")) {
      pair.hidden = show !== "" && !pair.dataset.marks.split(" ").includes(show);
      shown += !pair.hidden;
    }
    document.getElementById("count").textContent = `${shown} of ${$$(".pair").length}`;
    for (const chip of $$(".chip")) chip.setAttribute("aria-pressed", String(chip.dataset.show === show));
  }
  for (const chip of $$(".chip")) {
    chip.addEventListener("click", () => {
      show = show === chip.dataset.show ? "" : chip.dataset.show;
      arrange();
    });
  }
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
})();

"""`diagnose rules new`: writes a rule with every key and its examples, and the pack around it where there is none."""

from __future__ import annotations

import re
from pathlib import Path

from diagnose.errors import DiagnoseError
from diagnose.packfile import parse_yaml, read_bytes
from diagnose.rules import CORE

_WORDS = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)

PACK = """\
name: {name}                     # rules are called {name}/RULE
version: 0.1.0
requires_diagnose: '>=0.1'
disable: []                      # rules of any pack that are not asked: [tail-wave]
weigh: {{}}                        # factors on what a rule says is at stake: {{tail-wave: 0.5}}
reword: {{}}                       # other words for rules: {{tail-wave: {{title: …, change: …}}}}
thresholds: []                   # - {{rule: tail-wave, kernel: 'attention_*', set: {{wave_tail_idle: 0.2}}}}
sections: []                     # - {{title: Handover, rows: [occupancy_achieved, 'ncu:launch__registers_per_thread']}}
"""

RULE = """\
# The rule {pack}/{rule}. `diagnose facts` lists what conditions may use; `diagnose rules test DIR` proves the examples.
title: Waits for loads while memory is idle
class: implementation            # hardware, fit, implementation or unknown
severity: warning                # at most: critical, warning or note; what is at stake decides below that
status: preview                  # preview, stable or deprecated
scope: kernel
applies_to:
  arch: '>=sm_80'                # sm_90, '>=sm_80', or a list of bounds: ['>=sm_80', '<sm_100']
when:                            # all, any and not; facts, ncu:METRIC, + - * /, sass.has(HMMA), sass.count(LDL in loop)
  all:
  - exposed_load >= 0.2
  - hbm_utilization < 0.6
at_stake: stake_load_latency     # the share of the kernel's time that the fix can recover, 0..1
at_stake_low: 0.5 * stake_load_latency
at_stake_high: exposed_load
loss: counted                    # counted by the hardware, or estimated: how far other code would go
sentence: '{{exposed_load:%}} of the time waits for loads, and HBM is used {{hbm_utilization:%}}'
show:                            # facts shown beside the conditions
- occupancy_achieved
where:                           # instructions to point at: stall:NAME or opcode:PREFIX
- role: waiting
  select: stall:global_load
  top: 3
why: Too few loads are under way to cover the time that each of them takes.
next_experiment:
  change: Start the next tile's loads before this tile's arithmetic.
  expect: exposed_load < 0.2     # what must hold after the change, if the rule is right
limitations: Not for kernels that load one value and stop.
article: null                    # the row of the article's table that it encodes (`diagnose rules list --table`)
references: []
yields_to: []                    # rules that explain the same time more deeply: when one fires, this one does not
examples:                        # each condition needs a silent example in which it alone fails
  base:
    exposed_load: 0.4
    hbm_utilization: 0.3
    stake_load_latency: 0.3
  fires:
  - exposed_load: 0.2
  silent:
  - exposed_load: 0.19
  - hbm_utilization: 0.6
"""


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


def _pack_name(manifest: Path) -> str:
    keys = parse_yaml(read_bytes(manifest), manifest).mapping("pack.yaml")
    if "name" not in keys:
        raise DiagnoseError(f"{manifest} lacks 'name'", "add `name: …`")
    return keys["name"].text("name")


def create(name: str, folder: Path) -> list[Path]:
    """Writes the rule `RULE` or `PACK/RULE` into the pack at `folder`; gives the files written."""
    given, _, rule = name.rpartition("/")
    for what in (given, rule) if given else (rule,):
        if not _WORDS.fullmatch(what) or len(what) > 80:
            near = f", as {_slug(what)}" if _slug(what) else ""
            raise DiagnoseError(
                f"{what!r} is no name of a rule or a pack",
                f"lower case words joined by '-'{near}: diagnose rules new acme/must-use-tma",
            )
    if rule in ("pack", "facts"):
        raise DiagnoseError(f"{rule}.yaml is no rule's file", "give the rule another name")
    manifest, target = folder / "pack.yaml", folder / f"{rule}.yaml"
    if manifest.is_file():
        pack = _pack_name(manifest)
        if given and given != pack:
            raise DiagnoseError(
                f"{folder} is the pack {pack!r}, not {given!r}", f"diagnose rules new {pack}/{rule} --dir {folder}"
            )
    else:
        pack = given or _slug(folder.absolute().name) or "team"
        if pack == CORE:
            raise DiagnoseError("the pack name 'core' is taken", f"diagnose rules new my-team/{rule} --dir {folder}")
    taken = next((path for path in folder.rglob(f"{rule}.yaml")), None) if folder.is_dir() else None
    if taken is not None:
        raise DiagnoseError(f"{taken} exists", f"edit it, or choose another name than {rule}")
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in ((manifest, PACK.format(name=pack)), (target, RULE.format(pack=pack, rule=rule))):
            if path == manifest and manifest.is_file():
                continue
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            written.append(path)
    except OSError as error:
        raise DiagnoseError(
            f"{error.filename or folder} cannot be written: {error.strerror}", "name another folder: --dir DIR"
        ) from None
    return written

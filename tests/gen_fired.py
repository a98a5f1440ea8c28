"""Writes rules/fired.json: how often each rule of the core pack fired on the recorded reports of examples/reports.

python tests/gen_fired.py            writes it
python tests/gen_fired.py --check    says whether it is up to date

`diagnose rules list` shows it. Each report is diagnosed by itself; a reference kernel's work is declared, as
`diagnose kernel:NAME` declares it. Run it after a change of a rule, of a fact or of the reports.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import recorded
from diagnose import api, program
from diagnose.report_file import is_report_name
from diagnose.rules import active_rules

TARGET = recorded.ROOT / "rules" / "fired.json"


def counted() -> dict[str, Any]:
    """What the file should hold: kernels, and for each rule those on which it fired and those whose verdict it is."""
    packs = api.load_rules(api.Options())
    reports = sorted(path for path in recorded.REPORTS.iterdir() if is_report_name(path.name))
    recorded.read_all(reports)
    names = {recorded.report_of(name): name for name in recorded.manifest()}
    fired: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    kernels = 0
    for path in reports:
        work = recorded.declared(names[path]) if path in names else {}
        document = api.examine(recorded.read(path), packs, api.Options(), declared=work)
        for kernel in document["kernels"]:
            kernels += 1
            verdict = kernel["verdict"]["rule"]
            verdicts[verdict] += 1
            fired.update({verdict, *(one["rule"] for one in kernel["findings"])})
        fired.update({one["rule"] for one in document["program"]["findings"]})
    rules = [rule.id for rule in active_rules(packs)]
    rows = {rule: {"fired": fired[rule], "verdicts": verdicts[rule]} for rule in sorted(rules)}
    rows |= {rule: {"fired": fired[rule], "verdicts": 0} for rule in sorted(program.RULE_ROWS)}
    return {"reports": len(reports), "kernels": kernels, "rules": rows}


def text(found: dict[str, Any]) -> str:
    """The file's text, a line a rule, so that a change of one is a change of one line."""
    rows = ",\n".join(f"  {json.dumps(rule)}: {json.dumps(row)}" for rule, row in found["rules"].items())
    return f'{{\n "reports": {found["reports"]},\n "kernels": {found["kernels"]},\n "rules": {{\n{rows}\n }}\n}}\n'


def main() -> int:
    """Writes the file, or with --check compares it; 1 where it is not up to date."""
    wanted = text(counted())
    held = TARGET.read_text(encoding="utf-8") if TARGET.is_file() else None
    if "--check" in sys.argv[1:]:
        if held != wanted:
            print("rules/fired.json is not up to date: python tests/gen_fired.py")
        return int(held != wanted)
    TARGET.write_text(wanted, encoding="utf-8")
    print(f"{TARGET}: {'as it was' if held == wanted else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes docs/rules: a page a rule of the core pack, as `rules explain` says it. Run it after a change of a rule.

python tests/gen_rule_pages.py            writes the pages
python tests/gen_rule_pages.py --check    says which are not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from diagnose import explain
from diagnose.api import Options, load_rules
from diagnose.static import migration_rules

TARGET = Path(__file__).resolve().parents[1] / "docs" / "rules"


def pages() -> dict[str, str]:
    """File name -> what it should hold."""
    packs = load_rules(Options())
    found, index = {}, []
    for rule in sorted(packs[0].rules, key=lambda rule: (rule.file.parent.name, rule.id)):
        inner = rule.file.relative_to(packs[0].path).as_posix()
        found[f"{rule.id}.md"] = explain.markdown(explain.page(rule.id, packs), f"rules/{inner}")
        index.append(f"| [{rule.id}]({rule.id}.md) | {rule.klass} | {rule.title} |")
    head = ["# The rules of the core pack", "", "Written by `tests/gen_rule_pages.py`; one page a rule.", ""]
    table = ["| rule | class | says |", "| --- | --- | --- |"]
    moving = ["", "# When code moves to a newer GPU", "", "Notes of `diagnose static FILE --for sm_90`.", ""]
    moves = []
    for rule in sorted(migration_rules()[0].rules, key=lambda rule: rule.id):
        page = {**explain.page(rule.id, migration_rules()), "needs": []}  # facts of code and target: no counter
        name = rule.id.replace("/", "-") + ".md"
        found[name] = explain.markdown(page, f"rules/migration/{rule.file.name}")
        moves.append(f"| [{rule.id}]({name}) | {rule.klass} | {rule.title} |")
    found["README.md"] = "\n".join([*head, *table, *index, *moving, *table, *moves]) + "\n"
    return found


def stale() -> list[str]:
    """The files that are missing, differ or have no rule."""
    wanted = pages()
    here = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.md")}
    return sorted(name for name in {*wanted, *here} if wanted.get(name) != here.get(name))


def main() -> int:
    old = stale()
    if "--check" in sys.argv[1:]:
        print("\n".join(f"docs/rules/{name} is not up to date: python tests/gen_rule_pages.py" for name in old))
        return 1 if old else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for name in old:
        if name in wanted:
            (TARGET / name).write_text(wanted[name], encoding="utf-8")
        else:
            (TARGET / name).unlink()
    print(f"{len(wanted)} pages, {len(old)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())

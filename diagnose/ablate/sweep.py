"""A study out of the command line: `--sweep N=256,512,1024 -- ./a.out --n {N}`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose.ablate.study import Axis, Study, Variant
from diagnose.collect.kernels import evaluate
from diagnose.errors import DiagnoseError

_EXAMPLE = "diagnose ablate --sweep N=256,512,1024 -- ./a.out --n {N}"
_LARGEST = 200  # points; each is run several times


def from_words(
    sweep: str,
    target: Sequence[str],
    tests: Sequence[str] = (),
    kernel: str | None = None,
    flops: str | None = None,
) -> Study:
    """The study that `--sweep NAME=V,V,…` and a command line with `{NAME}` in it describe.

    The values are whole numbers; the first is the baseline. With `flops` (an expression over NAME) rates are compared,
    else times. Raises DiagnoseError for anything else.
    """
    name, equals, listed = sweep.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise DiagnoseError(f"--sweep {sweep!r} is not NAME=VALUE,VALUE,…", _EXAMPLE)
    values = []
    for word in listed.split(","):
        if not re.fullmatch(r"\d{1,15}", word):
            raise DiagnoseError(f"--sweep {name}: {word!r} is no whole number", _EXAMPLE)
        values.append(int(word))
    if len(values) < 2 or len(set(values)) < len(values):
        raise DiagnoseError(f"--sweep {name} needs two values or more, each once, got {listed!r}", _EXAMPLE)
    if len(values) > _LARGEST:
        raise DiagnoseError(f"--sweep {name} has {len(values)} values, more than {_LARGEST}", _EXAMPLE)
    if not target:
        raise DiagnoseError("--sweep needs a program after --", _EXAMPLE)
    if not any("{" + name + "}" in word for word in target):
        raise DiagnoseError(f"{{{name}}} does not stand in the command line: {' '.join(target)}", _EXAMPLE)
    if flops is not None:
        try:
            least = min(evaluate(flops, {name: value}) for value in values)
        except ValueError as error:
            raise DiagnoseError(f"--work: {error}", f"--work '2*{name}*{name}*{name}'") from None
        if least <= 0:
            raise DiagnoseError(
                f"--work {flops!r} is {least:g} for a value of {name}", f"--work '2*{name}*{name}*{name}'"
            )
    return Study(
        id=f"sweep-{name}",
        title=f"{name} of {target[0]}",
        question=f"Does the time depend on {name}, and from which value is it no longer better?",
        improves=f"{name} was a cause of the time at {name} = {values[0]}",
        unchanged=f"{name} is not the cause: look elsewhere",
        ablates="axis",
        baseline=values[0],
        variants=(Variant(kernel or target[0], None, {}, tuple(target), flops=flops),),
        axis=Axis(name, (name,), tuple(values)),
        tests=tuple(tests),
        measure="rate" if flops is not None else "time",
        analyses=("knee",) if len(values) >= 3 else (),
        profile="ends",
    )

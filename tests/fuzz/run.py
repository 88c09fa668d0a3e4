"""Coverage-guided fuzzing of one family: `python -m tests.fuzz.run FAMILY SECONDS`, with atheris from the extra `fuzz`.

Prints the number of executions; an input that breaks a promise is kept as crash-… in the corpus' folder and ends the
run with a status other than 0. Put it, made small, into fixtures/fuzz/FAMILY/ with the fix.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import atheris


def _dictionary(path: Path) -> None:
    """The words by which outputs are recognised, in libFuzzer's form."""
    from gpudoctor.read.table import FORMATS

    words = sorted({token for how in FORMATS for token in how.tokens})
    path.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"\n' for word in words))


def main() -> None:
    name, seconds = sys.argv[1], int(sys.argv[2])
    with atheris.instrument_imports(include=["gpudoctor"]):
        from tests.fuzz.families import FAMILIES

        family = FAMILIES[name]
        seeds = list(family.seeds())
        for seed in seeds:  # parsers are imported when their output turns up: while imports are still watched
            family.examine(seed)
    corpus = Path(os.environ.get("FUZZ_CORPUS", f"build/fuzz/{name}"))
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = corpus.with_suffix(".dict")
    _dictionary(words)
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={seconds}",
            f"-dict={words}",
            f"-artifact_prefix={corpus.parent}/{name}-",
            "-max_len=16384",
            "-timeout=20",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            *sys.argv[3:],
            str(corpus),
        ],
        family.examine,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""Bad and odd options and names: rows 55 to 70 of the list of odd inputs."""

from __future__ import annotations

# Options of predict beside the input, -o and --model-type; exit 64. Lists of GPUs are in
# tests/unit/test_devices.
OPTIONS = (
    ("55 a GPU twice", ("--gpus", "0,0"), "'0,0' names a GPU twice"),
    ("56 empty", ("--gpus", ""), "'' is neither an index nor a UUID"),
    ("56 unknown device", ("-d", "tpu"), "--device tpu"),
    ("56 negative device", ("-d", "-1"), "--device -1"),
    ("59 no tokens", ("--esm-batch-size", "0"), "'--esm-batch-size'"),
    ("59 no workers", ("-w", "-3"), "'--num-workers'"),
    ("59 no number", ("-t", "many"), "'--threads'"),
    ("59 too many threads", ("-t", "99999999999999"), "'--threads'"),
    ("59 too many rows", ("-b", "9" * 23), "'--batch-size'"),
    ("59 chunks shorter than a codon", ("-e", "2"), "'--expected-length'"),
    ("59 a score beyond 1", ("--min-score", "1.5"), "'--min-score'"),
    ("70 configuration missing", ("-c", "no.yaml"), "virnucpro utils generate-config -o no.yaml"),
    ("an option that is not there", ("--gpu", "0"), "--gpus"),
    ("a model type that is not there", ("-m", "800"), "'300', '500', 'lite', 'custom'"),
    ("custom without a classifier", ("-m", "custom"), "--model-path FILE --expected-length N"),
)

# Names of the output directory and of the input; all accepted.
NAMES = (
    ("64 .fa", "x.fa", "y.fa.fa", "y.fa"),
    ("64 nucleotide", "nucleotide", "nucleotide.fa", "nucleotide"),
    ("64 non-ASCII and blanks", "Ergebnisse für 文", "größe.fq.fa", "größe.fq"),
    ("64 wildcards", "[ab]*?", "s[ab]*?.fa", "s[ab]*?"),
    ("64 markup and quotes", "[red]'\"$HOME", "[bold]%s{0}.fa", "[bold]%s{0}"),
    ("64 a leading dash", "-o", "-x.fa", "-x"),
    ("64 a leading dot", ".hidden", ".fa", ".fa"),
    ("64 the name of a table", "o", "failed_files.fa", "failed_files"),
    ("64 a line end", "a\nb", "c\nd.fa", "c\nd"),
)

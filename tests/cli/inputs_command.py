"""Bad and odd options and names: rows 55 to 70, as (row, what is given, message, advice)."""

from __future__ import annotations

# Options of predict beside the input, -o and --model-type; exit 64.
OPTIONS = (
    ("55 a GPU twice", ("--gpus", "0,0"), "'0,0' names a GPU twice", "leave one out"),
    ("55 a GPU twice in --device", ("-d", "cuda:1,1"), "'1,1' names a GPU twice", "leave one out"),
    ("56 a gap in the list", ("--gpus", "0,,1"), "'' is neither an index nor a UUID", "write for example --gpus 0,1,2"),
    ("56 a letter", ("--gpus", "a"), "'a' is neither an index nor a UUID", "write for example --gpus 0,1,2"),
    ("56 negative", ("--gpus", "-1"), "'-1' is neither an index nor a UUID", "write for example --gpus 0,1,2"),
    ("56 empty", ("--gpus", ""), "'' is neither an index nor a UUID", "write for example --gpus 0,1,2"),
    ("56 a superscript", ("--gpus", "²"), "'²' is neither an index nor a UUID", "write for example --gpus 0,1,2"),
    ("56 unknown device", ("-d", "tpu"), "--device tpu", "expected auto, cpu, cuda"),
    ("56 negative device", ("-d", "-1"), "--device -1", "expected auto, cpu, cuda"),
    ("56 empty device", ("-d", ""), "--device", "expected auto, cpu, cuda"),
    ("56 device and GPUs", ("-d", "cpu", "--gpus", "0"), "contradict each other", "leave one out"),
    ("56 CPU workers and GPUs", ("--cpu-workers", "2", "--gpus", "0"), "--cpu-workers", "leave out --gpus"),
    ("59 no tokens", ("--esm-batch-size", "0"), "'--esm-batch-size'", "is not in the range 1<=x"),
    ("59 no sequences", ("--dnabert-batch-size", "0"), "'--dnabert-batch-size'", "is not in the range 1<=x"),
    ("59 no rows", ("-b", "0"), "'--batch-size'", "is not in the range 1<=x"),
    ("59 no workers", ("-w", "-3"), "'--num-workers'", "is not in the range 1<=x"),
    ("59 no threads", ("-t", "0"), "'--threads'", "is not in the range 1<=x"),
    ("59 no CPU workers", ("--cpu-workers", "0"), "'--cpu-workers'", "is not in the range 1<=x"),
    ("59 no number", ("-t", "many"), "'--threads'", "not a valid integer"),
    ("59 chunks shorter than a codon", ("-e", "2"), "'--expected-length'", "is not in the range 3<=x"),
    ("69 --quiet with --verbose", ("-q", "-v"), "contradict each other", "leave one out"),
    ("70 configuration missing", ("-c", "no.yaml"), "no.yaml not found", "virnucpro utils generate-config -o no.yaml"),
    ("an option that is not there", ("--gpu", "0"), "No such option", "--gpus"),
    ("a model type that is not there", ("-m", "800"), "'800' is not one of", "'300', '500', 'lite', 'custom'"),
    ("custom without a classifier", ("-m", "custom"), "needs the classifier and its chunk length", "--model-path FILE --expected-length N"),
)  # fmt: skip

# Names of the output directory and of the input; all accepted.
NAMES = (
    ("64 spaces", "my results", "my sample.fa", "my sample"),
    ("64 .fa", "x.fa", "y.fa.fa", "y.fa"),
    ("64 nucleotide", "nucleotide", "nucleotide.fa", "nucleotide"),
    ("64 merged", "a_merged", "a_merged.fna", "a_merged"),
    ("64 non-ASCII", "Ergebnisse für 文", "größe.fq.fa", "größe.fq"),
    ("64 wildcards", "[ab]*?", "s[ab]*?.fa", "s[ab]*?"),
    ("64 markup and quotes", "[red]'\"$HOME", "[bold]%s{0}.fa", "[bold]%s{0}"),
    ("64 a leading dash", "-o", "-x.fa", "-x"),
    ("64 a leading dot", ".hidden", ".fa", ".fa"),
    ("64 the name of a table", "o", "failed_files.fa", "failed_files"),
    ("64 a line end", "a\nb", "c\nd.fa", "c\nd"),
)  # fmt: skip

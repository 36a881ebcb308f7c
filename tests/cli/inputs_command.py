"""Bad and odd options and configurations: rows 55 to 76, as (row, what is given, message, advice)."""

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

# Content of a configuration file; exit 64. FILE stands for its path.
BOMB = b"a: &a [x, x]\n" + b"".join(
    b"%c: &%c [*%c, *%c]\n" % (c, c, c - 1, c - 1) for c in range(98, 122)
)
CONFIGURATIONS = (
    ("71 not YAML", b"prediction:\n  batch_size: [1, 2\n", "FILE, line 3", "this is not plain YAML"),
    ("71 a tab", b"prediction:\n\tbatch_size: 1\n", "FILE, line 2", "this is not plain YAML"),
    ("71 a control character", b"prediction: \x07\n", "FILE", "this is not plain YAML"),
    ("71 latin-1", b"# caf\xe9\n", "FILE cannot be read", "utf-8"),
    ("71 binary", bytes(range(256)), "FILE cannot be read", "utf-8"),
    ("71 endless nesting", b"a: " + b"[" * 500_000, "FILE: nested too deeply", "not a configuration file"),
    ("71 far too large", b"#" * (2 << 20), "FILE is larger than 1 MiB", "not a configuration file"),
    ("72 unknown key", b"prediction:\n  batch_sise: 1\n", "FILE: unknown key prediction.batch_sise", "did you mean prediction.batch_size?"),
    ("72 unknown group", b"xyz: 1\n", "FILE: unknown key xyz", "virnucpro utils generate-config"),
    ("73 text for a number", b"prediction:\n  batch_size: many\n", "FILE: prediction.batch_size", "must be a whole number of 1 or more, not 'many'"),
    ("73 zero", b"features:\n  esm:\n    toks_per_batch: 0\n", "features.esm.toks_per_batch", "a whole number of 1 or more, not 0"),
    ("73 a fraction", b"parallelization:\n  threads: 1.5\n", "parallelization.threads", "a whole number of 1 or more, not 1.5"),
    ("73 yes for a number", b"prediction:\n  num_workers: yes\n", "prediction.num_workers", "a whole number of 1 or more, not True"),
    ("73 number for a switch", b"device:\n  fallback_to_cpu: 1\n", "device.fallback_to_cpu", "must be true or false, not 1"),
    ("73 a list for text", b"device:\n  gpus: [0, 1]\n", "device.gpus", "must be text"),
    ("73 a group for a value", b"prediction:\n  batch_size:\n    esm: 1\n", "prediction.batch_size", "must be a whole number"),
    ("73 no such choice", b"device:\n  precision: int8\n", "device.precision", "must be one of auto, fp32, bf16, fp16, fp8"),
    ("74 a python object", b"device: !!python/object/apply:os.system ['touch ran']\n", "FILE, line 1", "this is not plain YAML"),
    ("75 alias bomb", BOMB, "FILE: aliases (*name) are not accepted", "write the value out"),
    ("76 a list", b"- 1\n- 2\n", "FILE: expected keys and values, found a list", "expected keys and values"),
    ("76 a word", b"fast\n", "FILE: expected keys and values, found a str", "expected keys and values"),
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

#!/bin/sh
# Make virnucpro/data/hallmarks.hmm.gz again, and print what it finds in held-out viruses and hosts.
#
#     pip install pyfamsa==0.7.0
#     sh examples/hallmarks/build.sh GENOMES DATASET
#
# GENOMES holds the folders of genomes that examples/lite/genomes.tsv names, and genomes_hosts;
# DATASET was made from them as examples/lite/train.sh says. docs/hallmarks.md has the results.
set -eu
here=$(dirname "$0")
python "$here/profiles.py" "$1" "$2" "$here/../../virnucpro/data/hallmarks.hmm.gz"
python "$here/measure.py" "$1" "$2"

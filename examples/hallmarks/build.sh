#!/bin/sh
# Make the profiles of hallmarks, virus markers and host markers in virnucpro/data again, and print what they find in
# viruses and hosts that they do not know.
#
#     pip install pyfamsa==0.7.0
#     sh examples/hallmarks/build.sh GENOMES DATASET
#
# GENOMES holds the folders of genomes that examples/lite/genomes.tsv names, genomes_hosts and phages_new;
# DATASET was made from them as examples/lite/train.sh says. docs/hallmarks.md has the results.
set -eu
here=$(dirname "$0")
python "$here/profiles.py" "$1" "$2" "$here/../../virnucpro/data/hallmarks.hmm.gz"
python "$here/profiles.py" "$1" "$2" "$here/../../virnucpro/data/virusmarkers.hmm.gz" \
    --hallmarks "$here/../../virnucpro/data/hallmarks.hmm.gz"
python "$here/markers.py" "$1" "$2" "$here/../../virnucpro/data/hostmarkers.hmm.gz"
python "$here/measure.py" "$1" "$2"
python "$here/measure_markers.py" "$1" "$2"

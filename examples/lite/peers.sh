#!/usr/bin/env bash
# Run other programs on pieces from outside, and print their figures beside those of lite.
#   examples/lite/peers.sh PIECES PREDICTED WORK
# PIECES was made by heldout.py. PREDICTED holds what `virnucpro predict` made of its files (measure.sh
# has the commands). WORK is a folder for the results. The first call installs geNomad and Jaeger from
# the package index into WORK, which takes 6 GB; their networks are in the packages. A program that is installed already is run as it is.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
pieces="$1" predicted="$2"
mkdir -p "$3"
work="$(cd "$3" && pwd)"
install() {
    if command -v "$1" >/dev/null; then return; fi
    if [ ! -x "$work/$1/bin/$1" ]; then
        python3 -m venv "$work/$1"
        "$work/$1/bin/pip" install --quiet "${@:2}"
    fi
    mkdir -p "$work/bin"
    ln -sf "$work/$1/bin/$1" "$work/bin/$1"
}
install genomad genomad==1.13.0
install jaeger jaeger-bio==1.26.5 tensorflow==2.21.0
PATH="$work/bin:$PATH"
python "$here/peers.py" outside "$pieces" "$work"
for length in 500 2100 5000; do
    genomad nn-classification --quiet "$work/outside_$length.fa" "$work/genomad_$length"
    # Jaeger reads no less than 2,000 bases at once.
    if [ "$length" -ge 2000 ]; then
        jaeger predict --cpu --getalllabels -i "$work/outside_$length.fa" -o "$work/jaeger_$length"
    fi
done
python "$here/peers.py" table "$pieces" "$predicted" "$work"

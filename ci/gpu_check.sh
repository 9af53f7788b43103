#!/bin/sh
# One command for a machine with a card and a few minutes, and no network:
#
#     ci/gpu_check.sh --wheels wheels --out out [--budget 480] [--nproc 8] [--only fr_hang,item_stall]
#
# Says what is there, installs from the folder what is missing (never torch), runs the drills that fit in the
# budget, the most valuable first, and leaves small bundles and summary.json in the output folder. Without a
# card it does the same with gloo. `make wheels PYTHON=3.12` fills such a folder.
#
# Exit code: 0 if all that ran passed, 1 if one failed, 3 if one was inconclusive, 4 if nothing could run.
set -u

here=$(cd "$(dirname "$0")" && pwd)
wheels="" out="" python=""
only="" budget=480 nproc=8
fail() { echo "gpu_check: $2" >&2; exit "$1"; }
while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || fail 2 "$1 wants a value"
    case "$1" in
        --wheels) wheels=$2 ;;
        --out) out=$2 ;;
        --python) python=$2 ;;
        --budget) budget=$2 ;;
        --nproc) nproc=$2 ;;
        --only) only=$2 ;;
        *) fail 2 "$1: allowed are --wheels, --out, --python, --budget, --nproc, --only" ;;
    esac
    shift 2
done
[ -n "$out" ] || fail 2 "--out DIR is needed"
mkdir -p "$out" || exit 4
out=$(cd "$out" && pwd)

# The machine's own Python is the one that has torch.
found=""
for candidate in ${python:-python3 python /opt/conda/bin/python /usr/bin/python3}; do
    if "$candidate" -c 'import torch' 2>>"$out/install.log"; then found=$candidate; break; fi
done
[ -n "$found" ] || fail 4 "no Python with torch here: give one with --python"
python=$found
version=$("$python" -c 'import torch; print(torch.__version__)')
case "$version" in
    0.* | 1.* | 2.[0-9].*) fail 4 "torch $version: 2.10 or newer is needed" ;;
esac
echo "gpu_check     $("$python" --version), torch $version"

# Into a folder of its own: nothing of the machine is changed.
site="$out/.site"
without=""
if [ -n "$wheels" ]; then
    [ -f "$wheels/requirements.txt" ] || fail 4 "$wheels: no requirements.txt: fill it with make wheels"
    without=$("$python" "$here/install_missing.py" "$wheels" "$site" 2>>"$out/install.log" | tr '\n' ' ')
    PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
    PATH="$site/bin:$PATH"
    export PYTHONPATH PATH
fi
if ! "$python" -c 'import harness' 2>/dev/null; then
    PYTHONPATH="$(dirname "$here")${PYTHONPATH:+:$PYTHONPATH}"
    export PYTHONPATH
fi
for name in $without; do echo "without       $name (see install.log)"; done

cd "$out" || exit 4
"$python" -m harness.gpucheck --out "$out" --budget "$budget" --nproc "$nproc" --only "$only" \
    --without "$without" 2>"$out/check.log"
code=$?
if [ ! -f "$out/summary.json" ]; then
    tail -5 "$out/check.log" >&2
    # An import that fails is 1 to Python: here it is a prerequisite.
    case "$code" in 0 | 1) code=4 ;; esac
fi
[ -d "$site" ] && rm -r "$site"
exit "$code"

#!/usr/bin/env bash
# The nightly run: every drill, the pre-training checklist, and what a person needs if one of them failed.
#
#     ci/nightly.sh [--backend auto|gloo|nccl] [--out DIR] [--drill NAME]... [--mode MODE|all] [--checklist FILE]
#
# Leaves in DIR: drills.xml and checklist.xml (JUnit), checklist.md and .html, doctor.json, the bundles, and, where
# something failed, issue.md: the text of an issue. Exit code 0 only if everything passed or was skipped for a reason,
# and not everything was skipped.
set -uo pipefail

backend=auto out=nightly mode="" checklist=checklists/pretrain.yaml
drills=()
fail() {
    echo "nightly: $1" >&2
    exit 2
}
while [[ $# -gt 0 ]]; do
    [[ $# -ge 2 ]] || fail "$1 needs a value"
    case $1 in
        --backend) backend=$2 ;;
        --out) out=$2 ;;
        --drill) drills+=("$2") ;;
        --mode) mode=$2 ;;
        --checklist) checklist=$2 ;;
        *) fail "unknown option $1; there are --backend, --out, --drill, --mode, --checklist" ;;
    esac
    shift 2
done
[[ -f $checklist ]] || fail "$checklist: no such file"
mkdir -p "$out" || fail "$out: cannot be made"
python=${PYTHON:-python3}
"$python" -c 'import harness' 2>/dev/null || fail "$python has no drill-harness: set PYTHON, or activate its environment"

[[ ${#drills[@]} -gt 0 ]] || drills=(all)
options=(-p no:cacheprovider -q --drill-backend "$backend" --drill-out "$out/runs")
named=()
for drill in "${drills[@]}"; do named+=(--drill "$drill"); done
[[ -z $mode ]] || named+=(--drill-mode "$mode")

"$python" -m harness.cli doctor --json >"$out/doctor.json" || echo "nightly: doctor FAILs: see $out/doctor.json"
"$python" -m pytest "${options[@]}" "${named[@]}" --junitxml "$out/drills.xml"
drilled=$?
"$python" -m pytest "${options[@]}" "$checklist" --junitxml "$out/checklist.xml"
checked=$?
"$python" -m harness.cli checklist show "$checklist" --out "$out/runs" \
    --md "$out/checklist.md" --html "$out/checklist.html" >/dev/null

# A machine whose cards have gone skips every drill: that is no night that passed.
idle=""
if ((drilled == 0 && checked == 0)); then
    idle=$("$python" ci/issue_text.py --nothing-ran "$out/drills.xml" "$out/checklist.xml") || idle="no JUnit file"
    [[ -z $idle ]] || echo "nightly: nothing ran: $idle" >&2
fi

if ((drilled != 0 || checked != 0)) || [[ -n $idle ]]; then
    "$python" ci/issue_text.py "$out/drills.xml" "$out/checklist.xml" >"$out/issue.md"
    echo "nightly: failed; the text of an issue is in $out/issue.md" >&2
    exit 1
fi
rm -f "$out/issue.md"
echo "nightly: passed; results are in $out"

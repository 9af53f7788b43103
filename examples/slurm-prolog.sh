#!/bin/bash
# A Slurm task prolog (slurm.conf: TaskProlog=..., or srun --task-prolog): no task starts while its gate is shut.
# It runs as the job's user in the tasks' own environment. Slurm's Prolog= would be the wrong place: it runs as root
# without that environment, and where it fails the node is drained.
# Jobs say which checklist gates them: export DRILL_GATE=/path/to/pretrain.yaml
set -u

[[ -n ${DRILL_GATE:-} ]] || exit 0
case $DRILL_GATE in
    */*) folder=${DRILL_GATE%/*} ;;
    *) folder=. ;;
esac
# The results are beside the checklist; what is in the way goes to the task's own output.
if ! said=$(cd "$folder/" && "${DRILL:-/opt/drill/bin/drill}" gate "./${DRILL_GATE##*/}" 2>&1); then
    while IFS= read -r line; do echo "print $line"; done <<<"$said"
    exit 1
fi

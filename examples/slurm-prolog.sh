#!/usr/bin/env bash
# A Slurm prolog (slurm.conf: Prolog=...): the node is not given to the job while its gate is shut.
# Jobs say which checklist gates them: sbatch --comment=drill-gate=/path/to/pretrain.yaml
set -u

comment=$(scontrol show job "$SLURM_JOB_ID" | sed -n 's/^ *Comment=//p')
case $comment in
    drill-gate=*) checklist=${comment#drill-gate=} ;;
    *) exit 0 ;;
esac
folder=$(dirname "$checklist")
# The results are beside the checklist; what is in the way goes to the job's owner.
if ! said=$(cd "$folder" && /opt/drill/bin/drill gate "$checklist" 2>&1); then
    echo "print $said" | head -c 2000
    exit 1
fi

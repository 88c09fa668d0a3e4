#!/bin/sh
# Prolog of Slurm: no job starts on GPUs that gpudoctor finds at fault. README.md beside this file says how to set it up.
#
# Exit status 1 drains the node and requeues the job, so it is given for a fault alone (and, where so configured, for a node
# that could not be judged). A mistake of ours, in the policy, the settings or the installation, alarms and drains nothing.
# It must not call Slurm's commands: the controller waits for it. Takes at most PROLOG_SECONDS.
set -u

verdict=0
judged=no
# Whatever ends this shell, a mistake in a sourced file included, only `verdict` speaks to Slurm.
trap 'unsaid "prolog.sh ended early (see $conf); job ${SLURM_JOB_ID:-?} starts unjudged" 2>/dev/null; clean_up 2>/dev/null; exit "$verdict"' EXIT
trap 'judged=yes; exit' HUP INT TERM

here=$(/usr/bin/dirname "$0")
script=prolog
conf=$here/gpudoctor.conf
if ! [ -r "$here/judge.sh" ]; then
    /usr/bin/logger -t gpudoctor-prolog -p daemon.alert -- "$here/judge.sh is not there; no GPU is judged"
    exit
fi
# shellcheck source=deploy/slurm/judge.sh
. "$here/judge.sh"

# With it gpudoctor's report says that the job's environment was not seen. Old versions of Slurm do not set it.
SLURM_SCRIPT_CONTEXT=${SLURM_SCRIPT_CONTEXT:-prolog_slurmd}
export SLURM_SCRIPT_CONTEXT

# hold TEXT: refuse the job. The mark lets the health check put the reason in the place of Slurm's "Prolog error".
hold() {
    verdict=1
    echo "$line" >"$STATE/held-$NODE"
    say err "job ${SLURM_JOB_ID:-?}: $1; report: $STATE/prolog-$NODE.txt"
}

if ! settings; then
    judged=yes
    alarm "$problem; job ${SLURM_JOB_ID:-?} starts unjudged"
    exit
fi
if [ -z "${SLURM_JOB_GPUS:-}" ] && [ "$WITHOUT_GPUS" != judge ]; then
    judged=yes
    exit
fi

if [ "$MEASURE" = no ]; then
    set -- --no-bandwidth
elif [ -n "$MEASURE_PYTHON" ]; then
    set -- --python "$MEASURE_PYTHON"
else
    set --
fi
# Two looks of at most `each` + 4 seconds, the pause between them, and 8 for the log and the alarm.
each=$(((PROLOG_SECONDS - RETRY_AFTER - 16) / 2))
judge "$each" "$@"
if [ "$outcome" = unknown ]; then
    sleep "$RETRY_AFTER"
    judge "$each" "$@"
fi

judged=yes
case $outcome in
    pass) ;;
    fault)
        keep prolog
        hold "$line"
        ;;
    unknown)
        todo=$ON_UNKNOWN
        # The policy's own word, as the gate repeats it. Within a text of the JSON every quote has a backslash before it.
        [ -n "$todo" ] || todo=$(sed -n 's/.* "on_unknown": "\(hold\|let-through\)".*/\1/p' "$work.json" 2>/dev/null | head -n 1)
        keep prolog
        if [ "${todo:-hold}" = hold ]; then
            hold "$line"
        else
            say warning "job ${SLURM_JOB_ID:-?} starts unjudged: $line; report: $STATE/prolog-$NODE.txt"
        fi
        ;;
    *) alarm "$line; job ${SLURM_JOB_ID:-?} starts unjudged" ;;
esac
exit

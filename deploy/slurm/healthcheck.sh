#!/bin/sh
# HealthCheckProgram of Slurm: drains this node, with gpudoctor's reason, once it finds a fault; resumes it, where so
# configured, only if the reason is gpudoctor's own. Takes at most 45 s (Slurm stops it after 60); never measures bandwidth.
# README.md beside this file says how to set it up. Its exit status means nothing to Slurm.
set -u

judged=no
trap 'unsaid "healthcheck.sh ended early (see $conf); this node is not judged" 2>/dev/null; clean_up 2>/dev/null; exit 0' EXIT
trap 'judged=yes; exit' HUP INT TERM

here=$(/usr/bin/dirname "$0")
script=health
conf=$here/gpudoctor.conf
if ! [ -r "$here/judge.sh" ]; then
    /usr/bin/logger -t gpudoctor-health -p daemon.alert -- "$here/judge.sh is not there; this node is not judged"
    exit
fi
# shellcheck source=deploy/slurm/judge.sh
. "$here/judge.sh"

if ! settings; then
    judged=yes
    alarm "$problem; this node is not judged"
    exit
fi

# How often in a row the outcome was this one, and when it was last logged.
memory="$STATE/health-$NODE.memory"
recall() {
    before='' times=0 logged=0
    [ -r "$memory" ] && read -r before times logged <"$memory"
    case "$times$logged" in '' | *[!0-9]*) before='' times=0 logged=0 ;; esac
    [ "$before" = "$outcome" ] || { times=0 logged=0; }
    times=$((times + 1)) now=$(date +%s) fresh=no
    if [ "$((now - logged))" -ge "$LOG_EVERY" ]; then
        logged=$now fresh=yes
    fi
    echo "$outcome $times $logged" >"$memory"
}

# note PRIORITY TEXT: the same outcome is logged once in LOG_EVERY seconds.
note() { [ "$fresh" = no ] || say "$1" "$2"; }

# ask: `state` and `reason` of this node; status 1 when the controller does not say.
ask() {
    timeout -k 1 3 scontrol show node "$NODE" >"$work.node" 2>/dev/null </dev/null
    told=$?
    state=$(sed -n 's/^ *State=\([^ ]*\).*/\1/p' "$work.node" | head -n 1)
    reason=$(sed -n 's/^ *Reason=//p' "$work.node" | head -n 1 | sed 's/ \[[^][]*@[^][]*\]$//')
    rm -f "$work.node"
    [ "$told" -eq 0 ] && [ -n "$state" ]
}

# change WORDS: tell the controller; says so in the log, in any case.
change() {
    if timeout -k 1 3 scontrol update nodename="$NODE" "$@" </dev/null >/dev/null 2>"$work.err"; then
        say notice "$NODE: $*"
    else
        say err "scontrol update nodename=$NODE $*: $(plain 200 <"$work.err")"
    fi
}

# words LINE: gpudoctor's line as a reason: no verdict, no name of the node, which stands beside it anyway.
words() {
    host=$(uname -n)
    printf '%s\n' "$1" | sed 's/^gpudoctor: \(FAIL \)*//' | awk -v a="$host" -v b="${host%%.*}" \
        '{ if ($1 == a || $1 == b) sub(/^[^ ]+ /, ""); print "gpudoctor: " $0 }' | plain 160
}

drain() {
    case $state in
        *DRAIN* | *DOWN* | *FAIL*)
            case $reason in
                gpudoctor:*) return ;;
                ?*)
                    note warning "$line; left alone: $NODE is $state for another reason"
                    return
                    ;;
            esac
            ;;
    esac
    change state=drain reason="$(words "$line")"
}

# A prolog cannot say why: Slurm writes "Prolog error". Where ours left its line, this is the reason.
explain() {
    held="$STATE/held-$NODE"
    [ -e "$held" ] || return 0
    if [ "$reason" = "Prolog error" ]; then
        change reason="$(words "$(head -n 1 "$held")")"
        rm -f "$held"
        ask
    elif [ -n "$(find "$held" -mmin +5 2>/dev/null)" ]; then
        rm -f "$held" # Slurm drains a moment after the prolog; long after it somebody else took the node into hand
    fi
}

unset SLURM_JOB_GPUS SLURM_STEP_GPUS
# With it gpudoctor's report says that no job's environment was seen.
GPUDOCTOR_STAGE=node
export GPUDOCTOR_STAGE
judge "$HEALTH_SECONDS" --no-bandwidth
recall
judged=yes
if [ "$outcome" = refused ]; then
    [ "$fresh" = no ] || alarm "$line; $NODE is not judged"
    exit
fi
[ "$outcome" = pass ] || keep health
if ! ask; then
    note err "scontrol does not tell the state of $NODE; gpudoctor found: $line"
    exit
fi
explain
case $outcome in
    fault)
        note err "$line; report: $STATE/health-$NODE.txt"
        drain
        ;;
    unknown)
        note warning "$line; report: $STATE/health-$NODE.txt"
        [ "$DRAIN_ON_UNKNOWN" = no ] || [ "$times" -lt 2 ] || drain
        ;;
    pass)
        case $state in
            *DOWN*) ;;
            *DRAIN*)
                case $reason in
                    gpudoctor:*)
                        [ "$RESUME" = no ] || [ "$times" -lt "$RESUME_AFTER" ] || change state=undrain
                        ;;
                esac
                ;;
        esac
        ;;
esac
exit

# shellcheck shell=sh disable=SC2034,SC2154
# Sourced by prolog.sh and healthcheck.sh: the settings, one bounded run of the gate, and what may be said about it. POSIX sh.
# The caller sets `here` (this folder) and `script` (its name in the log) first.

# Slurm gives its programs no search path.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

# say PRIORITY TEXT: one line for the system log, which may itself be stuck.
say() {
    timeout -k 1 2 logger -i -t "gpudoctor-$script" -p "daemon.$1" -- "$2" </dev/null >/dev/null 2>&1
}

# alarm TEXT: the operator must know, whatever becomes of the job. The command runs once in LOG_EVERY seconds, the log has each.
alarm() {
    say alert "$1"
    [ -n "${ALARM:-}" ] || return 0
    rang="${STATE:-}/alarm-${NODE:-}"
    now=$(date +%s)
    read -r last 2>/dev/null <"$rang" || last=0
    case $last in '' | *[!0-9]*) last=0 ;; esac
    case $LOG_EVERY in '' | *[!0-9]*) LOG_EVERY=3600 ;; esac # this may be the mistake that the alarm is about
    [ "$((now - last))" -ge "$LOG_EVERY" ] || return 0
    echo "$now" 2>/dev/null >"$rang"
    timeout -k 1 4 "$ALARM" "$1" </dev/null >/dev/null 2>&1
}

# plain MOST: standard input as one short line that neither a shell nor Slurm nor a terminal reads as more than words.
plain() {
    tr '\n\t;' '  ,' | LC_ALL=C tr -cd 'A-Za-z0-9 ._:/,()+<>=%#-' | sed 's/  */ /g; s/^ //; s/ $//' |
        awk -v most="$1" '{ if (length($0) > most) $0 = substr($0, 1, most - 3) "..."; print }'
}

# settings: the defaults, then gpudoctor.conf. Status 1 and `problem` when it cannot be used.
settings() {
    GPUDOCTOR=gpudoctor POLICY='' MEASURE=no MEASURE_PYTHON=''
    ON_UNKNOWN='' RETRY_AFTER=2 PROLOG_SECONDS=60 WITHOUT_GPUS=let-through
    DRAIN_ON_UNKNOWN=no RESUME=no RESUME_AFTER=2 HEALTH_SECONDS=20
    LOG_EVERY=3600 ALARM='' STATE=/var/lib/gpudoctor RECORDED=''
    NODE=${SLURMD_NODENAME:-$(uname -n)}
    NODE=${NODE%%.*}
    case $NODE in '' | *[!A-Za-z0-9_-]*) problem="the name of this node is not one of Slurm's"; return 1 ;; esac
    conf=${GPUDOCTOR_CONF:-$here/gpudoctor.conf}
    if [ -e "$conf" ]; then
        if anybodys "$conf"; then
            problem="$conf: anybody can write it"
            return 1
        fi
        # A mistake in a sourced file may end the shell that sources it, or only be complained of: `POLICY = x` sets nothing.
        # shellcheck disable=SC1090
        told=$(exec 2>&1; . "$conf" >/dev/null; echo end)
        if [ "$told" != end ]; then
            problem="$conf: the shell cannot read it: $(printf '%s' "${told%end}" | plain 200)"
            return 1
        fi
        # shellcheck disable=SC1090
        . "$conf"
        verdict=0
    fi
    one_of ON_UNKNOWN "$ON_UNKNOWN" '' hold let-through && one_of WITHOUT_GPUS "$WITHOUT_GPUS" let-through judge &&
        one_of MEASURE "$MEASURE" yes no && one_of RESUME "$RESUME" yes no &&
        one_of DRAIN_ON_UNKNOWN "$DRAIN_ON_UNKNOWN" yes no &&
        between RETRY_AFTER "$RETRY_AFTER" 0 60 &&
        between PROLOG_SECONDS "$PROLOG_SECONDS" "$((RETRY_AFTER + 18))" 3600 &&
        between RESUME_AFTER "$RESUME_AFTER" 1 1000 && between HEALTH_SECONDS "$HEALTH_SECONDS" 1 20 &&
        between LOG_EVERY "$LOG_EVERY" 0 9999999 || return 1
    case $STATE in /*) ;; *) problem="STATE=$STATE: cannot write there: it does not begin with /"; return 1 ;; esac
    if anybodys "$STATE"; then
        problem="STATE=$STATE: anybody can write there"
        return 1
    fi
    if ! mkdir -p "$STATE" 2>/dev/null || ! true 2>/dev/null >"$STATE/$script-$NODE-$$.out"; then
        problem="STATE=$STATE: cannot write there"
        return 1
    fi
    work="$STATE/$script-$NODE-$$"
}

# Root reads and writes here: not where somebody else may put a command, or a link to another file.
anybodys() { [ -n "$(find -L "$1" -prune -perm -0002 2>/dev/null)" ]; }

one_of() {
    name=$1 value=$2
    shift 2
    for word; do
        [ "$value" = "$word" ] && return 0
    done
    problem="$conf: $name=$value, but may be one of: $*"
    return 1
}

between() {
    case $2 in
        '' | *[!0-9]* | 0?* | ????????*) ;; # a shell may read 010 as eight
        *) [ "$2" -ge "$3" ] && [ "$2" -le "$4" ] && return 0 ;;
    esac
    problem="$conf: $1=$2, but must be a whole number from $3 to $4"
    return 1
}

# judge SECONDS [WORDS]: sets `outcome` (pass, fault, unknown, or refused: gpudoctor itself could not work) and `line`.
# Takes at most SECONDS + 4. A fault is only what gpudoctor's own line calls one: Python's status for a crash is 1 too.
judge() {
    seconds=$1
    shift
    [ -z "$POLICY" ] || set -- "$@" --policy "$POLICY"
    if [ -n "$RECORDED" ]; then
        set -- "$@" --test
        GPUDOCTOR_PROBE_DIR=$RECORDED
        export GPUDOCTOR_PROBE_DIR
    fi
    # To files and not through a pipe: a child that hangs in the driver would hold the pipe open, whoever is stopped.
    timeout -k 2 "$((seconds + 2))" "$GPUDOCTOR" gate "$@" --timeout "$seconds" -o "$work.json" -o "$work.txt" \
        >"$work.out" 2>"$work.err" </dev/null
    status=$?
    line=$(head -c 4000 "$work.out" | grep -a '^gpudoctor: ' | head -n 1 | plain 240)
    outcome=refused
    case "$status $line" in
        "0 gpudoctor: PASS"*) outcome=pass ;;
        "1 gpudoctor: FAIL"*) outcome=fault ;;
        "3 gpudoctor: UNKNOWN"*) outcome=unknown ;;
        124\ * | 137\ *)
            outcome=unknown
            line="gpudoctor: UNKNOWN no answer in $((seconds + 2)) s, stopped"
            ;;
        *) line="gpudoctor: ended with status $status: $(tail -c 600 "$work.err" | plain 400)" ;;
    esac
}

# keep NAME: what was last wrong here, for whoever looks at the node.
keep() {
    for kind in json txt; do
        [ -s "$work.$kind" ] && mv -f "$work.$kind" "$STATE/$1-$NODE.$kind"
    done
}

# unsaid TEXT: for the trap of EXIT. Whatever ended the script before it came to a judgement, somebody must know; and nothing
# that goes wrong here may change its status.
unsaid() { [ "$judged" = yes ] || (alarm "$1") 2>/dev/null || true; }

clean_up() {
    [ -z "${work:-}" ] || rm -f "$work.out" "$work.err" "$work.json" "$work.txt"
}

# What slurmd was started with is neither the job's nor the node's.
for name in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\|TORCH_NCCL_[A-Za-z0-9_]*\|CUDA_VISIBLE_DEVICES\|NVIDIA_VISIBLE_DEVICES\)=.*/\1/p'); do
    unset "$name"
done
LC_ALL=C.UTF-8 HOME=${HOME:-/root}
export LC_ALL HOME

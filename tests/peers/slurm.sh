#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# slurm.sh - the scripts of Documentation/clusters.md in a Slurm of one node
#
#	tests/peers/slurm.sh [BUILD]
#
# It needs slurmctld, slurmd and slurm-client of Debian, curl and jq, and no munge.  Slurm has its
# configuration, folders and ports for this run alone, and ends with it.  LIMIT=1 also waits for
# the time limit of a job, which takes up to two minutes.
#
# Each job must answer as kvrt serve in one process does.  A job that is stopped with a
# drain must finish its request.  No process and no file of shared memory may be left.

KVMM_TOP=$(realpath "${BASH_SOURCE%/*}/../..") || exit 2
KVMM_BUILD=$(realpath "${1:-$KVMM_TOP/build}") || exit 2
export KVMM_TOP KVMM_BUILD PATH=$KVMM_BUILD:$PATH
. "$KVMM_TOP/tests/scripts/checks.bash"

for tool in slurmctld slurmd sbatch srun scancel curl jq mpiexec kvrt kvmm-hold; do
	command -v $tool >/dev/null || { echo "slurm: $tool is missing"; exit 2; }
done

page=$KVMM_TOP/Documentation/clusters.md
model=$KVMM_TOP/tests/data/demo-model
node=$(hostname -s)
export SLURM_CONF=$work/slurm.conf POOL=64M KVMM_SLURM_TEST=$work TMPDIR=$work/tmp
unset KVMM_SOCKET
children=()
job=

# ours: pids of processes that inherited our environment from a job
ours()
{
	grep -lsazF "KVMM_SLURM_TEST=$work" /proc/[0-9]*/environ | sed 's/[^0-9]//g' |
		grep -vxE "$$|$BASHPID|$(IFS='|'; echo "${children[*]}")"
}

# kvmm_left: programs of kvmm of jobs
kvmm_left()
{
	local p

	for p in $(ours); do
		grep -xE 'kvrt|kvmm|kvmm-hold|swapd|kvmm-proc|mpiexec|orted|slurmstepd' /proc/$p/comm
	done 2>/dev/null
}

# within SECONDS COMMAND..: repeat it until it succeeds
within()
{
	local end=$((SECONDS + $1))

	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}

# note_segments: files of shared memory of Open MPI that processes of jobs map now
note_segments()
{
	local p

	for p in $(ours); do
		grep -ohE '/dev/shm/[a-z]+_segment[.][^ ]*' /proc/$p/maps
	done 2>/dev/null >>"$work/segments"
}

# segments_left: those of them that are still there
segments_left()
{
	local file

	sort -u "$work/segments" | while read -r file; do
		[ ! -e "$file" ] || echo "$file"
	done
}

none_left()	{ [ -z "$(kvmm_left)" ]; }
is_gone()	{ [ -z "$(squeue -h -o %i -j "$job" 2>/dev/null)" ]; }
is_ready()	{ curl -sfo /dev/null "$url/ready"; }
node_is_idle()	{ [ "$(sinfo -h -o %T)" = idle ]; }
in_log()	{ grep -qE -- "$1" "$work/out-$job"; }
in_log_not()	{ ! in_log "$1"; }
state_is()	{ scontrol show job "$job" | grep -q "JobState=$1 "; }

finish()
{
	scancel -u "$(id -un)" 2>/dev/null
	within 40 none_left
	[ ${#children[@]} = 0 ] || kill "${children[@]}" 2>/dev/null
	wait
	[ $nr_failures = 0 ] || tail -n 40 "$work"/out-* "$work"/*.log
	rm -rf "$work"
}
trap finish EXIT

# script NAME HEADING NUMBER: block number NUMBER of sh below a heading of the page
script()
{
	awk -v want="### $2" -v number="$3" '
		/^### / { below = $0 == want }
		/^```/ { open = !open && below && /^```sh/ && ++nr == number; next }
		open' "$page" >"$work/$1"
	check "the page has $1" [ "$(head -n 1 "$work/$1")" = '#!/bin/bash' ]
}

configure()
{
	local ports

	mkdir "$work/state" "$work/spool" "$TMPDIR"
	read -r -a ports < <(python3 -c '
import socket
s = [socket.socket() for i in range(3)]
for one in s:
    one.bind(("127.0.0.1", 0))
print(*[one.getsockname()[1] for one in s])')
	port=${ports[2]} url=http://127.0.0.1:${ports[2]}
	cat >"$SLURM_CONF" <<END
ClusterName=kvmm
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
AuthType=auth/none
CredType=cred/none
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
KillWait=30
NodeName=$node NodeAddr=127.0.0.1 CPUs=16 RealMemory=65536 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

start_slurm()
{
	slurmctld -D >"$work/slurmctld.log" 2>&1 &
	children+=($!)
	slurmd -D -N "$node" >"$work/slurmd.log" 2>&1 &
	children+=($!)
	within 30 node_is_idle
}

# submit SCRIPT ARG..: the number of the job in $job
submit()
{
	job=$(sbatch --parsable --chdir="$work" --output="$work/out-%j" --cpus-per-task=1 "${@:2}" "$work/$1" \
		"${args[@]}")
}

# complete TOKENS SAMPLES: the answer in $out
complete()
{
	run curl -s --max-time 60 "$url/v1/completions" -H 'Content-Type: application/json' -d '{
		"model": "demo-model", "temperature": 0, "ignore_eos": true, "max_tokens": '"$1"', "n": '"$2"',
		"prompt": "Once upon a time there was a little house in the wood, and in it"}'
}

field()		{ jq -r "$1" <<<"$out" 2>/dev/null; }
stopped()	{ jq -r "$1" "$work/answer" 2>/dev/null; }
text_is_same()	{ [ "$(field '.choices[0].text')" = "$text" ]; }
is_whole()	{ [ "$(stopped '.usage.completion_tokens')" = 7200 ]; }
is_503()	{ [ "$(stopped '.error.type')" = service_unavailable ]; }
has_cached()	{ [ "$(field '.usage.prompt_tokens_details.cached_tokens')" -gt 0 ]; }

# one_process: the text of one process without Slurm in $text
one_process()
{
	local daemon server

	KVMM_RUNDIR=$work/alone kvmm-hold --backend host --pool-size 64M 2>"$work/alone.log" &
	daemon=$!
	KVMM_RUNDIR=$work/alone kvrt serve "${args[@]}" --threads 1 2>>"$work/alone.log" &
	server=$!
	check 'one process answers' within 30 is_ready
	complete 48 1
	text=$(field '.choices[0].text')
	check 'the text of one process' [ "${#text}" -gt 20 ]
	kill $server
	wait $server
	kill $daemon
	wait $daemon
}

# answers NAME: the job serves, and has the text of one process
answers()
{
	check "$1: it answers" within 60 is_ready
	complete 48 1
	check "$1: the text of one process" text_is_same
	note_segments
}

is_busy()	{ curl -s "$url/metrics" | grep -q '^kvrt_num_requests_running{.*} [1-9]'; }

# stop_during NAME SECONDS COMMAND..: run it while the server works at a long request
stop_during()
{
	local name=$1 limit=$2

	shift 2
	(complete 900 8; echo "$out" >"$work/answer") &
	check "$name: the server works" within 10 is_busy
	"$@"
	check "$name: the job ends" within "$limit" is_gone
	wait $!
	out=$(cut -c1-300 "$work/answer"; jq -c .usage "$work/answer")
}

# drained NAME: the request was finished in order
drained()
{
	check "$1: the request is whole" is_whole
	check "$1: the log has the drain" in_log 'kvrt: finishing 1 request, for at most 20 s'
	check "$1: one signal" in_log_not 'a second signal: '
}

configure
args=("$model" --mode exact --port "$port")
script one 'One job' 1
script daemon 'A daemon that stays' 1
script server 'A daemon that stays' 2
script mpiexec 'Without PMIx' 1
one_process
check 'Slurm starts' start_slurm
run srun --mpi=list
check 'Slurm has PMIx' says 'pmix'

# ---- one job
unset KVMM_RUNDIR
submit one
answers 'one job'
stop_during 'one job, scancel -s TERM' 30 scancel -s TERM "$job"
drained 'one job, scancel -s TERM'
check 'one job: completed' state_is COMPLETED
check 'one job: the daemon ends last' [ "$(grep -n 'kvmm: SIGTERM' "$work/out-$job" | cut -d: -f1)" -gt \
	"$(grep -n 'kvrt: finishing' "$work/out-$job" | cut -d: -f1)" ]
check 'one job: no process is left' within 10 none_left

submit one
answers 'one job again'
stop_during 'one job, scancel' 35 scancel "$job"
check 'one job, scancel: the request gets 503' is_503
check 'one job, scancel: cancelled' state_is CANCELLED
check 'one job, scancel: no process is left' within 10 none_left

if [ "${LIMIT:-0}" = 1 ]; then
	submit one --time=1 --signal=TERM@45
	answers 'a time limit'
	check 'a time limit: the job ends' within 100 is_gone
	check 'a time limit: in order' in_log 'kvmm: SIGTERM: shutting down'
	check 'a time limit: completed' state_is COMPLETED
fi

# ---- the daemon in a job of its own
export KVMM_RUNDIR=$work/kv
saved=("${args[@]}") args=()
submit daemon
daemon_job=$job args=("${saved[@]}")
submit server
answers 'a server'
stop_during 'a server, scancel' 35 scancel "$job"
drained 'a server, scancel'

submit server
answers 'the next server'
check 'the next server finds the prefix' has_cached
stop_during 'the next server, scancel -s TERM' 35 scancel -s TERM "$job"
drained 'the next server, scancel -s TERM'
check 'the next server: completed' state_is COMPLETED

# ---- mpiexec
submit mpiexec
answers mpiexec
check 'mpiexec finds the prefix' has_cached
stop_during 'mpiexec, scancel -b -s TERM' 35 scancel -b -s TERM "$job"
drained 'mpiexec, scancel -b -s TERM'
check 'mpiexec: completed' state_is COMPLETED

submit mpiexec
answers 'mpiexec again'
stop_during 'mpiexec, scancel' 35 scancel "$job"
check 'mpiexec, scancel: no server is left' [ "$(kvmm_left | grep -cxE 'kvrt|mpiexec')" = 0 ]

job=$daemon_job
scancel "$job"
check 'the daemon: the job ends' within 35 is_gone
check 'the daemon: in order' in_log 'kvmm: SIGTERM: shutting down'

# ---- a daemon outside of Slurm, with a tenant
KVMM_RUNDIR=$work/service kvmm-hold --backend host --pool host:64M --pool host:64M \
	--tenant "alice,owner=$(id -un)" 2>"$work/service.log" &
service=$!
children+=($service)
check 'the service starts' within 30 test -S "$work/service/alice/attach.sock"
export KVMM_RUNDIR=$work/service/alice
for round in first second; do
	submit server
	answers "service, $round job"
	[ $round = first ] || check 'service: the second job finds the prefix' has_cached
	stop_during "service, $round job, scancel" 35 scancel "$job"
	drained "service, $round job, scancel"
done

# ---- srun without PMIx
for plugin in none pmi2; do
	run timeout 60 srun --mpi=$plugin -n 2 kvrt serve "${args[@]}" --tensor-parallel 2
	check "srun --mpi=$plugin is refused" rc_is 1
	check "srun --mpi=$plugin: the reason" says 'OMPI was not built with SLURM.s PMI'
done

kill $service
wait $service
children=("${children[@]:0:2}")
check 'no process is left at last' within 10 none_left
check 'files of Open MPI were seen' [ "$(sort -u "$work/segments" | wc -l)" -ge 16 ]
check 'no file of Open MPI is left' [ -z "$(segments_left)" ]
check 'no run directory is left' [ -z "$(ls -A "$TMPDIR")" ]
checks_done

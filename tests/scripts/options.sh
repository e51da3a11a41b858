#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# options.sh - every option in the manual, in the completion, in Documentation
#
# --help of each program is compared with each of them, both ways.  Bash itself runs
# the completion.
#
# budget: 20 s
. "${BASH_SOURCE%/*}/checks.bash"

# same NAME: the files $work/want and $work/have have the same lines
same()
{
	out=$(diff "$work/want" "$work/have")
	rc=$?
	check "$1" rc_is 0
}

# help_of PROGRAM COMMAND..: names of its options, with their dashes
help_of()
{
	"$KVMM_BUILD/$1" "${@:2}" --help | sed -nE 's/^  (--[a-z0-9-]+).*/\1/p' | sort -u
}

# offered WORD..: completions that bash offers for the last word, in $work/have
offered()
{
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
	"_${1//-/_}" 2>"$work/err"
	printf '%s\n' "${COMPREPLY[@]}" | sed '/^$/d' | sort -u >"$work/have"
	out=$(cat "$work/have" "$work/err")
	[ -s "$work/err" ] && rc=1 || rc=0
}

# level PROGRAM COMMAND..: check one table of options
level()
{
	local heading="$*"

	help_of "$@" >"$work/want"
	cat "$work/want" >>"$work/all"
	nr_checks=$((nr_checks + 1))
	[ -s "$work/want" ] || { echo "FAILED: $* has no options"; nr_failures=$((nr_failures + 1)); }
	# The section of the page is that of the command, or OPTIONS.
	[ $# -gt 1 ] || heading=OPTIONS
	sed -n '/^\.SH "*'"$heading"'"*$/,/^\.SH/p' "$work/$1.man" | sed 's/\\-/-/g' |
		sed -nE 's/^\\fB(--[a-z0-9-]+)\\fR.*/\1/p' | sort -u >"$work/have"
	same "$*: the manual"
	offered "$@" --
	same "$*: the completion"
}

for program in kvmm kvmm-hold swapd kvmm-proc kvctl kvtop kvrt; do
	"$KVMM_BUILD/$program" --print-man >"$work/$program.man"
	"$KVMM_BUILD/$program" --print-completion >"$work/$program.bash"
	run bash -n "$work/$program.bash"
	check "$program: bash reads it" rc_is 0
	# shellcheck disable=SC1090
	. "$work/$program.bash"
	run complete -p "$program"
	check "$program: bash knows it" says "-F _${program//-/_} $program"
done
: >"$work/all"
for program in kvmm kvmm-hold swapd kvmm-proc kvctl kvtop; do
	level "$program"
done
# Commands come from the help, so a new one cannot be forgotten here.
commands=$("$KVMM_BUILD/kvrt" --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
kinds=$("$KVMM_BUILD/kvrt" bench --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
for command in $commands; do
	[ "$command" = bench ] || level kvrt "$command"
done
for kind in $kinds; do
	level kvrt bench "$kind"
done
sort -u -o "$work/all" "$work/all"

# Completion of commands, of words of a choice, and of files.
printf '%s\n' $commands | sort >"$work/want"
offered kvrt ''
same 'kvrt: its commands'
printf '%s\n' $kinds | sort >"$work/want"
offered kvrt bench ''
same 'kvrt: kinds of bench'
"$KVMM_BUILD/kvctl" --help | sed '1,/^Commands:/d' | sed -nE 's/^  ([a-z_]+) ?.*/\1/p' | sort >"$work/want"
offered kvctl ''
same 'kvctl: its commands'
sed 's/\\-/-/g' "$work/kvctl.man" | sed -n '/^\.SH COMMANDS/,/^\.SH OPTIONS/p' |
	sed -nE 's/^\\fB([a-z_]+)\\fR.*/\1/p' | sort >"$work/have"
same 'kvctl: its commands in the manual'
printf 'auto\ncuda\nhost\n' >"$work/want"
offered kvmm --backend ''
same 'words of a choice'
offered kvmm --backend =
same 'the same behind ='
printf 'host\n' >"$work/want"
offered kvmm --backend = ho
same 'those that begin so'
printf 'auto\ninterleave\nlocal\n' >"$work/want"
offered kvmm-hold --host-numa ''
same 'words, and not what stands for a number'
: >"$work/want"
offered kvctl cat ''
same 'no command behind a command'
offered kvmm --pool-size ''
same 'nothing for a size'
offered kvctl swapon ''
same 'files are left to bash'

# Readers of manual pages accept each page without a warning.
"$KVMM_BUILD/kvmm" --print-config-man >"$work/kvmm.conf.man"
for page in "$work"/*.man; do
	if command -v mandoc >/dev/null; then
		out=$(mandoc -T lint -W warning "$page" | grep -v 'missing date')
		check "${page##*/}: mandoc" [ -z "$out" ]
	fi
	if command -v man >/dev/null && command -v groff >/dev/null; then
		out=$(man --warnings -E UTF-8 -l "$page" 2>&1 >"$work/text")
		check "${page##*/}: man" [ -z "$out" ]
		check "${page##*/}: its text" grep -q NAME "$work/text"
	fi
	# A line that begins with a dot is a request; the pages use only these.
	out=$(grep -E "^[.']" "$page" | grep -vE '^\.(TH|SH|SS|TP|PP|br|nf|fi|\\")')
	check "${page##*/}: nothing but our macros" [ -z "$out" ]
done
run cat "$work/kvmm.conf.man"
"$KVMM_BUILD/kvmm" --print-config | sed -nE 's/^#([a-z-]+) = .*/\1/p' | sort -u >"$work/want"
sed 's/\\-/-/g' "$work/kvmm.conf.man" | sed -nE 's/^\\fB([a-z-]+)\\fR = .*/\1/p' | sort -u >"$work/have"
same 'keys of the file in its page'

# Documentation names every option, and no option that does not exist.  Options of other
# programs are listed here.
cat >"$work/others" <<-'EOF'
	--add
	--collector
	--cpus-per-task
	--crash
	--enable-hierarchical-cache
	--events
	--first
	--from-literal
	--hicache-mem-layout
	--hicache-storage-backend
	--hicache-storage-backend-extra-config
	--job-name
	--jobs
	--kv-transfer-config
	--last
	--list
	--mem
	--allow-run-as-root
	--model-path
	--mpi
	--no-create-home
	--nodelist
	--nodes
	--now
	--ntasks
	--out
	--oversubscribe
	--part
	--path
	--prefix-caching-hash-algo
	--print-completion
	--print-config
	--print-man
	--pty
	--report-api-errors
	--seeds
	--shell
	--shm-size
	--signal
	--system
	--tiny
	--unix-socket
EOF
# check_server_doc compares this table with kvrt serve.
sed -nE '/^\| vllm serve/,/^$/s/^\| `(--[a-z-]+)`.*/\1/p' "$KVMM_TOP/Documentation/server.md" >>"$work/others"
cat "$KVMM_TOP"/README.md "$KVMM_TOP"/Documentation/*.md "$KVMM_TOP"/Documentation/measurements/*.md |
	grep -oE '(^|[^A-Za-z0-9-])--[a-z][a-z0-9]*(-[a-z0-9]+)*([^a-z0-9-]|$)' |
	grep -oE -- '--[a-z0-9-]+' | sort -u >"$work/docs"
out=$(comm -23 "$work/all" "$work/docs")
check 'every option is documented' [ -z "$out" ]
out=$(sort -u "$work/all" "$work/others" | comm -13 - "$work/docs")
check 'every option that is documented is one' [ -z "$out" ]
checks_done

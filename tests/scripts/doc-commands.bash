# SPDX-License-Identifier: Apache-2.0
#
# doc-commands.bash - runs the commands that a page of the documentation gives its reader
#
# Every block of a page is fenced, and the first word behind the fence is its kind;
# Documentation/testing.md tells writers the same:
#
#	console		commands, each behind "$ " ("> " continues a command), and
#			their output
#	sh		commands, one a line, with any output; a line that begins with
#			a blank continues a command, and so does a line behind a \
#	conf PROGRAM	a file of options, which PROGRAM must accept
#	text		nothing to type
#
# Behind console, sh or conf may stand "not run: REASON", or "needs NAME" (curl, root, cffi):
# then the block is left out on machines without it.  Blocks that are left out are
# counted and reported.  "beside a daemon" is for pages that do not start one: a daemon
# with a tenant lab then runs, and a server at port 8000 with the domain chat, as in "To
# try this page" of the admin guide.  A file of options is kept in the folder for later
# blocks, as kvmm.conf or kvrt.conf.
#
# A command must exit 0 and print the output on the page.  In that output a number
# stands for any number (0 for 0 only, another one for any that is not 0), blanks for
# any blanks, "..." for any text in a line, and alone on a line for any lines.  Pages
# leave out the time that begins a line of a log.  A command that ends with & must
# print it soon.
#
# All blocks of a page share one shell, in a folder that looks like a clone, with the
# programs in PATH and a separate run directory; a free port replaces port 8000.  A page
# must end the processes that it starts.

# doc_blocks PAGE: "LINE KIND REST" for each block, "LINE ! ERROR" for each error of form
doc_blocks()
{
	awk '
	BEGIN {
		prog = "((sudo )?([A-Z_]+=[^ ]* )?([a-z.]+/)*(kvmm|kvmm-hold|kvmm-proc|kvctl|kvtop|kvrt|swapd|make|" \
			"curl|systemctl|docker|git|cat|grep|echo|printf|useradd) +[-a-zA-Z\"$./0-9]|(build|tests)/[a-z])"
	}
	/^ *(```|~~~)/ && !open {
		open = NR; kind = ""; nr = 0
		if ($0 !~ /^```[a-z]/) { print NR " ! a fence without a word that says what it is"; kind = "text"; next }
		info = substr($0, 4); kind = info; sub(/ .*/, "", kind)
		if (kind !~ /^(console|sh|conf|text|json|python|c)$/)
			print NR " ! no kind of block is called " kind
		rest = substr(info, length(kind) + 2)
		if (kind == "conf" && rest !~ /^(kvmm|kvrt)( |$)/) print NR " ! conf of which program?"
		if (rest != "" && kind != "conf" && rest !~ /^(not run: .|needs (curl|root|cffi)$|beside a daemon$)/)
			print NR " ! what is \"" rest "\"?"
		if (kind == "text" && rest != "") print NR " ! text is never run"
		print NR " " info
		next
	}
	/^ *(```|~~~)/ { if (kind == "console" && !nr) print open " ! no command in it"; open = 0; blank = 0; next }
	open && kind == "console" { if (/^\$ ./) nr++; else if (!nr) print NR " ! output before any command" }
	open && kind ~ /^(text|json|python|c)$/ {
		if (/^\$ ?[a-z]/ || $0 ~ "^ *" prog && !/^ *[a-z]+ +(----|-- |host pid|daemon,|[0-9]+ (answers|attached))/)
			print NR " ! a command in a block that is not run"
	}
	open { next }
	/^    +[^ ]/ && (blank || NR == 1) { print NR " ! an indented block" }
	{ blank = /^ *$/ }
	END { if (open) print open " ! a fence that is not closed" }' "$1"
}

# doc_count PAGE: number of its commands, counted apart from the code that runs them
doc_count()
{
	awk '
	/^```/ { if (kind != "") kind = ""; else { kind = substr($1, 4); if (kind == "conf") n++ }; go = 0; next }
	kind == "console" && /^\$ / { n++ }
	kind == "sh" { if (!go && /^[^ #]/) n++; go = /\\$/ }
	END { print n + 0 }' "$1"
}

# pattern_of TEXT: turn the output on the page into an expression, in $pattern
pattern_of()
{
	local zero='0+(\\.0+)?' number='([0-9]*[1-9][0-9]*(\\.[0-9]+)?|0+\\.[0-9]*[1-9][0-9]*)'

	# Parts that become expressions are marked first: 1 text, 2 a number, 3 zero, 4 lines, 5 a newline.
	pattern=$(sed -E -e 's/^\.\.\.$/\x04/; t' -e 's/[][\\.*^$+?(){}|]/\\&/g' -e 's/\\\.\\\.\\\./\x01/g' \
		-e 's/[0-9]+(\\\.[0-9]+)?/\x02&\x02/g' -e 's/\x020+(\\\.0+)?\x02/\x03/g' \
		-e 's/\x02[^\x02]*\x02/\x02/g' -e 's/[[:blank:]]+/[[:blank:]]+/g' \
		-e "s/\x03/$zero/g; s/\x02/$number/g" -e 's/\x01/[^\x05]*/g; s/$/[[:blank:]]*\x05/' <<<"$1")
	# Remove the newlines that sed added; newlines of the text are marked.
	pattern=${pattern//$'\n'/}
	pattern=${pattern//$'\x04'/$'([^\x05]*\x05)*'}
	pattern=^${pattern//$'\x05'/$'\n'}$
}

# has NEED: does this machine have it?
has()
{
	case $1 in
	curl)	command -v curl >/dev/null ;;
	root)	[ "$(id -u)" = 0 ] ;;
	# Python cannot load a sanitized library.
	cffi)	[ -z "${KVMM_SANITIZER:-}" ] && python3 -c 'import cffi' 2>/dev/null ;;
	esac
}

# tell WORD LINE TEXT: write a line of results
tell()
{
	printf '%s %s %s\n' "$1" "$2" "${3//$'\n'/ }" >>"$results"
}

# typed LINE WANT COMMAND: run a command and check its output; WANT is - for any output
typed()
{
	local doc_line=$1 doc_want=$2 doc_cmd=$3 doc_rc doc_n doc_out doc_shown pattern

	nr_typed=$((nr_typed + 1))
	doc_out=$world/out.$nr_typed
	printf '%s:%s: $ %s\n' "$page" "$doc_line" "$doc_cmd"
	doc_cmd=${doc_cmd//8000/$port}
	set +u
	eval "$doc_cmd" >"$doc_out" 2>&1 </dev/null
	doc_rc=$?
	set -u
	[ "$doc_want" = - ] || pattern_of "$doc_want"
	for ((doc_n = 0; doc_n < 600; doc_n++)); do
		[ "$doc_want" != - ] || break
		doc_shown=$(sed -E 's/^[-0-9]{10}T[0-9:.]+Z //' "$doc_out")
		[[ ${doc_shown//$port/8000}$'\n' =~ $pattern ]] && break
		[[ $doc_cmd == *'&' ]] || { doc_n=600; break; }
		sleep 0.05
	done
	if [ $doc_rc = 0 ] && [ $doc_n -lt 600 ]; then
		tell ok "$doc_line" "$doc_cmd"
		return
	fi
	tell bad "$doc_line" "$doc_cmd"
	printf '  exit status %d, it printed:\n' $doc_rc
	sed 's/^/    /' "$doc_out"
	[ "$doc_want" = - ] || { echo '  the page says:'; sed 's/^/    /' <<<"$doc_want"; }
}

# serve_judges FILE: does kvrt serve with these options?
serve_judges()
{
	local child i

	: >"$1.log"
	kvrt serve --config "$1" --port 0 --load-format dummy >>"$1.log" 2>&1 &
	child=$!
	for ((i = 0; i < 200; i++)); do
		grep -q 'listening on' "$1.log" && break
		kill -0 $child 2>/dev/null || break
		sleep 0.05
	done
	kill $child 2>/dev/null
	wait $child
	cat "$1.log"
	grep -q 'listening on' "$1.log"
}

# judge_conf LINE PROGRAM BODY: check a file of options.  Models are replaced by the one
# in the tree, and users that make install would make by the user of this test.
judge_conf()
{
	local file=$world/$2.conf

	sed -E "s,/srv/models/[a-z0-9-]+,$KVMM_TREE/tests/data/demo-model," <<<"$3" >"$file"
	getent passwd kvrt >/dev/null || sed -i "s/owner=kvrt/owner=$(id -u)/" "$file"
	chmod 600 "$file"
	cp -p "$file" "$2.conf"
	case $2 in
	kvmm)	typed "$1" - "kvmm --check-config '$file'" ;;
	kvrt)	typed "$1" - "serve_judges '$file'" ;;
	esac
}

# run_block LINE KIND BODY: run all commands of a block
run_block()
{
	local line=$1 kind=$2 at=0 cmd= want= text go=

	[ "$kind" = console ] || want=-
	while IFS= read -r text; do
		line=$((line + 1))
		if [ "$kind" = console ] && [[ $text == '> '* ]] && [ -n "$go" ]; then
			cmd+=$'\n'${text:2}
		elif [ "$kind" = console ] && [[ $text != '$ '* ]]; then
			want+=${want:+$'\n'}$text
			go=
		elif [ "$kind" = sh ] && [[ $text == ' '* || $cmd == *'\' ]]; then
			cmd+=$'\n'$text
		elif [ "$kind" = sh ] && [[ $text == '#'* || -z $text ]]; then
			continue
		else
			[ -z "$cmd" ] || typed $at "$want" "$cmd"
			at=$line go=1
			case $kind in
			console)	cmd=${text:2} want= ;;
			sh)		cmd=$text ;;
			esac
		fi
	done <<<"$3"
	[ -z "$cmd" ] || typed $at "$want" "$cmd"
}

# excuse LINE KIND BODY REASON: count the commands of a block, run none
excuse()
{
	local n

	n=$(printf '```%s\n%s\n```\n' "$2" "$3" >"$world/block"; doc_count "$world/block")
	for ((; n > 0; n--)); do
		tell not "$1" "$4"
	done
}

# block LINE INFO BODY: run a block, or report the reason why not
block()
{
	local kind=${2%% *} rest=

	[[ $2 != *' '* ]] || rest=${2#* }
	case $kind in
	console|sh|conf) ;;
	*)	return ;;
	esac
	if [[ $rest == *'not run: '* ]]; then
		excuse "$1" "$kind" "$3" "${rest#*not run: }"
	elif [[ $rest == 'needs '* ]] && ! has "${rest#needs }"; then
		excuse "$1" "$kind" "$3" "${rest#needs } is not there"
	elif [[ $rest == 'beside a daemon' ]]; then
		beside
		run_block "$1" "$kind" "$3"
	elif [ "$kind" = conf ]; then
		judge_conf "$1" "${rest%% *}" "$3"
	else
		run_block "$1" "$kind" "$3"
	fi
}

# inline_of PAGE: "LINE COMMAND" for the commands of kvctl, kvtop and kvmm-proc that the
# text has in backticks; chat replaces NAME of a domain
inline_of()
{
	awk '
	/^```/ { open = !open }
	!open {
		line = $0
		while (match(line, /`(sudo )?(kvctl|kvtop|kvmm-proc) [^`]+`/)) {
			print FNR " " substr(line, RSTART + 1, RLENGTH - 2)
			line = substr(line, RSTART + RLENGTH)
		}
	}' "$1" | sed 's,domain/NAME/,domain/chat/,g'
}

# type_inline PAGE: run those that name no place of the reader and change no program
type_inline()
{
	local line cmd

	while read -r line cmd; do
		case $cmd in
		*[A-Z][A-Z]*|*/usr/*|sudo*|*swapon*|*swapoff*|*--unmount*|*upgrade*)
			tell not "$line" "\`$cmd\` has a name to fill in, or is typed in a block" ;;
		'kvctl cat '*|'kvctl ls'*|'kvctl set '*|'kvctl check'|'kvctl version'|*' wait'|'kvtop --once'*|\
		'kvctl --'*)
			typed "$line" - "$cmd" ;;
		*)	tell not "$line" "\`$cmd\` is one half of a command, or draws on a terminal" ;;
		esac
	done < <(inline_of "$1")
}

# beside: start the daemon and the server for pages that start none, once
beside()
{
	[ -z "$daemon" ] || return 0
	kvmm-hold --backend host --pool-size 64M --host-size 16M --area-max 64M --tenant lab >"$world/daemon.log" 2>&1 &
	daemon=$!
	kvctl --timeout 60 wait || cat "$world/daemon.log"
	: >"$world/serve.log"
	kvrt serve tests/data/demo-model --domain chat --port "$port" >>"$world/serve.log" 2>&1 &
	server=$!
	until grep -q ready: "$world/serve.log"; do
		kill -0 $server || { cat "$world/serve.log"; return; }
		sleep 0.05
	done
}

# end_world: end all processes of the page
end_world()
{
	local pid left

	left=$(jobs -pr)
	for pid in $server $left; do
		kill "$pid" 2>/dev/null
	done
	wait 2>/dev/null
}

# free_port: a port at which no process listens, in $port
# Below 32768: from there on the kernel gives ports to connections.
free_port()
{
	while port=$((RANDOM % 12000 + 20000)); do
		(exec 9<>/dev/tcp/127.0.0.1/$port) 2>/dev/null || return
	done
}

# make_world: make a folder that looks like the tree, and set the variables of a user
make_world()
{
	local f

	mkdir -p "$world/tree" "$world/run"
	for f in "$KVMM_TOP"/*; do
		[ "${f##*/}" = build ] || ln -s "$f" "$world/tree/"
	done
	ln -s "$KVMM_BUILD" "$world/tree/build"
	export PATH="$KVMM_BUILD:$PATH" XDG_RUNTIME_DIR=$world/run TMPDIR=$world
	unset KVMM_RUNDIR KVMM_SOCKET KVMM_BUILD KVMM_TOP
	KVMM_TREE=$world/tree
	cd "$KVMM_TREE" || exit 1
}

# type_page PAGE [inline]: run the blocks of a page, in a separate shell; commands of its
# text come before the last block, which ends the daemon
type_page()
{
	local text line=0 from=0 info= body= last job left= daemon= server=

	last=$(grep -nE '^```(console|sh)( needs|$)' "$1" | tail -n 1 | sed 's/:.*//')
	make_world
	while IFS= read -r text; do
		line=$((line + 1))
		if [[ $text != '```'* ]]; then
			[ -z "$info" ] || body+=$text$'\n'
		elif [ -z "$info" ]; then
			from=$line info=${text:3} body=
			[ "${2-}" != inline ] || [ $from != "$last" ] || type_inline "$1"
		else
			block $from "$info" "${body%$'\n'}"
			info=
		fi
	done <"$1"
	for job in $(jobs -pr); do
		[ "$job" = "$daemon" ] || [ "$job" = "$server" ] || left=$job
	done
	[ -z "$left" ] || tell bad $line 'what the page started goes on when it ends'
	end_world
}

# doc_page PAGE [inline]: run a page, and check that no command was forgotten
doc_page()
{
	local page=$1 world=$work/w$nr_pages results=$work/results.$$ nr_typed=0 port word line text
	local nr_ok=0 nr_not=0 nr_all

	nr_pages=$((nr_pages + 1))
	mkdir -p "$world"
	: >"$results"
	free_port
	nr_all=$(doc_count "$KVMM_TOP/$page")
	[ -z "${2-}" ] || nr_all=$((nr_all + $(inline_of "$KVMM_TOP/$page" | wc -l)))
	(type_page "$KVMM_TOP/$page" "${2-}")
	while read -r word line text; do
		case $word in
		ok)	nr_ok=$((nr_ok + 1)); check "$page:$line" true ;;
		not)	nr_not=$((nr_not + 1)); echo "$page:$line: not run: $text" ;;
		*)	rc=1 out="$text"; check "$page:$line: $text" false ;;
		esac
	done <"$results"
	nr_run=$((nr_run + nr_ok)) nr_excused=$((nr_excused + nr_not))
	out="run $nr_ok, left out $nr_not of $nr_all"
	check "$page: every command was run or left out with a reason" \
		[ $nr_all = $((nr_ok + nr_not + $(grep -c '^bad [0-9]* .*' "$results"))) ]
}

# doc_form PAGE: check that every block has a kind
doc_form()
{
	out=$(doc_blocks "$KVMM_TOP/$1" | sed -nE "s|^([0-9]+) ! |$1:\1: |p")
	check "$1: every block says what it is" [ -z "$out" ]
}

# doc_total: print the numbers of run and left-out commands, for tests/run
doc_total()
{
	echo "total: $nr_run commands of the documentation run, $nr_excused left out with a reason"
}

nr_pages=0
nr_run=0
nr_excused=0

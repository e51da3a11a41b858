#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# doc-sources.sh - generated pages and pictures agree with their sources
#
# The ABI reference must have every public name of the header, each with words.  Every
# picture must be the drawing of its source.  Each block of each page must say whether
# it is run.  The script also provokes each of these complaints.
#
# budget: 20 s
. "${BASH_SOURCE%/*}/checks.bash"
. "${BASH_SOURCE%/*}/doc-commands.bash"

header=$KVMM_TOP/include/uapi/kvmm.h
layout=$KVMM_TOP/tests/data/uapi-layout.txt
page=$KVMM_TOP/Documentation/abi-reference.md
figures=$KVMM_TOP/Documentation/figures

# made SCRIPT FILE..: run a script; its output in $work/made, its complaints in $out
made()
{
	out=$(awk -f "$KVMM_TOP/.ci/$1.awk" "${@:2}" 2>&1 >"$work/made")
	rc=$?
}

# ---- the reference of the ABI
made abi-reference "$layout" "$header"
check 'every name of the header has words' rc_is 0
check 'abi-reference.md is current: make pages' cmp "$work/made" "$page"

# Counted apart from the script: names in the header and in the page, both ways.
grep -oE '^#define KVMM_[A-Z_]+|^struct kvmm_[a-z_]+ \{' "$header" | grep -v ASSERT |
	sed 's/^#define //; s/ {$//' | sort >"$work/want"
{
	sed -nE 's/^### (struct kvmm_[a-z_]+)$/\1/p' "$page"
	sed -nE 's/^\| ([0-9]+ \| )?`(KVMM_[A-Z_]+)[(`].*/\2/p' "$page"
} | sort >"$work/have"
run diff "$work/want" "$work/have"
check 'names of the header and of the reference' rc_is 0
check 'there are names' [ "$(wc -l <"$work/want")" -gt 100 ]

# wrong NAME SCRIPT TEXT: change the header by SCRIPT of sed; TEXT is the complaint
wrong()
{
	sed "$2" "$header" >"$work/kvmm.h"
	made abi-reference "$layout" "$work/kvmm.h"
	check "$1: exit status" rc_is 1
	check "$1: what it says" says "$3"
}

wrong 'a number without words' 's|^\(#define KVMM_EV_MAP[^/]*\)/.*|\1|' 'KVMM_EV_MAP has no comment$'
wrong 'a verb that says no results' 's|kvmm_seq_arg; kvmm_seq_res; ||' 'KVMM_OP_SEQ_CLOSE does not say'
wrong 'a field without words' '/^ \* @salt:/d' 'struct kvmm_open_arg: salt is not described$'
wrong 'words for no field' 's/^ \* @salt:/ * @pepper:/' 'struct kvmm_open_arg has no pepper$'
wrong 'a struct without words' 's/^ \* struct kvmm_cqe - /   /' 'struct kvmm_cqe has no kernel-doc$'
wrong 'a field that the list lacks' 's/^\t__u64	salt;/&\n\t__u64	pepper;/' 'kvmm_open_arg has other fields'
wrong 'a number that is gone' '/^#define KVMM_EV_MAP/d' 'KVMM_EV_MAP is in the list of numbers alone'

# ---- the files of the core
cd "$KVMM_TOP" || exit 2
out=$(awk -f .ci/core-map.awk kvmm/core/ROOMS kvmm/core/*/*.c 2>&1 >"$work/made")
rc=$?
check 'each file of the core has its purpose' rc_is 0
check 'core-files.md is current: make pages' cmp "$work/made" Documentation/core-files.md
mkdir -p "$work/mem" && printf '// x\n/*\n * other.c - a name of another file\n' >"$work/mem/one.c"
out=$(awk -f .ci/core-map.awk kvmm/core/ROOMS "$work/mem/one.c" 2>&1 >/dev/null)
check 'a head that names another file' says 'one.c:3: not " \* one.c - "'

# ---- pictures
for fig in "$figures"/*.fig "$figures"/*.screen; do
	name=${fig##*/}
	case $name in
	*.fig)	made figure "$fig" ;;
	*)	made screen "$fig" ;;
	esac
	check "$name is drawn" rc_is 0
	check "${name%.*}.svg is current: make pages" cmp "$work/made" "${fig%.*}.svg"
	check "${name%.*}.svg is in a page" grep -qF "/${name%.*}.svg)" <<<"$(sed 's,(figures,(/figures,' \
		"$KVMM_TOP"/README.md "$KVMM_TOP"/Documentation/*.md)"
	check "${name%.*}.svg has a title" grep -q '<title>..*</title>' "$work/made"
done
check 'each picture has a source' [ "$(ls "$figures" | sed -n 's/\.svg$//p')" = "$(ls "$figures" | sed -n 's/\.fig$//p; s/\.screen$//p')" ]
if command -v xmllint >/dev/null; then
	run xmllint --noout "$figures"/*.svg
	check 'pictures are XML' rc_is 0
else
	echo 'note: xmllint is not here: that pictures are XML was not looked at'
fi

# undrawn NAME LINE TEXT: LINE cannot be drawn; TEXT is the complaint
undrawn()
{
	printf 'size 200 100\ntitle T\n%s\n' "$2" >"$work/x.fig"
	made figure "$work/x.fig"
	check "$1: exit status" rc_is 1
	check "$1: what it says" says "^$work/x.fig:3: $3"
}

undrawn 'a text wider than its box' 'box 10 10 60 30 plain much too long a text' '"much too long a text" is too long'
undrawn 'a text past the border' 'text 150 20 left past the border' '"past the border" is too long'
undrawn 'a kind that is none' 'box 10 10 60 30 server x' 'no kind is called server'
undrawn 'a thing that is none' 'circle 10 10 5' 'what is "circle"'
undrawn 'a line with one end' 'arrow 10 10' 'a line has two ends'

# A screen: its colours, marks and bars; what it cannot draw is a complaint.
printf 'A & B\n\e[1m\e[36mbold\e[0;7m mark<\e[0m\e[39m \342\226\204\n' >"$work/x.screen"
made screen "$work/x.screen"
check 'a screen is drawn' rc_is 0
out=$(cat "$work/made")
check 'a screen: its title' says '^<title>A &amp; B</title>$'
check 'a screen: a colour' says '<text x="8" .*fill="#5fd7ff" font-weight="bold" textLength="32">bold</text>'
check 'a screen: a mark' says '^<rect x="40" y="17" width="48" '
check 'a screen: half a bar' says 'd="M96 34h8v-8\.5h-8z"'
printf 'title\n\e[2J\n' >"$work/x.screen"
made screen "$work/x.screen"
check 'a screen with another escape' says "^$work/x.screen:2: a"
printf 'title\n\e[95mx\n' >"$work/x.screen"
made screen "$work/x.screen"
check 'a screen with another colour' says "^$work/x.screen:2: no such escape: 95"

# ---- the form of all pages
for name in README.md Documentation/*.md Documentation/measurements/*.md; do
	cd "$KVMM_TOP" || exit 1
	out=$(doc_blocks "$name" | sed -nE "s|^([0-9]+) ! |$name:\1: |p")
	check "$name: every block says what it is" [ -z "$out" ]
done

# escapes NAME TEXT PATTERN: a page with this block must cause a complaint
escapes()
{
	printf 'Words.\n\n%b\n' "$2" >"$work/page.md"
	out=$(doc_blocks "$work/page.md")
	check "$1" says "$3"
}

escapes 'a block without a word' '```\nkvctl ls\n```' '^3 ! a fence without a word'
escapes 'an indented block' '    kvctl ls' '^3 ! an indented block'
escapes 'a command in a text' '```text\nkvctl cat meminfo\n```' '^4 ! a command'
escapes 'a prompt in a text' '```text\n$ ls\n```' '^4 ! a command'
escapes 'no reason' '```sh not run:\nkvctl ls\n```' '^3 ! what is "not run:"'
escapes 'a word that is none' '```bash\nkvctl ls\n```' '^3 ! no kind of block is called bash'
escapes 'no end' '```sh\nkvctl ls' '^3 ! a fence that is not closed'
escapes 'output alone' '```console\nok\n```' '! no command in it'

# fits PAGE OUTPUT: does OUTPUT fit the output on a page?
fits()
{
	pattern_of "$1"
	out="$2 for $1"
	[[ $2$'\n' =~ $pattern ]]
}
misses()	{ ! fits "$@"; }

check 'another number' fits 'pgcow 29' 'pgcow 7'
check 'a fraction' fits 'took 0.4 s' 'took 12.25 s'
check 'no 0 for a number' misses 'pgcow 29' 'pgcow 0'
check 'no number for 0' misses 'swapped 0' 'swapped 3'
check 'no 0.00 for 0.01' misses 'some 0.01' 'some 0.00'
check 'an exponent' fits 'epsilon 1e-05' 'epsilon 1e-06'
check 'blanks' fits 'a   b' $'a\tb'
check 'another word' misses 'ok' 'no'
check 'one line more' misses 'ok' $'ok\nno'
check 'lines left out' fits $'a\n...\nd' $'a\nb\nc\nd'
check 'the line behind these' misses $'a\n...\nd' $'a\nb\nc\ne'
check 'text left out' fits 'a ... (b)' 'a x.y (b)'
check 'a dot is a dot' misses 'a.b' 'axb'
check 'brackets' fits '[1.2] a|b (c)*' '[3.4] a|b (c)*'

# judged NAME PAGE SUMMARY: run a page of these lines and check the summary
mkdir "$work/top"
nr_judged=0
judged()
{
	nr_judged=$((nr_judged + 1))
	printf '%b\n' "$2" >"$work/top/page.md"
	out=$(
		KVMM_TOP=$work/top nr_pages=$nr_judged
		nr_checks=0 nr_failures=0 nr_run=0 nr_excused=0
		doc_page page.md
		echo "failed $nr_failures, run $nr_run, left out $nr_excused"
	)
	rc=$?
	check "$1" last_line_is "$3"
}

judged 'a page that is right' '```console\n$ x=1; echo $x\n1\n$ echo $x$x\n11\n```' 'failed 0, run 2, left out 0'
judged 'a command that goes on' '```sh\necho a \\\n    b >f\ngrep -x "a b" f\n```' 'failed 0, run 2, left out 0'
judged 'a document in a command' '```console\n$ cat <<END\n> 1\n> END\n1\n```' 'failed 0, run 1, left out 0'
judged 'a command that fails' '```sh\ntrue\nfalse\n```' 'failed 1, run 1, left out 0'
judged 'one that prints something else' '```console\n$ echo no\nyes\n```' 'failed 1, run 0, left out 0'
judged 'one that prints more' '```console\n$ echo 1; echo 2\n1\n```' 'failed 1, run 0, left out 0'
judged 'one that is left out' '```sh not run: it is the first\nfalse\n```\n\n```sh\ntrue\n```' \
	'failed 0, run 1, left out 1'
judged 'one that is not there' '```sh\nkvmm-none\n```' 'failed 1, run 0, left out 0'
judged 'what goes on at the end' '```sh\nsleep 60 &\n```' 'failed 2, run 1, left out 0'
judged 'a file of options that is wrong' '```conf kvmm\npool_size = 1G\n```' 'failed 1, run 0, left out 0'
judged 'one that is right' '```conf kvmm\npool-size = 1G\n```' 'failed 0, run 1, left out 0'
judged 'one for a server that is wrong' '```conf kvrt\nports = 1\n```' 'failed 1, run 0, left out 0'
checks_done

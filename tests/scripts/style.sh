#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# style.sh - provoke a complaint of every rule of check-style
#
# One file for each rule, with one error.
. "${BASH_SOURCE%/*}/checks.bash"

tree=$work/tree
id='SPDX-License-Identifier: Apache-2.0'

style()
{
	run env KVMM_STYLE_TOP="$tree" "$KVMM_TOP/.ci/check-style"
}

# put FILE: write standard input behind the SPDX line for its kind
put()
{
	mkdir -p "$tree/$(dirname "$1")"
	{
		case $1 in
		*.c)	echo "// $id" ;;
		*.h)	echo "/* $id */" ;;
		esac
		cat
	} >"$tree/$1"
}

# good FILE: no complaint; bad FILE LINE TEXT: exactly this complaint
good()
{
	put "$1"
	style
	check "good: $1" last_line_is "check-style: 1 files, 0 complaints"
	check "good: $1: status" rc_is 0
	rm -rf "$tree"
}

bad()
{
	put "$1"
	style
	check "bad: $1: $3: complaint" says "^$1:$2: .*$3"
	check "bad: $1: $3: only it" last_line_is "check-style: 1 files, 1 complaints"
	check "bad: $1: $3: status" rc_is 1
	rm -rf "$tree"
}

tab=$'\t'
lines()	{ for ((i = 0; i < $1; i++)); do echo "${tab}f();"; done; }

good a.c <<EOF2
/* a // here, "quoted // there" */
static const char *s = "/* no comment // \\" ";

int main(void)
{
	return s[0] == '"'; /* fine */
}
EOF2
good include/kvmm/a.h <<EOF2
/**
 * f() - do it
 * @a: a number
 * @cb: a callback
 */
int f(int a[2], int (*cb)(int b));

/* Two of a kind. */
void g(void);
void h(const char *fmt, ...) __printf(1, 2);

static inline int k(int a)
{
	return a;
}

struct s {
	int (*op)(int);
};
EOF2
good kvmm/core/a.c <<<'#include <string.h>

int a(struct ops *o)
{
	return o->read(o) + o->x.write(o);	/* malloc() */
}'

bad a.c 2 "// comment" <<<'int a;	// no'
bad a.c 2 "before the end of the line" <<<'int a; '
bad a.c 3 "indented by spaces" <<<$'int a =\n    3;'
bad a.c 3 "spaces where a tab" <<<$'int a =\n\t        3;'
bad a.c 2 "more than 100" <<<"int $(printf 'a%.0s' {1..100});"
bad a.c 3 "81 lines" < <(printf 'int a(void)\n{\n'; lines 80; echo '}')
good a.c < <(printf 'int a(void)\n{\n'; lines 79; echo '}')
bad a.c 1201 "1201 lines" < <(for ((i = 0; i < 1200; i++)); do echo "int a$i;"; done)
bad a.c 2 "brace" <<<$'int a(void) {\n}'
bad a.c 2 "typedef" <<<'typedef struct s s_t;'
bad a.c 2 "unfinished" <<<"/* to""do: later */"
bad a.c 2 "unfinished" <<<"/* not yet imple""mented */"
put a.c <<<$'int a;\r\nint b;'
style
check "carriage returns" says '^a.c:2: a carriage return'
rm -rf "$tree"
bad a.c 3 "blank line at the end" <<<$'int a;\n'
bad tests/unit/check_a.c 2 "no assertion" <<<'START_TEST(x)'
bad kvmm/core/a.c 4 "calls malloc" <<<$'int a(void)\n{\n\treturn malloc(3);\n}'
bad kvmm/core/a.c 2 "unistd.h" <<<'#include <unistd.h>'
bad include/kvmm/a.h 2 "no comment right above" <<<'int f(int a);'
bad include/kvmm/a.h 6 "no parameter @b" <<<$'/**\n * f() - do it\n * @b: what\n */\nint f(int a);'
bad include/kvmm/a.h 3 "does not start" <<<$'/** g() - do it */\nint f(int a);'
bad x.sh 1 "no line" <<<'echo'
# Of 1,000 words three, or one in a short file.
good a.c <<<"/* a block knows whose it is */"
bad a.c 2 "2 of 10 words .* name the noun" <<<"/* what others hold is theirs, and who waits gets it */"
good a.md <<<"A block is held by a sequence."
bad a.md 1 "2 of 7 words" <<<"Nobody waits, and what goes is cache."

put a.c <<<'int a;'
sed -i 1d "$tree/a.c"
style
check "C without SPDX" says '^a.c:1: line 1 is not'
rm -rf "$tree"

# Includes: the included file must exist for the check.
crossed()
{
	put "$2" <<<'extern int a;'
	put "$1" <<<"#include \"$3\""
	style
	check "$1 includes $3" says "^$1:2: .*$4"
	check "$1 includes $3: only it" says "files, 1 complaints"
	rm -rf "$tree"
}
crossed runtime/a.c kvmm/ipc/b.h kvmm/ipc/b.h 'runtime/ includes kvmm/'
crossed kvmm/ipc/a.c runtime/engine/b.h runtime/engine/b.h 'kvmm/ includes runtime/'
crossed kernels/a.c runtime/engine/b.h runtime/engine/b.h 'kernels/ includes runtime/'
crossed kvmm/core/a.c kvmm/ipc/b.h ../ipc/b.h 'only include/ and itself'
crossed include/kvmm/a.h kvmm/ipc/b.h kvmm/ipc/b.h 'include/ includes'

put kvmm/ipc/a.h <<<'#include "kvmm/dev/a.h"'
put kvmm/dev/b.c <<<'#include "kvmm/proc/a.h"'
put kvmm/dev/a.h <<<'extern int a;'
put kvmm/proc/a.h <<<'#include "kvmm/ipc/a.h"'
style
check "a circle of folders" says 'a circle of folders'
rm -rf "$tree"

put runtime/a.c <<<'#include "kernels/k.h"'
put kernels/k.h <<<'extern int a;'
style
check "runtime may include kernels" rc_is 0

checks_done

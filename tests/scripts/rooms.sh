#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# rooms.sh - .ci/rooms complains of an upward call and of a large circle
#
# The tree has two rooms, and the objects of its files.
. "${BASH_SOURCE%/*}/checks.bash"

tree=$work/tree
mkdir -p "$tree/.ci" "$tree/f/low" "$tree/f/high"
cp "$KVMM_TOP/.ci/rooms" "$tree/.ci/"
printf '%s\n' '# rooms' 'low  the ground' 'high  above it' >"$tree/f/ROOMS"

# file NAME TEXT: make a source, and its object
file()
{
	mkdir -p "$tree/build/obj/f/$(dirname "$1")"
	printf '%s\n' "$2" >"$tree/f/$1.c"
	${CC:-gcc} -c -o "$tree/build/obj/f/$1.o" "$tree/f/$1.c"
}

file low/a 'int a(void) { return 1; }'
file high/b 'int a(void); int b(void) { return a(); }'
run "$tree/.ci/rooms" --list
check 'a call down: status' rc_is 0
check 'a call down is an arrow' says '^f +2 files, 1 arrows, 0 up$'

file low/c 'int b(void); int c(void) { return b(); }'
run "$tree/.ci/rooms"
check 'a call up' says '^f/low/c.c: calls b of f/high/b.c: up$'
check 'a call up: status' rc_is 1

for n in 1 2 3 4 5 6; do
	file "high/r$n" "int r$((n % 6 + 1))(void); int r$n(void) { return r$((n % 6 + 1))(); }"
done
file low/c 'int c(void) { return 1; }'
run "$tree/.ci/rooms"
check 'a circle of six may be' rc_is 0
file high/r6 'int r7(void); int r6(void) { return r7(); }'
file high/r7 'int r1(void); int r7(void) { return r1(); }'
run "$tree/.ci/rooms"
check 'a circle of seven may not' says '^f/high: 7 files call each other in a circle:'

echo 'int d(void);' >"$tree/f/low/d.c"
run "$tree/.ci/rooms"
check 'without an object' says 'no build/obj/f/low/d.o: build first'
check 'without an object: status' rc_is 2
checks_done

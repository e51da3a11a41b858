#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# libkvmm.sh - the library that programs of others link, and the example
#
# The shared library, the archive, the map and the header have the same names.  A name that
# was in a released version stays: tests/data/libkvmm-names.txt lists them.
#
# budget: 30 s
. "${BASH_SOURCE%/*}/checks.bash"

lib=$KVMM_BUILD/lib
shared=$lib/libkvmm.so
example=$KVMM_TOP/examples/client.c

# same FILE FILE: both have the same names
same()
{
	out=$(diff "$1" "$2")
	rc=$?
	[ $rc = 0 ] && [ -s "$1" ]
}

${CC:-gcc} -E -P -I"$KVMM_TOP/include" -include libkvmm_objects.h -x c /dev/null |
	grep -oE '\bkvmm_[a-z_]+ ?\(' | tr -d ' (' | sort -u >"$work/header"
nm -D --defined-only "$shared" | sed -n 's/.* T \(.*\)@@.*/\1/p' | sort >"$work/shared"
nm -g --defined-only "$lib/libkvmm.a" | sed -n 's/.* T //p' | sort >"$work/archive"
nm -D --defined-only "$shared" | sed -n 's/.* T \(.*\)@@\(.*\)/\2 \1/p' | sort >"$work/versions"
check 'the shared library exports what the headers declare' same "$work/header" "$work/shared"
check 'so does the archive' same "$work/header" "$work/archive"
[ "${UPDATE:-0}" = 0 ] || cp "$work/versions" "$KVMM_TOP/tests/data/libkvmm-names.txt"
comm -23 "$KVMM_TOP/tests/data/libkvmm-names.txt" "$work/versions" >"$work/gone"
out=$(cat "$work/gone")
check 'no name is gone or in another version' [ -z "$out" ]
out=$(comm -13 "$KVMM_TOP/tests/data/libkvmm-names.txt" "$work/versions")
check 'a new name is in the list, too (UPDATE=1)' [ -z "$out" ]

abi=$(sed -n 's/^#define KVMM_ABI_VERSION[[:space:]]*\([0-9]*\).*/\1/p' "$KVMM_TOP/include/uapi/kvmm.h")
run readelf -dW "$shared"
check 'its name has the version of the ABI' says "\(SONAME\).*\[libkvmm\.so\.$abi\]"
if [ -z "${KVMM_SANITIZER:-}" ]; then
	check 'it needs the C library' says '\(NEEDED\).*\[libc\.so'
	out=$(grep NEEDED <<<"$out" | grep -v '\[libc\.so')
	check 'and no other library' [ -z "$out" ]
	run readelf -dW "$shared"
fi
check 'its code is position independent' says_not 'TEXTREL'
run readelf -lW "$shared"
check 'its stack is not executable' says 'GNU_STACK.* RW +0x'

# ---- the example ----

check 'the example has less than 150 lines' [ "$(wc -l <"$example")" -lt 150 ]
for name in $(grep -oE '^kvmm_(seq_|step_)[a-z]+|^kvmm_(lookup|lease|nop)' "$work/header"); do
	check "the example shows $name" grep -q "$name(" "$example"
done
if [ -n "${KVMM_SANITIZER:-}" ]; then
	echo 'note: a sanitized library needs a sanitized client: the example was not linked'
	checks_done
fi

flags="-std=gnu11 -Wall -Wextra -Werror -I$KVMM_TOP/include"
# shellcheck disable=SC2086
run "${CC:-gcc}" $flags -o "$work/shared-client" "$example" "$shared" "-Wl,-rpath,$lib"
check 'it links the shared library' rc_is 0
# shellcheck disable=SC2086
run "${CC:-gcc}" $flags -o "$work/static-client" "$example" "$lib/libkvmm.a"
check 'it links the archive' rc_is 0
cat >"$work/client.cc" <<-'EOF'
	#include <libkvmm.h>
	#include <cstdio>
	int main()
	{
		char text[256];
		kvmm *k = nullptr;
		kvmm_params p = {};
		u8 identity[KVMM_IDENTITY_LEN] = {};
		p.domain = "example";
		p.identity = identity;
		p.block_tokens = 16;
		p.group[0].layers = p.group[0].kv_heads = 1;
		p.group[0].k_bytes = p.group[0].v_bytes = 512;
		p.max_bytes = KVMM_LIMIT_MAX;
		if (kvmm_attach(&p, &k, text))
			return std::puts(text), 1;
		kvmm_detach(k);
		return 0;
	}
EOF
run g++ -std=c++17 -I"$KVMM_TOP/include" -o "$work/c++-client" "$work/client.cc" "$shared" \
	"-Wl,-rpath,$lib"
check 'a program in C++ links it' rc_is 0

export KVMM_RUNDIR=$work/run KVMM_CONFIG=none KVMM_LIBCUDA=/nonexistent/libcuda.so.1
mkdir "$KVMM_RUNDIR"
run "$work/shared-client"
check 'without a daemon it says so' says '^no daemon at '
check 'and ends' rc_is 1
"$KVMM_BUILD/kvmm-hold" --backend host --pool-size 16M --host-size 8M >"$work/log" 2>&1 &
hold=$!
for _ in $(seq 200); do
	grep -q 'kvmm: ready' "$work/log" && break
	sleep 0.05
done
run "$work/shared-client"
check 'the first run computes' says '^cached 0 of 40 tokens$'
check 'a sample becomes the other' says '^the other sample has 64 tokens$'
check 'a lease keeps what was found' says '^found 32 tokens, and keep 32 for a minute$'
run "$work/static-client"
check 'the second run finds the prompt' says '^cached 39 of 40 tokens$'
check 'and ends well' rc_is 0
run "$work/c++-client"
check 'another model must not have the domain' rc_is 0
run "$KVMM_BUILD/kvctl" check
check 'the records of the daemon are right' says '^ok'
kill $hold
wait $hold 2>/dev/null
checks_done

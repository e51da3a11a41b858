#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# uapi-compiles.sh - the ABI and the rings compile in every language of a client
#
# C11, C++17 and, where nvcc is installed, CUDA; each header alone, with all warnings as
# errors, and without another header of kvmm before it.
. "${BASH_SOURCE%/*}/checks.bash"

inc=$KVMM_TOP/include
strict="-Wall -Wextra -Werror -I$inc -fsyntax-only"

for header in uapi/kvmm.h kvmm/ring.h libkvmm.h libkvmm_objects.h; do
	printf '#include <%s>\nint main(void);\nint main(void) { return 0; }\n' "$header" \
		>"$work/one.c"
	cp "$work/one.c" "$work/one.cc"
	cp "$work/one.c" "$work/one.cu"
	for cc in gcc clang; do
		command -v $cc >/dev/null || continue
		run $cc -std=c11 -D_GNU_SOURCE -pedantic-errors -Wno-pedantic $strict "$work/one.c"
		check "$header: C11, $cc" rc_is 0
	done
	for cxx in g++ clang++; do
		command -v $cxx >/dev/null || continue
		run $cxx -std=c++17 $strict "$work/one.cc"
		check "$header: C++17, $cxx" rc_is 0
	done
done

# Of these headers only the ABI is for CUDA.
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ -x "$nvcc" ]; then
	printf '%s\n' '#include <uapi/kvmm.h>' \
		'__global__ void probe(struct kvmm_table_page *p) { p->entry[0] = KVMM_NO_INDEX; }' \
		'int main() { return sizeof(struct kvmm_sqe) == 64 ? 0 : 1; }' >"$work/one.cu"
	run "$nvcc" -std=c++17 -I"$inc" -Werror all-warnings -c -o "$work/one.o" "$work/one.cu"
	check "uapi/kvmm.h: CUDA" rc_is 0
else
	echo "CUDA: skipped: nvcc is not installed (looked in PATH and /usr/local/cuda/bin)"
fi

checks_done

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_args.h - the arguments of the probe's kernels, for host and device
 */
#ifndef TESTS_GPU_PROBE_ARGS_H
#define TESTS_GPU_PROBE_ARGS_H

#include "kernels/cuda/args.h"

/*
 * x(name, bytes of dynamic shared memory), as in kernels/cuda/list.h; the tests'
 * stand-in has them beside the kernels of that list.
 */
#define PROBE_KERNELS(x)						\
	x(p_empty, 0)							\
	x(p_fill, 0)							\
	x(p_check, 0)							\
	x(p_read, 0)							\
	x(p_layout, 0)							\
	x(p_gather, 0)							\
	x(p_spin, 0)

struct p_empty_args {
	u32	resv;
};

/* to[i] = (a hash of seed + i) & mask | set, n words of 8 bytes */
struct p_fill_args {
	u64	*to;
	u64	n;
	u64	seed;
	u64	mask;
	u64	set;
};

/* Numbers of bf16 with a magnitude from 1/2 to 2, of either sign. */
#define P_BF16_MASK	0x80ff80ff80ff80ffull
#define P_BF16_SET	0x3f003f003f003f00ull

/* Counts words that p_fill did not write, and words that are not 0. */
struct p_check_args {
	const u64	*from;
	u64		n;
	u64		seed;
	u64		*wrong;
	u64		*not_zero;
};

/* Reads @quads times 16 bytes from @from on. */
struct p_read_args {
	const u8	*from;
	u64		quads;
	u32		*out;
};

/*
 * Reads of decode attention for one layer: of every block in @entries K and V
 * of every head, a run of 16 << @run_quads_log2 bytes each; grid: x parts of the
 * table, y heads.
 */
struct p_layout_args {
	const u8	*base;
	u64		unit;
	u64		layer_off;
	u64		v_off;
	const u32	*entries;
	u32		nr_entries;
	u32		run_quads_log2;
	u32		*out;
};

/* Copies @quads times 16 bytes from and to each pair of addresses in @pairs. */
struct p_gather_args {
	const u64	*pairs;		/* [nr][from, to] */
	u32		nr;
	u32		quads;
};

/*
 * Runs for @ns or until *stop is not 0.  With @words it reads and writes these
 * all the while, and counts in *wrong the reads that differ from the writes.
 */
struct p_spin_args {
	u64	ns;
	const u32 *stop;
	u64	*words;
	u64	nr_words;
	u64	*wrong;
};

#endif /* TESTS_GPU_PROBE_ARGS_H */

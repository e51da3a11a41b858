/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap_load.h - a real swapd kept busy by a fake kvmm
 */
#ifndef TESTS_BENCH_SWAP_LOAD_H
#define TESTS_BENCH_SWAP_LOAD_H

#include "tests/bench/bench.h"

#define LOAD_DEPTH	16u
#define LOAD_SLOT_MAX	(8u << 20)
#define LOAD_AREA	(1ull << 30)

/**
 * struct load_mix - load of a round
 * @bs:     bytes of a slot
 * @reads:  unfinished at once
 * @writes: unfinished at once
 */
struct load_mix {
	u32	bs;
	u32	reads;
	u32	writes;
};

/**
 * struct load_result - figures of a round
 * @us_mib:       time, of reads and writes together
 * @write_us_mib: of writes
 * @cpu_us_mib:   CPU of swapd
 */
struct load_result {
	double	us_mib;
	double	write_us_mib;
	double	cpu_us_mib;
};

/* Start swapd with an area in @dir; an error ends the benchmark. */
void load_open(const char *dir);
/* Is the pool on huge pages? */
bool load_is_huge(void);
/* Write every slot of that size, so that each can be read. */
void load_prepare(u32 bs);
/* Run a round; times of reads, or of writes if there are no reads, go to @lat. */
struct load_result load_round(const struct load_mix *mix, u64 ramp_ns, u64 ns,
			      struct bench_samples *lat);
/* CPU of the sums of @bytes that are in no cache, us a MiB. */
double load_sums(u32 bs, u64 bytes);

/* ---- the driver's side: kvmm-hold with this program as its kvmm ---- */

/* Start "PROGRAM @option @dir" under hold.  Return: its exit code. */
int load_drive(const char *dir, const char *option);

#endif /* TESTS_BENCH_SWAP_LOAD_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fio.h - fio as the peer: the rate of a disk for a program that only transfers
 *
 * io_uring, O_DIRECT, registered buffers and files, random places; each run is
 * a new process.
 */
#ifndef TESTS_BENCH_FIO_H
#define TESTS_BENCH_FIO_H

#include "tests/bench/bench.h"

/**
 * struct fio_job - one stream of transfers
 * @file:  path
 * @write: else reads
 * @bs:    bytes of a transfer
 * @depth: transfers at once
 */
struct fio_job {
	const char	*file;
	bool		write;
	u32		bs;
	u32		depth;
};

/**
 * struct fio_run - settings of all jobs of a run
 * @dir:   for fio's output
 * @size:  bytes of each file
 * @huge:  memory on huge pages, else on ordinary ones
 * @ramp_ms: not counted
 * @ms:    counted
 */
struct fio_run {
	const char	*dir;
	u64		size;
	bool		huge;
	u64		ramp_ms;
	u64		ms;
};

/**
 * struct fio_result - of one job
 * @us_mib:     time
 * @cpu_us_mib: CPU of its thread
 * @p50, @p99:  us from submission to completion
 */
struct fio_result {
	double	us_mib;
	double	cpu_us_mib;
	double	p50;
	double	p99;
};

bool fio_is_there(void);
/* Make a file with all blocks written. */
void fio_fill(const char *path, u64 bytes);
/* Run all jobs at the same time. */
void fio_run(const struct fio_run *run, const struct fio_job *job, u32 nr,
	     struct fio_result *res);

#endif /* TESTS_BENCH_FIO_H */

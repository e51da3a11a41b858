/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swapd_options.h - swapd's options, once
 *
 * kvmm-hold starts swapd and gives it the first part.  The second part is
 * swapd's own: an operator says it in the section [swapd] of the file that
 * kvmm-hold reads, or in the environment.
 */
#ifndef KVMM_SWAPD_OPTIONS_H
#define KVMM_SWAPD_OPTIONS_H

#include <kvmm/opts.h>
#include <kvmm/sandbox.h>
#include <kvmm/swapd.h>

#define SWAPD_GIVEN_OPTIONS(x)						\
	x(uint, generation, "generation", "0", 0, UINT32_MAX, "N",	\
	  "which start this is")					\
	x(uint, ctl_fd, "ctl-fd", "0", 0, INT32_MAX, "FD",		\
	  "shared memory")						\
	x(uint, pool_fd, "pool-fd", "0", 0, INT32_MAX, "FD",		\
	  "host pool")							\
	x(uint, request_fd, "request-fd", "0", 0, INT32_MAX, "FD",	\
	  "eventfd that wakes swapd")					\
	x(uint, completion_fd, "completion-fd", "0", 0, INT32_MAX, "FD", \
	  "eventfd that wakes kvmm")					\
	x(uint, control_fd, "control-fd", "0", 0, INT32_MAX, "FD",	\
	  "control socket")						\
	x(uint, ring_fd, "ring-fd", "0", 0, INT32_MAX, "FD",		\
	  "io_uring made for this start; 0: there is none")		\
	x(uint, params_fd, "params-fd", "0", 0, INT32_MAX, "FD",	\
	  "its struct io_uring_params")					\
	x(choice, engine, "engine", "auto", 0, 0, "auto|uring|sync",	\
	  "io_uring, or threads with pread and pwrite")			\
	x(uint, depth, "depth", "64", 1, SWAPD_DEPTH_MAX, "N",		\
	  "requests given to the kernel at once")			\
	x(str, probe, "probe", NULL, 0, 0, "PATH",			\
	  "measure ways to transfer at PATH, print a table, end")	\
	x(str, user, "user", NULL, 0, 0, "USER",			\
	  "who it becomes when root started it: a name, or UID:GID (default kvmm-swapd if there is such a user, else it stays uid 0 without capabilities)") \
	x(choice, sandbox, "sandbox", "on", 0, 0, SANDBOX_WORDS,	\
	  "as kvmm-hold has it")

#define SWAPD_OWN_OPTIONS(x)						\
	x(uint, depth_min, "depth-min", "1", 1, SWAPD_DEPTH_MAX, "N",	\
	  "to measure: writes of an area given to the kernel at once, at least") \
	x(flag, fixed_depth, "fixed-depth", NULL, 0, 0, NULL,		\
	  "to measure: as many as --depth says, however slow reads are")	\
	x(uint, write_ms, "write-ms", "20", 1, 60000, "N",		\
	  "to measure: while nobody reads a write may take so long")	\
	x(uint, read_mib, "read-mib", "32", 0, 4096, "N",		\
	  "to measure: reads of an area given to the kernel at once have so many MiB, or are 8; 0: as many as come") \
	x(uint, merge_kib, "merge-kib", "4096", 0, SWAPD_LEN_MAX >> 10, "N", \
	  "to measure: neighbours share transfers of up to so many KiB; 0: none does") \
	x(uint, threads, "threads", "4", 1, 64, "N",			\
	  "threads of the engine sync")					\
	x(uint, slow_ms, "slow-ms", "1000", 1, 3600000, "N",		\
	  "a request that takes longer is told")			\
	x(flag, plain_crc, "plain-crc", NULL, 0, 0, NULL,		\
	  "sums by tables, as on processors without the instruction")	\
	x(choice, log_level, "log-level", "info", 0, 0,			\
	  "err|warn|info|debug", "what is told on stderr")

#define SWAPD_OPTIONS(x)						\
	SWAPD_GIVEN_OPTIONS(x)						\
	SWAPD_OWN_OPTIONS(x)

struct swapd_options {
#define x OPT_FIELD
	SWAPD_OPTIONS(x)
#undef x
};

/* What kvmm-hold reads for it. */
struct swapd_own_options {
#define x OPT_FIELD
	SWAPD_OWN_OPTIONS(x)
#undef x
};

#endif /* KVMM_SWAPD_OPTIONS_H */

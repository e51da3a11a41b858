/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swapd_options.h - swapd's options, once
 *
 * kvmm-hold starts swapd and gives it the first part.  The second part is
 * swapd's own: an operator sets it in the section [swapd] of the file that
 * kvmm-hold reads, or in the environment.
 */
#ifndef KVMM_SWAPD_OPTIONS_H
#define KVMM_SWAPD_OPTIONS_H

#include <kvmm/log.h>
#include <kvmm/opts.h>
#include <kvmm/sandbox.h>
#include <kvmm/swapd.h>

#define SWAPD_GIVEN_OPTIONS(x)						\
	x(uint, generation, "generation", "0", 0, UINT32_MAX, "N",	\
	  "number of this start")					\
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
	  "io_uring made for this start; 0: none")		\
	x(uint, params_fd, "params-fd", "0", 0, INT32_MAX, "FD",	\
	  "its struct io_uring_params")					\
	x(choice, engine, "engine", "auto", 0, 0, "auto|uring|sync",	\
	  "io_uring, or threads with pread and pwrite")			\
	x(uint, depth, "depth", "64", 1, SWAPD_DEPTH_MAX, "N",		\
	  "requests in the kernel at once")			\
	x(str, probe, "probe", NULL, 0, 0, "PATH",			\
	  "measure ways of transfer at PATH, print a table, and exit")	\
	x(str, user, "user", NULL, 0, 0, "USER",			\
	  "user that it changes to when root started it: a name, or UID:GID (default kvmm-swapd if there is such a user, else it stays uid 0 without capabilities)") \
	x(choice, sandbox, "sandbox", "on", 0, 0, SANDBOX_WORDS,	\
	  "as for kvmm-hold")						\
	KV_LOG_FORMAT_OPT(x)

#define SWAPD_OWN_OPTIONS(x)						\
	x(uint, depth_min, "depth-min", "1", 1, SWAPD_DEPTH_MAX, "N",	\
	  "for measurements: least writes of an area in the kernel at once") \
	x(flag, fixed_depth, "fixed-depth", NULL, 0, 0, NULL,		\
	  "for measurements: always --depth writes, even if reads are slow")	\
	x(uint, write_ms, "write-ms", "20", 1, 60000, "N",		\
	  "for measurements: longest time of a write while there are no reads")	\
	x(uint, read_mib, "read-mib", "32", 0, 4096, "N",		\
	  "for measurements: most MiB of reads of an area in the kernel at once, or 8 reads; 0: no bound") \
	x(uint, merge_kib, "merge-kib", "4096", 0, SWAPD_LEN_MAX >> 10, "N", \
	  "for measurements: most KiB of a transfer that neighbours share; 0: no shared transfers") \
	x(uint, threads, "threads", "4", 1, 64, "N",			\
	  "threads of the engine sync")					\
	x(uint, slow_ms, "slow-ms", "1000", 1, 3600000, "N",		\
	  "a request that takes longer is logged")			\
	x(flag, plain_crc, "plain-crc", NULL, 0, 0, NULL,		\
	  "checksums by tables, as on processors without the instruction")	\
	x(choice, log_level, "log-level", "info", 0, 0,			\
	  "err|warn|info|debug", "level of the messages on stderr")

#define SWAPD_OPTIONS(x)						\
	SWAPD_GIVEN_OPTIONS(x)						\
	SWAPD_OWN_OPTIONS(x)

struct swapd_options {
#define x OPT_FIELD
	SWAPD_OPTIONS(x)
#undef x
};

/* Options of swapd that kvmm-hold reads. */
struct swapd_own_options {
#define x OPT_FIELD
	SWAPD_OWN_OPTIONS(x)
#undef x
};

#endif /* KVMM_SWAPD_OPTIONS_H */

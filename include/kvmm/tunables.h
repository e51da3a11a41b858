/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tunables.h - the tunables: options that an operator may change while kvmm runs
 *
 * A line of this list makes the option and its bounds, the member of struct
 * core_config and the file of sys/vm that kvctl set writes.  The rows of
 * Documentation/daemon.md, proc.md and admin.md are written by hand; check_ipc_doc
 * and check_proc_doc compare them with this list.
 *
 * x(uint, MEMBER, OPTION, DEFAULT, LEAST, MOST, UNIT, TEXT), as in KVMM_OPTIONS().
 * A value is a u32.  The core takes a 0 below LEAST for the default (struct
 * core_config of a test is filled with zeros).
 */
#ifndef KVMM_TUNABLES_H
#define KVMM_TUNABLES_H

#define KVMM_TUNABLES(x)						\
	x(uint, swappiness, "swappiness", "100", 0, 200, "N",		\
	  "a preempted sequence is recomputed (0), swapped whenever there is room (200), or treated in the cheaper way, with the cost of swap taken at 100/N") \
	x(uint, watermark_scale_factor, "watermark-scale-factor", "10", 0, 1000, "N", \
	  "distance of the watermarks of a domain's free blocks, in 10000ths of its capacity; 0: no background eviction") \
	x(uint, cache_floor, "cache-floor", "5", 0, 100, "PERCENT",	\
	  "cache that other domains leave a domain, of its part of the pool by weight") \
	x(uint, overcommit, "overcommit", "0", 0, 2, "N",		\
	  "0: admit by the prompt; 2: admit a sequence that fits with all of its max_tokens; 1 is not supported") \
	x(uint, overcommit_ratio, "overcommit-ratio", "100", 1, 100, "PERCENT", \
	  "part of the pool that --overcommit 2 promises")		\
	x(uint, lease_ms, "lease-ms", "600000", 1, 86400000, "MS",	\
	  "longest time for which a client can lease cached content") \
	x(uint, lease_percent, "lease-percent", "50", 1, 100, "PERCENT", \
	  "part of the host pool and the swap areas that leases can hold, an equal part for each tenant")

#endif /* KVMM_TUNABLES_H */

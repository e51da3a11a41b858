/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - names in the keyed files, each with its meaning
 *
 * Text and documentation come from these lists.  A key, once released, keeps its
 * name, unit and meaning; a new one may appear anywhere in its file.  The first
 * argument is the key, the second the expression of its value, in which `n` is a
 * struct proc_node and `p` its pool.
 */
#ifndef KVMM_PROC_KEYS_H
#define KVMM_PROC_KEYS_H

/* meminfo: the key of each part of law 1; a part without one will not compile. */
#define MEMINFO_KEY_free_extents	"ExtentsFree"
#define MEMINFO_KEY_free		"BlocksFree"
#define MEMINFO_KEY_open		"Open"
#define MEMINFO_KEY_sealed		"Sealed"
#define MEMINFO_KEY_cached		"PrefixCached"
#define MEMINFO_KEY_quiescing		"Quiescing"
#define MEMINFO_KEY_quarantine		"Quarantine"
#define MEMINFO_KEY_limbo		"Limbo"
#define MEMINFO_KEY_revoking		"Revoking"
#define MEMINFO_KEY_poison		"HardwareCorrupted"
#define MEMINFO_KEY_tails		"SpanTails"
#define MEMINFO_KEY_offline		"GpuOffline"
#define MEMINFO_KEY_reserved		"GpuReserved"

/* meminfo: the keys before the parts. */
#define MEMINFO_TOTALS(x)						\
	x("GpuTotal", p->total,						\
	  "the pool: the sum of the partition")				\
	x("GpuFree", p->free_extents + p->free,				\
	  "ExtentsFree and BlocksFree together")			\
	x("GpuAvailable", pool_available(p),				\
	  "estimate of the memory for new sequences without preemption: GpuFree and PrefixCached less Committed")

/* meminfo: the keys behind the parts; their memory is also in a part. */
#define MEMINFO_OVERLAYS(x)						\
	x("Committed", p->committed,					\
	  "of BlocksFree: reserved for admitted prefills")	\
	x("Shared", p->shared,						\
	  "of Open and Sealed: mapped by more than one sequence")	\
	x("Indexed", p->indexed,					\
	  "of Sealed and PrefixCached: found by the prefix index")	\
	x("CommitLimit", p->commit_limit,				\
	  "overcommit_ratio of the pool: the limit of overcommit 2")	\
	x("Committed_AS", p->committed_as,				\
	  "memory that running sequences could come to hold, with all of their max_tokens") \
	x("Extentsize", p->extent_size,					\
	  "one extent")

/*
 * meminfo: the lower tiers; `h` is the host pool's view, `g` the kinds of pages
 * that were found in it, `s` the sum of the areas.
 */
#define MEMINFO_TIERS(x)						\
	x("HostTotal", h->total, "the host pool")			\
	x("HostFree", tier_free(h), "of it, in no use; ends of spans count as free") \
	x("HostUsed", h->used, "of it, slots that hold content")	\
	x("HostLimbo", h->limbo, "of it, slots that a copy or I/O is to fill") \
	x("HostNeeded", h->needed, "of HostUsed and HostLimbo: content that sequences need; the rest is cache") \
	x("HostHugetlb", g->hugetlb, "of its memory, in huge pages that were set aside") \
	x("HostShmemHuge", g->thp, "of its memory, in transparent huge pages") \
	x("HostLocked", g->locked, "of its memory, never written to the system's swap") \
	x("SwapTotal", s->total, "all swap areas")			\
	x("SwapFree", tier_free(s), "of them, in no use; ends of spans count as free") \
	x("SwapUsed", s->used, "of them, slots that hold content")	\
	x("SwapLimbo", s->limbo, "of them, slots that I/O is to fill")	\
	x("SwapNeeded", s->needed, "of SwapUsed and SwapLimbo: content that sequences need; the rest is cache") \
	x("SwapBad", s->poison, "of them, slots that failed")

/* zoneinfo: the parts of the host pool; their keys and texts are those of the pool. */
#define ZONEINFO_HOST(x)						\
	x(free, tier_free(h))						\
	x(sealed, h->used)						\
	x(limbo, h->limbo)						\
	x(poison, h->poison)

/* vmstat: numbers of records at present. */
#define VMSTAT_NOW(x)							\
	x(nr_extents, p->nr_extents, "extents of the pool")		\
	x(nr_free_extents, p->nr_free_extents, "extents in no span, and not being revoked")	\
	x(nr_domains, n->nr_domains, "domains")				\
	x(nr_clients, n->nr_clients, "clients that still have memory") \
	x(nr_seqs, sum.seqs, "sequences")				\
	x(nr_seqs_running, sum.running, "of these, with memory, or being restored")	\
	x(nr_seqs_waiting, sum.waiting, "of these, without memory: new, preempted or swapped out") \
	x(nr_leases, sum.leases, "of these, leases: they hold content and never run")	\
	x(nr_steps_open, sum.steps, "steps begun and not ended")

/* prefixcache: sizes in kB. */
#define PREFIXCACHE_SIZES(x)						\
	x("Indexed", p->indexed, "blocks that the index finds")		\
	x("Cached", p->cached, "of these, held by the index alone")

/* prefixcache: counters, from the list of events. */
#define PREFIXCACHE_COUNTS(x)						\
	x("Lookups", prefix_lookup)					\
	x("Hits", prefix_hit)						\
	x("HitTokens", prefix_hit_tokens)				\
	x("MissTokens", prefix_miss_tokens)				\
	x("RestoreHitTokens", restore_hit_tokens)			\
	x("RestoreMissTokens", restore_miss_tokens)			\
	x("Inserted", prefix_insert)					\
	x("Duplicates", prefix_duplicate)				\
	x("Evicted", prefix_evict)

/* blockmap: a letter for each state of a block, in the order of the counts in a view. */
#define BLOCKMAP_LETTERS(x)						\
	x("F", "free")							\
	x("O", "open")							\
	x("S", "sealed")						\
	x("C", "cached")						\
	x("Q", "quiescing")						\
	x("A", "quarantine")						\
	x("L", "limbo")							\
	x("R", "revoking")						\
	x("P", "poison")

#endif /* KVMM_PROC_KEYS_H */

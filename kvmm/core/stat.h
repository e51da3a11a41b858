/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stat.h - the core's event counters: name, text and enum from one list
 *
 * Counters only rise.  A name, once released, keeps its meaning for ever.
 * /proc vmstat, its documentation and the tests are made from this list.
 */
#ifndef KVMM_CORE_STAT_H
#define KVMM_CORE_STAT_H

#define CORE_EVENTS(x)							\
	x(pgalloc,		"blocks granted to sequences")		\
	x(pgfree,		"blocks given back to their span")	\
	x(pgcow,		"open tails copied because they were shared") \
	x(pgreuse,		"open tails written in place by their last sharer") \
	x(seq_remap,		"sequences that became another of their family") \
	x(seq_truncate,		"sequences cut to a shorter length")	\
	x(seq_trim,		"times that a sequence gave back its beginning") \
	x(pgtrim,		"blocks given back from the beginning of sequences") \
	x(pgseal,		"blocks sealed: full, never written again") \
	x(pgmerge,		"sealed blocks given up for another of the same content") \
	x(pgrollback,		"blocks given back because a step did not use them") \
	x(prefix_lookup,	"sequences looked up in the prefix index") \
	x(prefix_hit,		"of those, with at least one block found") \
	x(prefix_hit_tokens,	"of sequences never preempted, tokens found") \
	x(prefix_miss_tokens,	"of sequences never preempted, tokens to be computed") \
	x(prefix_partial_tokens, "of all tokens found, those inside a block that was mapped in part") \
	x(restore_hit_tokens,	"of sequences preempted before, tokens found again") \
	x(restore_miss_tokens,	"of sequences preempted before, tokens to be computed again") \
	x(lookup,		"lookups of a prompt, or a piece of one, without a sequence") \
	x(lookup_tokens,	"tokens of the prompts that were looked up so") \
	x(lookup_device_tokens,	"of those, tokens found on the device")	\
	x(lookup_host_tokens,	"of those, tokens found in the host pool") \
	x(lookup_area_tokens,	"of those, tokens found in swap areas alone") \
	x(lookup_moving_tokens,	"of those, tokens found while they were copied or read") \
	x(lease,		"leases made")				\
	x(lease_refused,	"leases refused: no room, no copy, or over the domain's share") \
	x(lease_expired,	"leases that ended at their deadline")	\
	x(lease_open,		"sequences opened from a lease")	\
	x(lease_promote,	"blocks brought to the device for a lease, ahead of need") \
	x(lease_demote,		"cached blocks of leases that advice took from the device") \
	x(prefix_insert,	"blocks entered into the prefix index")	\
	x(prefix_duplicate,	"sealed blocks with content that was indexed already") \
	x(prefix_evict,		"cached blocks dropped from the prefix index") \
	x(wmark_low_hit,	"times that a domain's room fell below its low watermark") \
	x(reclaim_background,	"cached blocks evicted by the reclaimer, ahead of need") \
	x(reclaim_direct,	"cached blocks evicted directly, for a request") \
	x(workingset_refault,	"of the inserted, blocks that eviction had dropped") \
	x(workingset_activate,	"of those, soon enough to count as used before") \
	x(preempt_mark,		"sequences marked as victims in an open step") \
	x(preempt_recompute,	"sequences preempted by recompute")	\
	x(preempt_min,		"families preempted to reach another's memory.min") \
	x(recompute_tokens,	"valid tokens lost by preemption, before any is found again")	\
	x(preempt_swap,		"sequences preempted by swap")		\
	x(swap_fallback,	"families that no tier had room for: recomputed") \
	x(swap_restore,		"sequences restored from lower tiers")	\
	x(pgdemote,		"blocks copied from the device to the host pool") \
	x(pgpromote,		"blocks copied from the host pool to the device") \
	x(pgclean,		"of the demoted, those copied ahead of need") \
	x(demote_free,		"cached blocks evicted with a copy on a lower tier, complete or in flight") \
	x(evict_no_copy,	"cached blocks evicted without a copy although a lower tier had room") \
	x(evict_dear,		"cached blocks evicted without a copy because computing them again costs less") \
	x(demote_wait,		"times that a request began to wait for copies of evicted blocks") \
	x(demote_wait_ns,	"nanoseconds that domains waited for such copies") \
	x(pswpout,		"slots written to swap areas")		\
	x(pswpin,		"slots read from swap areas")		\
	x(swap_write_error,	"failed writes to swap areas")		\
	x(swap_read_error,	"failed reads: blocks lost")		\
	x(swap_read_retry,	"failed reads that were tried again")	\
	x(area_drop,		"cached slots of swap areas dropped for other slots") \
	x(swap_move,		"slots read because their swap area is to go") \
	x(swap_lost,		"sequences that lost a swapped block")	\
	x(swap_stall,		"requests to swap areas that were not answered in time") \
	x(swap_late,		"of these, answered after all")		\
	x(host_drop,		"host slots dropped with their content") \
	x(admit,		"sequences admitted")			\
	x(admit_stall,		"times the first waiting sequence found no room") \
	x(restore,		"of the admitted, those that had been preempted") \
	x(grant,		"step entries granted")			\
	x(grant_again,		"step entries refused for want of memory") \
	x(grant_stale,		"step entries refused because of preemption") \
	x(seq_open,		"sequences opened")			\
	x(seq_fork,		"sequences forked")			\
	x(seq_close,		"sequences ended")			\
	x(step_begin,		"steps begun")				\
	x(step_end,		"steps ended")				\
	x(span_cut,		"spans cut into blocks for a domain")	\
	x(span_release,		"spans given back whole")		\
	x(span_isolate,		"spans that were to be emptied")	\
	x(span_putback,		"of these, given up: used as before")	\
	x(migrate_begin,	"spans that were to be emptied by moving their blocks") \
	x(migrate_success,	"of these, emptied")			\
	x(migrate_fail,		"of these, given up")			\
	x(pgmigrate_success,	"blocks moved to another span")		\
	x(pgmigrate_fail,	"blocks copied in vain: the copy failed, or they were written or freed meanwhile") \
	x(evict_asked,		"cached blocks evicted because an operator asked") \
	x(extent_create,	"extents made")				\
	x(extent_release,	"extents returned to the system")	\
	x(pool_grow,		"times that an operator made the pool larger") \
	x(pool_shrink,		"times that an operator made the pool smaller") \
	x(resize_evict,		"cached blocks evicted to make the pool smaller")	\
	x(resize_preempt,	"families preempted to make the pool smaller")	\
	x(extent_revoke,	"extents asked back from clients that had them mapped") \
	x(revoke_preempt,	"families preempted for a sequence of another tenant") \
	x(revoke_abandon,	"extent runs not taken after all: their owner needs them again") \
	x(revoke_kill,		"clients killed: they kept an extent past the deadline") \
	x(revoke_ghosts,	"times that lingering clients were killed for an extent") \
	x(client_attach,	"clients attached")			\
	x(client_detach,	"clients detached by themselves")	\
	x(client_death,		"clients that died or were cut off")	\
	x(client_kill,		"clients killed: past the deadline of a step, an extent or a hang-up") \
	x(quarantine,		"blocks that a dead client might still write") \
	x(device_fail,		"times that the pool's device failed")	\
	x(psi_trigger,		"pressure triggers that fired")		\
	x(kv_event,		"changes of cached blocks given to the publisher of --kv-events") \
	x(kv_event_lost,	"changes that it had no room for: a snapshot follows") \
	x(kv_event_snapshot,	"times that all cached blocks were published anew") \
	x(client_eproto,	"clients expelled for a forged index")	\
	x(req_refused,		"requests refused as malformed")

enum core_event {
#define x(name, text) CORE_EV_##name,
	CORE_EVENTS(x)
#undef x
	NR_CORE_EVENTS
};

/* Causes of a preemption. */
#define CORE_CAUSES(x)							\
	x(grow,		"room for a running sequence")		\
	x(itself,	"it needed room, and no sequence of lower rank could be preempted") \
	x(table,	"a table page for another sequence of its client") \
	x(min,		"memory that memory.min promises to another domain")	\
	x(wait,		"a sequence that waited longest")		\
	x(tenant,	"a sequence of another tenant")			\
	x(resize,	"a smaller pool")				\
	x(advice,	"its own program paged it out")			\
	x(device,	"nothing: the memory was lost with the device")	\
	x(lost,		"its swapped-out blocks could not be brought back")

enum core_cause {
#define x(name, text) CORE_CAUSE_##name,
	CORE_CAUSES(x)
#undef x
	NR_CORE_CAUSES
};

/* Times in the life of a block, see life.c. */
#define CORE_LIVES(x)							\
	x(lifetime,	"from when a block was taken to when it was free again") \
	x(idle,		"from the last use of a cached block to its eviction") \
	x(reuse_gap,	"from the last use of a cached block to the next")

enum core_life {
#define x(name, text) CORE_LIFE_##name,
	CORE_LIVES(x)
#undef x
	NR_CORE_LIVES
};

/* Bounds of these histograms: nanoseconds, and the same in seconds. */
#define CORE_LIFE_LES(x)						\
	x(1000000ull, "0.001") x(5000000ull, "0.005") x(20000000ull, "0.02") \
	x(100000000ull, "0.1") x(500000000ull, "0.5") x(2000000000ull, "2") \
	x(10000000000ull, "10") x(30000000000ull, "30") x(120000000000ull, "120") \
	x(600000000000ull, "600") x(1800000000000ull, "1800") x(7200000000000ull, "7200")

#define CORE_LIFE_BOUNDS	12u

#endif /* KVMM_CORE_STAT_H */

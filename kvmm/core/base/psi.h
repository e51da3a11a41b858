/* SPDX-License-Identifier: Apache-2.0 */
/*
 * psi.h - pressure: its records in the arena, and its functions
 *
 * psi.c describes the model; it alone writes these records.
 */
#ifndef KVMM_CORE_PSI_H
#define KVMM_CORE_PSI_H

#include "kvmm/core/core.h"

struct kv_seq;

enum psi_class {
	PSI_IDLE,
	PSI_STALLED,		/* waits for memory */
	PSI_RESTORING,		/* has memory, and waits for its content */
	PSI_REDOING,		/* in a step, which computes lost tokens again */
	PSI_PRODUCTIVE,
	PSI_NR_CLASSES
};

#define PSI_NR_AVGS	CORE_PSI_NR_AVGS
#define PSI_NR_TRIGGERS	CORE_NR_TRIGGERS
#define PSI_WINDOW_MIN_NS 500000000ull
#define PSI_WINDOW_MAX_NS 10000000000ull

enum psi_kind {
	PSI_SOME = CORE_PSI_SOME,
	PSI_FULL = CORE_PSI_FULL,
	PSI_NR_KINDS = CORE_PSI_NR_KINDS,
};

#define PSI_NR_RES	CORE_PSI_NR_RES

/**
 * struct kv_psi - the time that a group of sequences lost
 * @nr:       sequences in each class; the count of PSI_IDLE has no meaning
 * @level:    level that the domain's clients were last told
 * @since:    time up to which the totals are exact
 * @total:    ns of stall for each resource and kind
 * @averaged: part of @total that is in the averages
 * @last_avg: time of the last averages
 * @next_avg: time of the next averages
 * @avg:      per cent in fixed point, over 10, 60 and 300 s
 * @level_since: begin of the second that decides @level
 * @level_total: totals of memory at that time
 */
struct kv_psi {
	u32	nr[PSI_NR_CLASSES];
	u32	level;
	u64	since;
	u64	total[PSI_NR_RES][PSI_NR_KINDS];
	u64	averaged[PSI_NR_RES][PSI_NR_KINDS];
	u64	last_avg;
	u64	next_avg;
	u32	avg[PSI_NR_RES][PSI_NR_KINDS][PSI_NR_AVGS];
	u64	level_since;
	u64	level_total[PSI_NR_KINDS];
};

/**
 * struct kv_trigger - a reader that wants to be told of a stall
 * @window_ns: 0: the record is unused
 * @start, @start_total: time and total at the beginning of the window
 * @last_growth: growth of the total in the window before
 */
struct kv_trigger {
	u32	domain;
	u16	res;
	u16	kind;
	u64	threshold_ns;
	u64	window_ns;
	u64	start;
	u64	start_total;
	u64	last_growth;
	u64	fired;
	u64	fired_at;
};

u32 psi_class_of(const struct core *c, const struct kv_seq *s, bool *own);
void psi_task(struct core *c, struct kv_seq *s);
void psi_init(const struct core *c, struct kv_psi *g);
void psi_forget_domain(struct core *c, u32 dom);
void psi_tick(struct core *c);

#endif /* KVMM_CORE_PSI_H */

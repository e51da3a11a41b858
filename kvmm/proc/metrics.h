/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - families of the file `metrics`, beside those made from the lists
 * of vmstat, meminfo and swapstat
 *
 * The first argument is the name, without kvmm_ before it; the second is the unit,
 * an enum metric_unit.  A name, once released, keeps its unit and meaning.  Labels
 * are few and bounded: a domain, a tenant, an area, a word of a list; never a
 * client, a sequence or a request.
 */
#ifndef KVMM_PROC_METRICS_H
#define KVMM_PROC_METRICS_H

#include "kvmm/proc/internal.h"

enum metric_unit {
	UNIT_ONE,	/* a number */
	UNIT_NS,	/* nanoseconds, printed in seconds */
	UNIT_LIMIT,	/* bytes, or KVMM_LIMIT_MAX: printed as +Inf */
};

/* Families of each domain `d`; labels: domain, tenant, and of a gauge pool. */
#define METRICS_DOMAIN(x)						\
	x(domain_clients, UNIT_ONE, gauge, d->nr_clients,		\
	  "clients attached")						\
	x(domain_spans, UNIT_ONE, gauge, d->nr_spans,			\
	  "spans that it has")						\
	x(domain_seqs_running, UNIT_ONE, gauge, d->nr_running,		\
	  "sequences with memory, or being restored")		\
	x(domain_seqs_waiting, UNIT_ONE, gauge, d->nr_waiting,		\
	  "sequences without memory: new, preempted or swapped out")		\
	x(domain_leases, UNIT_ONE, gauge, d->nr_leases,			\
	  "leases of its clients")					\
	x(domain_leased_bytes, UNIT_ONE, gauge, d->leased * d->block_bytes, \
	  "content that leases hold; what two leases hold counts twice") \
	x(domain_block_size_bytes, UNIT_ONE, gauge, d->block_bytes,	\
	  "bytes of a block, all layers")				\
	x(domain_block_size_tokens, UNIT_ONE, gauge, d->block_tokens,	\
	  "tokens of a block, of layer group 0 if the domain has several") \
	x(domain_memory_current_bytes, UNIT_ONE, gauge, d->current_bytes, \
	  "memory charged now")						\
	x(domain_memory_peak_bytes, UNIT_ONE, gauge, d->peak_bytes,	\
	  "the most memory ever charged")					\
	x(domain_memory_min_bytes, UNIT_LIMIT, gauge, d->limit[CORE_LIMIT_MIN], \
	  "memory that other domains never take")					\
	x(domain_memory_low_bytes, UNIT_LIMIT, gauge, d->limit[CORE_LIMIT_LOW], \
	  "memory that other domains take last")					\
	x(domain_memory_high_bytes, UNIT_LIMIT, gauge, d->limit[CORE_LIMIT_HIGH], \
	  "above it new sequences wait; +Inf: none")			\
	x(domain_memory_max_bytes, UNIT_LIMIT, gauge, d->max_bytes,	\
	  "limit that is never exceeded; +Inf: none")			\
	x(domain_reserved_bytes, UNIT_ONE, gauge, d->reserved * d->block_bytes, \
	  "reserved for admitted prefills")			\
	x(domain_tail_bytes, UNIT_ONE, gauge, d->tail_bytes,		\
	  "tail waste: space of mapped blocks that holds no token") \
	x(domain_committed_as_bytes, UNIT_ONE, gauge, d->committed_as * d->block_bytes, \
	  "memory that its running sequences could come to hold, with all of their max_tokens") \
	x(domain_room_bytes, UNIT_ONE, gauge, d->room * d->block_bytes,	\
	  "free memory of its spans that is not reserved")			\
	x(domain_pressure_memory_waiting_seconds_total, UNIT_NS, counter, \
	  d->pressure.total_ns[CORE_PSI_MEMORY][CORE_PSI_SOME],		\
	  "time that at least one of its sequences was stalled for want of memory") \
	x(domain_pressure_memory_stalled_seconds_total, UNIT_NS, counter, \
	  d->pressure.total_ns[CORE_PSI_MEMORY][CORE_PSI_FULL],		\
	  "part of that time with no productive sequence")				\
	x(domain_pressure_io_waiting_seconds_total, UNIT_NS, counter,	\
	  d->pressure.total_ns[CORE_PSI_IO][CORE_PSI_SOME],		\
	  "time that at least one of its sequences waited for paged-out blocks to be read back") \
	x(domain_pressure_io_stalled_seconds_total, UNIT_NS, counter,	\
	  d->pressure.total_ns[CORE_PSI_IO][CORE_PSI_FULL],		\
	  "part of that time with no sequence in a step")				\
	x(domain_preempted_total, UNIT_ONE, counter, d->nr_preempted,	\
	  "sequences that lost their memory")				\
	x(domain_low_events_total, UNIT_ONE, counter, d->nr_low_events,	\
	  "times that it lost memory below memory.low")			\
	x(domain_high_events_total, UNIT_ONE, counter, d->nr_high_events, \
	  "times that memory.high delayed a new sequence")		\
	x(domain_max_events_total, UNIT_ONE, counter, d->nr_max_events,	\
	  "times that its limit refused memory")

/* Families of each layer group `g`, where domain `d` has several; labels: also group. */
#define METRICS_GROUP(x)						\
	x(domain_group_blocks, UNIT_ONE, gauge, g->mapped,		\
	  "blocks of a layer group that sequences map, a shared one once for each") \
	x(domain_group_block_size_tokens, UNIT_ONE, gauge, g->shape.block_tokens, \
	  "tokens of a block of the layer group")			\
	x(domain_group_window_tokens, UNIT_ONE, gauge, g->shape.window,	\
	  "tokens that a token attends to in the layer group, 0: all before it") \
	x(domain_group_padding_bytes, UNIT_ONE, gauge, g->padding,	\
	  "bytes of a block that no token of the layer group uses")	\
	x(domain_group_record_blocks, UNIT_ONE, gauge, g->width,	\
	  "blocks of a record of state, 1 where the layer group has none")

/* Families of each tenant: `t` is the core's view, `s` the daemon's; label: tenant. */
#define METRICS_TENANT(x)						\
	x(tenant_domains, UNIT_ONE, gauge, t->nr_domains,		\
	  "domains that it has")					\
	x(tenant_clients, UNIT_ONE, gauge, s->clients,			\
	  "clients attached")						\
	x(tenant_clients_limit, UNIT_ONE, gauge, s->max_clients,	\
	  "quota of clients")						\
	x(tenant_connections, UNIT_ONE, gauge, s->conns,		\
	  "connections of clients, of clients about to attach, and of readers") \
	x(tenant_connections_limit, UNIT_ONE, gauge, s->max_conns,	\
	  "quota of connections")						\
	x(tenant_fds, UNIT_ONE, gauge, s->fds,				\
	  "descriptors of extents that its clients have not acknowledged") \
	x(tenant_fds_limit, UNIT_ONE, gauge, s->max_fds,		\
	  "quota of such descriptors")					\
	x(tenant_current_bytes, UNIT_ONE, gauge, t->current_bytes,	\
	  "memory charged to its domains")				\
	x(tenant_backed_bytes, UNIT_ONE, gauge, t->backed_bytes,	\
	  "extents that belong to it, used or not")		\
	x(tenant_min_bytes, UNIT_ONE, gauge, t->min_bytes,		\
	  "memory.min that its clients asked for and got")		\
	x(tenant_refused_total, UNIT_ONE, counter, s->refused,		\
	  "requests refused by one of its quotas")

/* Families of each swap area: `v` is the core's view; labels: area, path. */
#define METRICS_AREA(x)							\
	x(swap_area_size_bytes, UNIT_ONE, gauge, v->total,		\
	  "bytes of the area")						\
	x(swap_area_used_bytes, UNIT_ONE, gauge, v->used,		\
	  "of it, slots that hold content")				\
	x(swap_area_limbo_bytes, UNIT_ONE, gauge, v->limbo,		\
	  "of it, slots that I/O is to fill")				\
	x(swap_area_bad_bytes, UNIT_ONE, gauge, v->poison,		\
	  "of it, slots that failed")					\
	x(swap_area_requests_open, UNIT_ONE, gauge, v->nr_ios,		\
	  "requests in flight")						\
	x(swap_area_requests_overdue, UNIT_ONE, gauge, v->nr_overdue,	\
	  "of these, not answered in time: the area is stalled")	\
	x(swap_area_readonly, UNIT_ONE, gauge, v->readonly,		\
	  "1: the area gets no new content")					\
	x(swap_area_lost, UNIT_ONE, gauge, info->lost,			\
	  "1: swapd no longer uses the area, or its disk failed too often") \
	x(swap_area_failed_total, UNIT_ONE, counter, v->errors,		\
	  "requests to it that failed")

/* Families of the node `n` and its pool `p`. */
#define METRICS_NODE(x)							\
	x(uptime_seconds, UNIT_NS, gauge, uptime,			\
	  "time since the daemon started")				\
	x(mm_idle_seconds_total, UNIT_NS, counter, idle,		\
	  "time that the thread of all memory decisions slept")		\
	x(pressure_memory_waiting_seconds_total, UNIT_NS, counter,	\
	  n->pressure.total_ns[CORE_PSI_MEMORY][CORE_PSI_SOME],		\
	  "time that at least one sequence was stalled for want of memory") \
	x(pressure_memory_stalled_seconds_total, UNIT_NS, counter,	\
	  n->pressure.total_ns[CORE_PSI_MEMORY][CORE_PSI_FULL],		\
	  "part of that time with no productive sequence")			\
	x(pressure_io_waiting_seconds_total, UNIT_NS, counter,		\
	  n->pressure.total_ns[CORE_PSI_IO][CORE_PSI_SOME],		\
	  "time that at least one sequence waited for paged-out blocks to be read back") \
	x(pressure_io_stalled_seconds_total, UNIT_NS, counter,		\
	  n->pressure.total_ns[CORE_PSI_IO][CORE_PSI_FULL],		\
	  "part of that time with no sequence in a step")			\
	x(pressure_cpu_waiting_seconds_total, UNIT_NS, counter,		\
	  n->pressure.total_ns[CORE_PSI_CPU][CORE_PSI_SOME],		\
	  "time that a client's requests waited while the mm thread was busy") \
	x(pressure_cpu_stalled_seconds_total, UNIT_NS, counter,		\
	  n->pressure.total_ns[CORE_PSI_CPU][CORE_PSI_FULL],		\
	  "part of that time with no request being served")			\
	x(pressure_seqs_stalled, UNIT_ONE, gauge, n->pressure.nr_stalled, \
	  "sequences stalled for want of memory now")

/**
 * struct metric_page - the file being printed
 * @tmp:  scratch for a label's value
 * @name: name of the family that was begun last
 * @unit: unit of its values
 * @nr_labels: labels of the sample that was begun last
 */
struct metric_page {
	const struct proc_ctx	*ctx;
	struct seq_file		*m;
	struct seq_file		tmp;
	char			name[96];
	enum metric_unit	unit;
	u32			nr_labels;
};

/* metrics.c: the format */
void metric_family(struct metric_page *p, const char *name, const char *type,
		   enum metric_unit unit, const char *help);
void metric_counted(struct metric_page *p, const char *prefix,
		    const char *name, bool counter, const char *help);
void metric_sample(struct metric_page *p, const char *suffix);
void metric_label(struct metric_page *p, const char *key, const char *value);
void metric_value(struct metric_page *p, u64 value);
void metric_domain(struct metric_page *p, const char *suffix,
		   const struct core_domain_view *d);

/* metrics_life.c */
void metrics_life(struct metric_page *p);

/* metrics_swap.c */
void metrics_swap(struct metric_page *p);

#endif /* KVMM_PROC_METRICS_H */

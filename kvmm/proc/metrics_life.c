// SPDX-License-Identifier: Apache-2.0
/*
 * metrics_life.c - how long blocks live and why sequences were preempted
 *
 * The metrics are of each domain.  Only a sample of all blocks is timed
 * (kvmm/core/mem/life.c): quantiles are right, sums are of the sample alone.
 */
#include <stdio.h>

#include "kvmm/proc/metrics.h"

static const char * const les[] = {
#define x(ns, le) le,
	CORE_LIFE_LES(x)
#undef x
	"+Inf",
};
static_assert(ARRAY_SIZE(les) == CORE_LIFE_BOUNDS + 1, "bounds");

static void histogram(struct metric_page *p, const struct core_domain_view *d,
		      const struct core_hist *h)
{
	u64 sum = 0;
	u32 i;

	p->unit = UNIT_ONE;
	for (i = 0; i <= CORE_LIFE_BOUNDS; i++) {
		sum += h->count[i];
		metric_domain(p, "_bucket", d);
		metric_label(p, "le", les[i]);
		metric_value(p, sum);
	}
	p->unit = UNIT_NS;
	metric_domain(p, "_sum", d);
	metric_value(p, h->sum_ns);
	p->unit = UNIT_ONE;
	metric_domain(p, "_count", d);
	metric_value(p, sum);
}

static void histograms(struct metric_page *p)
{
	const struct proc *proc = p->ctx->proc;
	u32 i;

#define x(name, text)							\
	metric_family(p, "block_" #name "_seconds", "histogram", UNIT_NS, text); \
	for (i = 0; i < proc->node.nr_domains; i++)			\
		histogram(p, &proc->domains[i],				\
			  &proc->lives[i].hist[CORE_LIFE_##name]);
	CORE_LIVES(x)
#undef x
	metric_family(p, "block_sample_interval", "gauge", UNIT_ONE,
		      "one block of so many is looked at for these times");
	metric_sample(p, "");
	metric_value(p, proc->life_interval);
}

static void cause(struct metric_page *p, u32 i, const char *name,
		  const char *how, u64 value)
{
	metric_domain(p, "", &p->ctx->proc->domains[i]);
	metric_label(p, "cause", name);
	if (how)
		metric_label(p, "how", how);
	metric_value(p, value);
}

static void preemptions(struct metric_page *p)
{
	const struct proc *proc = p->ctx->proc;
	u32 i;

	metric_family(p, "domain_preemptions_total", "counter", UNIT_ONE,
		      "sequences that lost their memory, by cause and method");
	for (i = 0; i < proc->node.nr_domains; i++) {
#define x(name, text)							\
		cause(p, i, #name, "recompute",				\
		      proc->lives[i].preempted[CORE_CAUSE_##name][0]);	\
		cause(p, i, #name, "swap",				\
		      proc->lives[i].preempted[CORE_CAUSE_##name][1]);
		CORE_CAUSES(x)
#undef x
	}
	metric_family(p, "domain_preempted_tokens_total", "counter", UNIT_ONE,
		      "valid tokens that they lost by recompute, before any is found again");
	for (i = 0; i < proc->node.nr_domains; i++) {
#define x(name, text)							\
		cause(p, i, #name, NULL,				\
		      proc->lives[i].lost_tokens[CORE_CAUSE_##name]);
		CORE_CAUSES(x)
#undef x
	}
}

void metrics_life(struct metric_page *p)
{
	histograms(p);
	preemptions(p);
}

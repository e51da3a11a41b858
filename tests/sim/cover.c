// SPDX-License-Identifier: Apache-2.0
/*
 * cover.c - how often each thing happened, over all seeds
 *
 * The simulator proves nothing about code that it never reaches.  So every
 * counter of the core must have risen in some seed, and every verb must have
 * been accepted.  If a seed is run a second time, the second run is not counted.
 *
 * Each process of a run counts for itself; the first one adds up (jobs.c).
 */
#include <stdio.h>

#include "tests/sim/sim.h"

#define NR_ERRORS	140
#define NR_NOTES	60
#define JUDGE_CRASHES	5000	/* from here on no point may be missing */

/**
 * struct cover - counts of one process
 * @notes:  literals: the same address in every process of a run
 * @stalls: ns over all seeds: as the core accounts for them, and in truth
 */
struct cover {
	u64		requests[KVMM_NR_OPS + 1][NR_ERRORS];
	u64		entries[KVMM_NR_OPS + 1][NR_ERRORS];
	u64		events[NR_CORE_EVENTS];
	const char	*notes[NR_NOTES];
	u64		note_counts[NR_NOTES];
	u64		stalls[SIM_PSI_RES][CORE_PSI_NR_KINDS][2];
	u64		crashes[NR_CORE_CRASH_POINTS];
};

static struct cover cover;

static const char * const event_names[NR_CORE_EVENTS] = {
#define x(name, text) [CORE_EV_##name] = #name,
	CORE_EVENTS(x)
#undef x
};

static const char * const crash_names[NR_CORE_CRASH_POINTS] = {
#define x(name, text) [CORE_CRASH_##name] = #name,
	CORE_CRASH_POINTS(x)
#undef x
};

static const char * const op_names[KVMM_NR_OPS + 1] = {
	[KVMM_OP_NOP]		= "NOP",
	[KVMM_OP_SEQ_OPEN]	= "SEQ_OPEN",
	[KVMM_OP_SEQ_MATCH]	= "SEQ_MATCH",
	[KVMM_OP_STEP_BEGIN]	= "STEP_BEGIN",
	[KVMM_OP_STEP_END]	= "STEP_END",
	[KVMM_OP_SEQ_FORK]	= "SEQ_FORK",
	[KVMM_OP_SEQ_REMAP]	= "SEQ_REMAP",
	[KVMM_OP_SEQ_CLOSE]	= "SEQ_CLOSE",
	[KVMM_OP_SEQ_TRUNCATE]	= "SEQ_TRUNCATE",
	[KVMM_OP_SEQ_TRIM]	= "SEQ_TRIM",
	[KVMM_OP_SEQ_ADVISE]	= "SEQ_ADVISE",
	[KVMM_OP_SEQ_SETPRIO]	= "SEQ_SETPRIO",
	[KVMM_OP_EXTENT_ACK]	= "EXTENT_ACK",
	[KVMM_OP_DETACH]	= "DETACH",
	[KVMM_OP_SEQ_LOOKUP]	= "SEQ_LOOKUP",
	[KVMM_OP_SEQ_LEASE]	= "SEQ_LEASE",
	[KVMM_NR_OPS]		= "attach",
};

static bool off;

/* Count from here on, or not: the seed is being run a second time. */
void cover_switch(bool on)
{
	off = !on;
}

static void count(u64 table[][NR_ERRORS], u16 op, int status)
{
	u32 err = (u32)-status;

	if (off)
		return;
	if (op > KVMM_NR_OPS)
		op = KVMM_OP_NOP;	/* a verb that does not exist */
	table[op][err < NR_ERRORS ? err : NR_ERRORS - 1]++;
}

/* The daemon ended at @point. */
void cover_crash(u32 point)
{
	if (!off)
		cover.crashes[point]++;
}

void cover_request(u16 op, int status)
{
	count(cover.requests, op, status);
}

void cover_entry(u16 op, int status)
{
	count(cover.entries, op, status);
}

void cover_counts(const u64 *counts)
{
	u32 i;

	for (i = 0; i < NR_CORE_EVENTS; i++)
		cover.events[i] += counts[i];
}

static void note_add(const char *what, u64 times)
{
	u32 i;

	for (i = 0; i < NR_NOTES && cover.notes[i]; i++)
		if (cover.notes[i] == what)
			break;
	if (i == NR_NOTES)
		return;
	cover.notes[i] = what;
	cover.note_counts[i] += times;
}

/* Count an event of the world itself; @what is a literal. */
void cover_note(const char *what)
{
	if (!off)
		note_add(what, 1);
}

/* ---- several processes ---- */

size_t cover_bytes(void)
{
	return sizeof(struct cover);
}

/* Copy the counts of this process to @to. */
void cover_save(void *to)
{
	memcpy(to, &cover, sizeof(cover));
}

static void add_up(u64 *to, const u64 *from, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes / sizeof(*to); i++)
		to[i] += from[i];
}

/* Add the counts of another process, which are at @from. */
void cover_add(const void *from)
{
	const struct cover *o = from;
	u32 i;

	add_up(cover.requests[0], o->requests[0], sizeof(o->requests));
	add_up(cover.entries[0], o->entries[0], sizeof(o->entries));
	add_up(cover.events, o->events, sizeof(o->events));
	add_up(cover.stalls[0][0], o->stalls[0][0], sizeof(o->stalls));
	add_up(cover.crashes, o->crashes, sizeof(o->crashes));
	for (i = 0; i < NR_NOTES && o->notes[i]; i++)
		note_add(o->notes[i], o->note_counts[i]);
}

/* ---- the end ---- */

static void print_table(const char *title, u64 table[][NR_ERRORS])
{
	u32 op, err;

	printf("%s\n", title);
	for (op = 0; op <= KVMM_NR_OPS; op++) {
		u64 sum = 0;

		for (err = 0; err < NR_ERRORS; err++)
			sum += table[op][err];
		if (!sum)
			continue;
		printf("  %-13s ok %-9llu", op_names[op],
		       (unsigned long long)table[op][0]);
		for (err = 1; err < NR_ERRORS; err++)
			if (table[op][err])
				printf(" %s %llu", strerrorname_np((int)err),
				       (unsigned long long)table[op][err]);
		printf("\n");
	}
}

/* Stall time of one seed's domain: as accounted, and in truth. */
void cover_pressure(u32 res, u32 kind, u64 core, u64 truth)
{
	if (off)
		return;
	cover.stalls[res][kind][0] += core;
	cover.stalls[res][kind][1] += truth;
}

static void print_stalls(const char *what, u64 stalls[CORE_PSI_NR_KINDS][2])
{
	printf("  stalled for %s: some: %.3f s, in truth %.3f s; full: %.3f s, in truth %.3f s\n",
	       what, (double)stalls[CORE_PSI_SOME][0] / 1e9,
	       (double)stalls[CORE_PSI_SOME][1] / 1e9,
	       (double)stalls[CORE_PSI_FULL][0] / 1e9,
	       (double)stalls[CORE_PSI_FULL][1] / 1e9);
}

/**
 * cover_report() - print the table of all counts
 * @judge: enough seeds ran, so a count of 0 is a failure
 *
 * Return: number of counts that are 0.
 */
u32 cover_report(bool judge)
{
	u32 i, missing = 0;
	u64 crashes = 0;

	print_table("requests", cover.requests);
	print_table("entries", cover.entries);
	printf("counters of the core\n");
	for (i = 0; i < NR_CORE_EVENTS; i++) {
		printf("  %-20s %llu\n", event_names[i],
		       (unsigned long long)cover.events[i]);
	}
	printf("the world\n");
	for (i = 0; i < NR_NOTES && cover.notes[i]; i++)
		printf("  %-44s %llu\n", cover.notes[i],
		       (unsigned long long)cover.note_counts[i]);
	print_stalls("memory", cover.stalls[CORE_PSI_MEMORY]);
	print_stalls("io", cover.stalls[CORE_PSI_IO]);
	printf("ends of the daemon inside an event\n");
	for (i = 0; i < NR_CORE_CRASH_POINTS; i++) {
		printf("  %-20s %llu\n", crash_names[i],
		       (unsigned long long)cover.crashes[i]);
		crashes += cover.crashes[i];
	}
	if (!judge)
		return 0;

	for (i = 0; i < NR_CORE_CRASH_POINTS; i++)
		if (!cover.crashes[i] && crashes >= JUDGE_CRASHES) {
			printf("never happened: an end at %s\n",
			       crash_names[i]);
			missing++;
		}
	for (i = 0; i < NR_CORE_EVENTS; i++)
		if (!cover.events[i]) {
			printf("never happened: counter %s\n", event_names[i]);
			missing++;
		}
	for (i = 0; i < KVMM_NR_OPS; i++)
		if (!cover.requests[i][0]) {
			printf("never accepted: %s\n", op_names[i]);
			missing++;
		}
	return missing;
}

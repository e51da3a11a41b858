// SPDX-License-Identifier: Apache-2.0
/*
 * cover.c - what happened how often, over all seeds
 *
 * A simulator that never gets somewhere proves nothing about it.  So every
 * counter of the core must have risen in some seed, and every verb must have
 * been accepted.  A seed that is run a second time is not counted again.
 */
#include <stdio.h>

#include "tests/sim/sim.h"

#define NR_ERRORS	140
#define NR_NOTES	24

static u64 requests[KVMM_NR_OPS + 1][NR_ERRORS];
static u64 entries[KVMM_NR_OPS + 1][NR_ERRORS];
static u64 events[NR_CORE_EVENTS];
static const char *notes[NR_NOTES];
static u64 note_counts[NR_NOTES];

static const char * const event_names[NR_CORE_EVENTS] = {
#define x(name, text) [CORE_EV_##name] = #name,
	CORE_EVENTS(x)
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
	[KVMM_NR_OPS]		= "attach",
};

/* Verbs that this version of the core refuses. */
static const u32 refused_verbs = BIT(KVMM_NR_OPS);

/* Nanoseconds over all seeds: as the core accounts for them, and in truth. */
static u64 stalls[CORE_PSI_NR_KINDS][2];

static bool off;

/* Count, or not: the seed is being run a second time. */
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

void cover_request(u16 op, int status)
{
	count(requests, op, status);
}

void cover_entry(u16 op, int status)
{
	count(entries, op, status);
}

void cover_counts(const u64 *counts)
{
	u32 i;

	for (i = 0; i < NR_CORE_EVENTS; i++)
		events[i] += counts[i];
}

/* Something of the world itself that is worth knowing; @what is a literal. */
void cover_note(const char *what)
{
	u32 i;

	for (i = 0; i < NR_NOTES && notes[i]; i++)
		if (notes[i] == what)
			break;
	if (i == NR_NOTES || off)
		return;
	notes[i] = what;
	note_counts[i]++;
}

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
void cover_pressure(u32 kind, u64 core, u64 truth)
{
	if (off)
		return;
	stalls[kind][0] += core;
	stalls[kind][1] += truth;
}

/**
 * cover_report() - print the table of what happened
 * @judge: enough seeds ran that what never happened is a failure
 *
 * Return: how much never happened.
 */
u32 cover_report(bool judge)
{
	u32 i, missing = 0;

	print_table("requests", requests);
	print_table("entries", entries);
	printf("counters of the core\n");
	for (i = 0; i < NR_CORE_EVENTS; i++) {
		printf("  %-20s %llu\n", event_names[i],
		       (unsigned long long)events[i]);
	}
	printf("the world\n");
	for (i = 0; i < NR_NOTES && notes[i]; i++)
		printf("  %-44s %llu\n", notes[i],
		       (unsigned long long)note_counts[i]);
	printf("  stalled some: %.3f s, in truth %.3f s; full: %.3f s, in truth %.3f s\n",
	       (double)stalls[CORE_PSI_SOME][0] / 1e9,
	       (double)stalls[CORE_PSI_SOME][1] / 1e9,
	       (double)stalls[CORE_PSI_FULL][0] / 1e9,
	       (double)stalls[CORE_PSI_FULL][1] / 1e9);
	if (!judge)
		return 0;

	for (i = 0; i < NR_CORE_EVENTS; i++)
		if (!events[i]) {
			printf("never happened: counter %s\n", event_names[i]);
			missing++;
		}
	for (i = 0; i < KVMM_NR_OPS; i++)
		if (!requests[i][0] && !(refused_verbs & BIT(i))) {
			printf("never accepted: %s\n", op_names[i]);
			missing++;
		}
	return missing;
}

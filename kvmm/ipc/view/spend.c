// SPDX-License-Identifier: Apache-2.0
/*
 * spend.c - time of the mm thread that readers spend
 *
 * A request of a reader makes the mm thread copy records, and requests of clients wait
 * meanwhile.  A user that reads without end must not take that time from the clients
 * of others.  So each user, but root and the user of the daemon, has a budget: it
 * grows by 1/SPEND_PART of the time that passes, up to SPEND_BURST_NS.  All of these
 * users together have another one, since one person may have many user ids.  A request is
 * charged after its answer, since its cost is unknown before.  A request of a user in
 * debt waits until the debt is paid; if that takes more than SPEND_WAIT_NS, it is
 * refused.
 *
 * This is a token bucket with a level that may be negative.  With a request of cost c, a
 * user has at most SPEND_BURST_NS + c + t / SPEND_PART in any time t.
 *
 * The table has a record for each user that read lately.  A record with a whole
 * budget means the same as none, so the fullest record is used again; with more
 * users in debt than records the least debt is forgiven.
 */
#include "kvmm/ipc/view/view.h"

#define SPEND_PART	50	/* a user has one part of so many of the time: 2 % */
#define SPEND_BURST_NS	(100 * NSEC_PER_MSEC)
#define SPEND_ALL_PART	10	/* all users together: 10 % */
#define SPEND_ALL_BURST_NS (5 * SPEND_BURST_NS)
#define SPEND_LEAST_NS	20000	/* the mm thread also wakes and sleeps, which is not measured */

/* The level of a budget at @now that grows by 1/@part of the time, up to @burst. */
static s64 budget_level(const struct spend_user *u, u64 now, u32 part, u64 burst)
{
	const u64 grown = (now - u->at) / part;

	if (!u->at || grown >= (u64)((s64)burst - u->left))
		return (s64)burst;
	return u->left + (s64)grown;
}

static s64 spend_level(const struct spend_user *u, u64 now)
{
	return budget_level(u, now, SPEND_PART, SPEND_BURST_NS);
}

static s64 spend_all_level(const struct spend *s, u64 now)
{
	return budget_level(&s->all, now, SPEND_ALL_PART, SPEND_ALL_BURST_NS);
}

static struct spend_user *spend_find(struct spend *s, u64 key)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(s->users); i++)
		if (s->users[i].at && s->users[i].key == key)
			return &s->users[i];
	return NULL;
}

static struct spend_user *spend_fullest(struct spend *s, u64 now)
{
	struct spend_user *best = &s->users[0];
	u32 i;

	for (i = 1; i < ARRAY_SIZE(s->users); i++)
		if (spend_level(&s->users[i], now) > spend_level(best, now))
			best = &s->users[i];
	return best;
}

/**
 * spend_due() - when may the user have an answer?
 * @key: of the user; PROC_ALL has no bound
 *
 * Return: @now or a later time, in ns.
 */
u64 spend_due(struct spend *s, u64 key, u64 now)
{
	const struct spend_user *u = spend_find(s, key);
	const s64 own = u ? spend_level(u, now) : 0, all = spend_all_level(s, now);
	u64 due = now;

	if (key == PROC_ALL)
		return now;
	if (own < 0)
		due += (u64)-own * SPEND_PART;
	return all < 0 ? max(due, now + (u64)-all * SPEND_ALL_PART) : due;
}

/* spend_charge() - take @ns of the mm thread, used until @now, from the user's budget */
void spend_charge(struct spend *s, u64 key, u64 now, u64 ns)
{
	struct spend_user *u;
	s64 level;

	if (key == PROC_ALL)
		return;
	ns = max(ns, (u64)SPEND_LEAST_NS);
	s->all.left = spend_all_level(s, now) - (s64)ns;
	s->all.at = now;
	u = spend_find(s, key);
	if (!u) {
		u = spend_fullest(s, now);
		u->at = 0;
	}
	level = spend_level(u, now);
	*u = (struct spend_user){
		.key = key,
		.at = now,
		.left = level - (s64)ns,
	};
}

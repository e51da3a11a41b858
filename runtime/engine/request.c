// SPDX-License-Identifier: Apache-2.0
/*
 * request.c - requests by their ids
 *
 * Every request from engine_submit() to request_free(), queued or alive, is in
 * a hash table of chains that doubles when it is full.  So a cancel does not
 * search thousands of requests.
 */
#include <stdlib.h>

#include "runtime/engine/internal.h"

#define REQUESTS_MIN	64u	/* chains, a power of two */

static struct request **chain_of(struct request **chains, u32 nr, u64 id)
{
	return &chains[id & (nr - 1)];
}

static int requests_grow(struct engine *e)
{
	const u32 nr = max(2 * e->nr_chains, REQUESTS_MIN);
	struct request **chains, *r, *next;
	u32 i;

	chains = calloc(nr, sizeof(struct request *));
	if (!chains)
		return -ENOMEM;
	for (i = 0; i < e->nr_chains; i++) {
		for (r = e->chains[i]; r; r = next) {
			struct request **to = chain_of(chains, nr, r->id);

			next = r->next;
			r->next = *to;
			*to = r;
		}
	}
	free(e->chains);
	e->chains = chains;
	e->nr_chains = nr;
	return 0;
}

/**
 * request_remember() - give @r an id and enter it into the table
 *
 * Return: 0 or -ENOMEM.
 */
int request_remember(struct engine *e, struct request *r)
{
	struct request **to;

	if (e->nr_requests >= e->nr_chains && requests_grow(e))
		return -ENOMEM;
	r->id = ++e->last_id;
	to = chain_of(e->chains, e->nr_chains, r->id);
	r->next = *to;
	*to = r;
	e->nr_requests++;
	return 0;
}

/* request_forget() - remove @r from the table, if it has an id */
void request_forget(struct engine *e, struct request *r)
{
	struct request **pos;

	if (!r->id)
		return;
	pos = chain_of(e->chains, e->nr_chains, r->id);
	while (*pos != r)
		pos = &(*pos)->next;
	*pos = r->next;
	e->nr_requests--;
}

/* request_find() - the request of that id, or NULL */
struct request *request_find(const struct engine *e, u64 id)
{
	struct request *r;

	if (!e->nr_chains)
		return NULL;
	r = *chain_of(e->chains, e->nr_chains, id);
	while (r && r->id != id)
		r = r->next;
	return r;
}

struct request *request_of_slot(const struct engine *e, const struct slot *s)
{
	struct request *r;
	u32 i;

	for (i = 0; i < e->nr_chains; i++)
		for (r = e->chains[i]; r; r = r->next)
			if (r->slot == s && r->nr_over < r->c.n)
				return r;
	return NULL;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * ids.c - token ids of waiting sequences
 *
 * A client sends the ids of a prompt.  The core keeps them while the sequence
 * waits, in pages of a fixed pool that the clients share equally.
 */
#include "kvmm/core/seq/seq.h"

void seq_drop_ids(struct core *c, struct kv_seq *s)
{
	struct core_head *h = c->head;
	u32 page = s->id_head, next;

	KV_BUG_ON((page == CORE_NONE) != (s->id_tail == CORE_NONE));
	for (; page != CORE_NONE; page = next) {
		KV_BUG_ON(!c->clients[s->client].nr_idpages);
		KV_BUG_ON(h->nr_free_idpages >= core_sizes(c)->nr_idpages);
		c->clients[s->client].nr_idpages--;
		next = c->idpages[page].next;
		c->idpages[page].next = h->free_idpage;
		h->free_idpage = page;
		h->nr_free_idpages++;
	}
	s->id_head = CORE_NONE;
	s->id_tail = CORE_NONE;
	s->nr_ids = 0;
	s->found = 0;
}

static u32 id_page_get(struct core *c, struct kv_seq *s)
{
	struct core_head *h = c->head;
	u32 page = h->free_idpage;

	KV_BUG_ON(page == CORE_NONE || !h->nr_free_idpages);
	KV_BUG_ON(c->clients[s->client].nr_idpages >= ids_share(c));
	KV_BUG_ON(s->id_tail != CORE_NONE &&
		  (c->idpages[s->id_tail].next != CORE_NONE ||
		   c->idpages[s->id_tail].nr != CORE_ID_PAGE));
	h->free_idpage = c->idpages[page].next;
	h->nr_free_idpages--;
	c->clients[s->client].nr_idpages++;
	c->idpages[page].next = CORE_NONE;
	c->idpages[page].nr = 0;
	if (s->id_tail == CORE_NONE)
		s->id_head = page;
	else
		c->idpages[s->id_tail].next = page;
	s->id_tail = page;
	return page;
}

/*
 * Pages that a client may take.  Each client has an equal share for itself alone,
 * so the prompts of one client never keep those of another from being matched.
 */
u32 ids_share(const struct core *c)
{
	return core_sizes(c)->nr_idpages / core_cfg(c)->max_clients;
}

u32 ids_left(const struct core *c, u32 client)
{
	u32 used = c->clients[client].nr_idpages;

	return used < ids_share(c) ? ids_share(c) - used : 0;
}

int ids_append(struct core *c, struct kv_seq *s, const u32 *ids, u32 nr)
{
	u32 room = 0, take, page = s->id_tail;

	KV_BUG_ON((page == CORE_NONE) != !s->nr_ids);
	if (page != CORE_NONE)
		room = CORE_ID_PAGE - c->idpages[page].nr;
	if (nr > room && DIV_ROUND_UP(nr - room, CORE_ID_PAGE) >
	    ids_left(c, s->client))
		return -EAGAIN;

	while (nr) {
		struct kv_idpage *p;

		if (!room) {
			page = id_page_get(c, s);
			room = CORE_ID_PAGE;
		}
		p = &c->idpages[page];
		take = min(nr, room);
		memcpy(p->id + p->nr, ids, 4 * take);
		p->nr += take;
		s->nr_ids += take;
		ids += take;
		nr -= take;
		room -= take;
	}
	return 0;
}

void ids_next(const struct core *c, struct id_cursor *cur, u32 *out,
		     u32 nr)
{
	while (nr) {
		const struct kv_idpage *p = &c->idpages[cur->page];
		u32 take = min(nr, p->nr - cur->pos);

		KV_BUG_ON(cur->page == CORE_NONE || cur->pos >= p->nr);
		memcpy(out, p->id + cur->pos, 4 * take);
		out += take;
		nr -= take;
		cur->pos += take;
		if (cur->pos == p->nr) {
			cur->page = p->next;
			cur->pos = 0;
		}
	}
}

/* Skip ids that an earlier match has read.  All pages but the last are full. */
void ids_skip(const struct core *c, struct id_cursor *cur, u32 nr)
{
	while (nr && nr >= c->idpages[cur->page].nr) {
		nr -= c->idpages[cur->page].nr;
		cur->page = c->idpages[cur->page].next;
	}
	cur->pos = nr;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * client.c - clients come and go on the mm thread
 *
 * Context: mm thread, in its turn or inside mm_call().
 */
#include <sys/epoll.h>

#include <kvmm/log.h>

#include "kvmm/ipc/mm/mm.h"

/* mm_introduce() - the core may name @c from now on; its rings are not served yet */
void mm_introduce(struct mm *m, struct mm_client *c)
{
	m->clients[c->id] = c;
	m->known |= BIT_ULL(c->id);
}

void mm_activate(struct mm *m, struct mm_client *c)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };

	m->active |= BIT_ULL(c->id);
	if (epoll_ctl(m->epoll, EPOLL_CTL_ADD, c->bell, &ev))
		pr_warn("client %u has no doorbell (%s): it is served late",
			c->id, strerror(errno));
	m->next_tick = 0;
}

void mm_deactivate(struct mm *m, struct mm_client *c)
{
	if (!(m->active & BIT_ULL(c->id)))
		return;
	m->active &= ~BIT_ULL(c->id);
	/* The client has a duplicate, so closing ours would not remove it. */
	epoll_ctl(m->epoll, EPOLL_CTL_DEL, c->bell, NULL);
}

/* mm_forget() - the core has forgotten @c */
void mm_forget(struct mm *m, struct mm_client *c)
{
	mm_deactivate(m, c);
	m->clients[c->id] = NULL;
	m->known &= ~BIT_ULL(c->id);
	m->wake &= ~BIT_ULL(c->id);
}

void mm_note(struct mm *m, struct mm_client *c, u32 note)
{
	__atomic_fetch_or(&c->notes, note, __ATOMIC_RELEASE);
	/* Pairs with the exchange in client_take_notes(). */
	__atomic_fetch_or(&m->note_mask, BIT_ULL(c->id), __ATOMIC_RELEASE);
	m->kick_due = true;
}

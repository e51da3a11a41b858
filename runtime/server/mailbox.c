// SPDX-License-Identifier: Apache-2.0
/*
 * mailbox.c - from any thread to one, without waiting
 *
 * Posting pushes onto a stack.  The owner takes the whole stack at once and
 * reverses it.  No thread ever takes a single mail off, so a mail that comes
 * back under the same address does no harm (no ABA problem).
 *
 * No wake is lost: the poster that finds the stack empty writes the eventfd
 * after pushing; the owner reads the eventfd before taking.  A poster of many
 * mails may post them quietly and write the eventfd afterwards; a mail that
 * finds another one on the stack meanwhile relies on that one's poster.
 *
 * No update is lost: the owner clears @queued before it calls the handler, so a
 * poster that finds @queued set can rely on a handler that has not looked yet.
 * For the same reason the poster must not touch a mail after the handler may
 * have freed it: the last mail in an object's life is one that is posted only
 * once.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/server/mailbox.h"

int mailbox_init(struct mailbox *b)
{
	b->top = NULL;
	b->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return b->efd < 0 ? -errno : 0;
}

void mailbox_destroy(struct mailbox *b)
{
	if (b->efd >= 0)
		close(b->efd);
	b->efd = -1;
}

void mailbox_wake(struct mailbox *b)
{
	const u64 one = 1;

	/* A full eventfd is readable, which is enough. */
	while (write(b->efd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void mailbox_hush(struct mailbox *b)
{
	u64 count;

	while (read(b->efd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

bool mailbox_post_quietly(struct mailbox *b, struct mail *m)
{
	struct mail *old = __atomic_load_n(&b->top, __ATOMIC_RELAXED);

	/* Pairs with the exchange in mailbox_deliver(). */
	if (__atomic_exchange_n(&m->queued, 1, __ATOMIC_ACQ_REL))
		return false;
	do {
		m->next = old;
	} while (!__atomic_compare_exchange_n(&b->top, &old, m, true,
					      __ATOMIC_ACQ_REL,
					      __ATOMIC_RELAXED));
	return !old;
}

void mailbox_post(struct mailbox *b, struct mail *m)
{
	if (mailbox_post_quietly(b, m))
		mailbox_wake(b);
}

u32 mailbox_deliver(struct mailbox *b)
{
	struct mail *m, *next, *list = NULL;
	u32 nr = 0;

	if (!__atomic_load_n(&b->top, __ATOMIC_RELAXED))
		return 0;
	/* Pairs with the compare-and-exchange in mailbox_post(). */
	m = __atomic_exchange_n(&b->top, NULL, __ATOMIC_ACQ_REL);
	for (; m; m = next) {
		next = m->next;
		m->next = list;
		list = m;
	}
	for (m = list; m; m = next, nr++) {
		next = m->next;
		/* Pairs with the exchange in mailbox_post(). */
		__atomic_exchange_n(&m->queued, 0, __ATOMIC_ACQ_REL);
		m->fn(m);
	}
	return nr;
}

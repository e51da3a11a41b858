/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mailbox.h - from any thread to one, without waiting
 *
 * A mailbox belongs to one thread, which sleeps on its eventfd; any thread
 * may post.  A mail is part of what it is about, so posting allocates
 * nothing, never fails, and the length of a mailbox is bounded by the number
 * of things there are.  A mail says "look at me": posting one that was not
 * delivered yet does nothing, and its handler finds all that was said before.
 */
#ifndef RUNTIME_SERVER_MAILBOX_H
#define RUNTIME_SERVER_MAILBOX_H

#include <kvmm/types.h>

/**
 * struct mail - something to be looked at
 * @next:   in the mailbox
 * @queued: it is there
 * @fn:     called by the thread of the mailbox; may free what holds the mail
 */
struct mail {
	struct mail	*next;
	u32		queued;
	void		(*fn)(struct mail *m);
};

/**
 * struct mailbox - mails of one thread
 * @top: the last one posted
 * @efd: eventfd, readable when mails came since it was read
 */
struct mailbox {
	struct mail	*top;
	int		efd;
};

/* mailbox_init() - 0 or a negative errno */
int __must_check mailbox_init(struct mailbox *b);
void mailbox_destroy(struct mailbox *b);

/**
 * mailbox_post() - have @m->fn called by the mailbox's thread
 *
 * What the caller wrote before is seen by the handler.  Mails that are not
 * queued yet are delivered in the order they were posted.
 */
void mailbox_post(struct mailbox *b, struct mail *m);

/**
 * mailbox_post_quietly() - mailbox_post() without waking the owner
 *
 * Return: true when nobody else wakes it: mailbox_wake() is then due, soon.
 */
bool __must_check mailbox_post_quietly(struct mailbox *b, struct mail *m);

/* mailbox_wake() - make the eventfd readable without a mail */
void mailbox_wake(struct mailbox *b);

/* mailbox_hush() - the eventfd is readable no more: before mailbox_deliver() */
void mailbox_hush(struct mailbox *b);

/* mailbox_deliver() - call the handlers of all that is there; how many */
u32 mailbox_deliver(struct mailbox *b);

#endif /* RUNTIME_SERVER_MAILBOX_H */

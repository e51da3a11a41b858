/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mailbox.h - from any thread to one, without waiting
 *
 * A mailbox belongs to one thread, which sleeps on its eventfd; any thread may
 * post.  A mail is embedded in its object, so posting allocates nothing and
 * never fails, and the length of a mailbox is bounded by the number of objects.
 * A mail says "look at me": posting a mail that is already queued does nothing,
 * and its handler sees all updates made before.
 */
#ifndef RUNTIME_SERVER_MAILBOX_H
#define RUNTIME_SERVER_MAILBOX_H

#include <kvmm/types.h>

/**
 * struct mail - a request to look at an object
 * @next:   next mail in the mailbox
 * @queued: the mail is in the mailbox
 * @fn:     called by the thread of the mailbox; may free the object with the
 *          mail
 */
struct mail {
	struct mail	*next;
	u32		queued;
	void		(*fn)(struct mail *m);
};

/**
 * struct mailbox - mails of one thread
 * @top: the mail posted last
 * @efd: eventfd, readable when mails came since it was last read
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
 * The handler sees everything that the caller wrote before.  Mails are
 * delivered in the order of posting, except those that are already queued.
 */
void mailbox_post(struct mailbox *b, struct mail *m);

/**
 * mailbox_post_quietly() - mailbox_post() without waking the owner
 *
 * Return: true when no other poster wakes the owner: call mailbox_wake() soon.
 */
bool __must_check mailbox_post_quietly(struct mailbox *b, struct mail *m);

/* mailbox_wake() - make the eventfd readable without a mail */
void mailbox_wake(struct mailbox *b);

/* mailbox_hush() - reset the eventfd, before mailbox_deliver() */
void mailbox_hush(struct mailbox *b);

/*
 * mailbox_deliver() - call the handlers of all queued mails; returns how many
 */
u32 mailbox_deliver(struct mailbox *b);

#endif /* RUNTIME_SERVER_MAILBOX_H */

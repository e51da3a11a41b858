// SPDX-License-Identifier: Apache-2.0
/*
 * reader.c - threads that read bodies on behalf of the loops
 *
 * Parsing megabytes of JSON and tokenizing a long prompt take far longer than a
 * token may be late, so they happen here.  Long bodies have a thread of their
 * own, so that short ones do not wait behind them.  Adapters are read by a third
 * one.
 */
#include <poll.h>

#include "runtime/server/service.h"

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	struct pollfd p = { .fd = r->mail.efd, .events = POLLIN };

	while (!load_acquire(&r->stop)) {
		if (poll(&p, 1, -1) > 0)
			mailbox_hush(&r->mail);
		mailbox_deliver(&r->mail);
	}
	return NULL;
}

int reader_start(struct reader *r, const char *name)
{
	int err;

	memset(r, 0, sizeof(*r));
	err = mailbox_init(&r->mail);
	if (err)
		return err;
	err = -pthread_create(&r->thread, NULL, reader_main, r);
	if (err) {
		mailbox_destroy(&r->mail);
		return err;
	}
	pthread_setname_np(r->thread, name);
	r->started = true;
	return 0;
}

void reader_stop(struct reader *r)
{
	if (!r->started)
		return;
	store_release(&r->stop, 1);
	mailbox_wake(&r->mail);
	pthread_join(r->thread, NULL);
	mailbox_deliver(&r->mail);
	mailbox_destroy(&r->mail);
	r->started = false;
}

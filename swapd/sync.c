// SPDX-License-Identifier: Apache-2.0
/*
 * sync.c - the engine without io_uring, where that is missing or forbidden
 *
 * A few threads do one transfer each at a time: take it, seal its slots, pread or
 * pwrite it whole, judge and complete its requests.  A thread does not end in the
 * middle of its transfer, nor the process before its threads.  So nothing is in
 * flight when the process has ended, and its pidfd is all the proof that hold
 * needs.
 */
#include <stdio.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "swapd/daemon.h"

static struct {
	int	fd[SWAPD_AREAS];
} y;

static s64 sync_transfer(struct swapd *s, const struct sd_io *lead)
{
	const struct swapd_req *r = &lead->req;
	const struct sd_transfer *go = &lead->go;
	void *slots = s->pool + go->host_off;
	ssize_t n;

	if (!go->len)
		return 0;
	do {
		if (r->op == SWAPD_READ)
			n = pread(y.fd[r->area], slots, go->len,
				  (off_t)go->area_off);
		else
			n = pwrite(y.fd[r->area], slots, go->len,
				   (off_t)go->area_off);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static void *sync_worker(void *arg)
{
	struct swapd *s = arg;
	struct sd_io *io;
	s64 res;

	for (;;) {
		io = io_next(s, true);
		res = sync_transfer(s, io);
		io_landed(s, io);
		transfer_end(s, io, res);
	}
	return NULL;
}

static int sync_start(struct swapd *s, char *text, size_t len)
{
	pthread_attr_t attr;
	pthread_t t;
	u32 i;
	int err = 0;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (i = 0; !err && i < s->opt.threads; i++)
		err = pthread_create(&t, &attr, sync_worker, s);
	pthread_attr_destroy(&attr);
	/* With one thread it works, only slower. */
	if (err && i < 2) {
		snprintf(text, len, "no thread can be started: %s",
			 strerror(err));
		return -err;
	}
	s->opt.depth = err ? i - 1 : s->opt.threads;
	snprintf(text, len, "pread and pwrite, %u threads", s->opt.depth);
	return 0;
}

static int sync_area_add(struct swapd *s, u32 area, int fd)
{
	y.fd[area] = fd;
	return 0;
}

static void sync_area_del(struct swapd *s, u32 area)
{
	y.fd[area] = -1;
}

static u32 sync_kick(struct swapd *s)
{
	pthread_mutex_lock(&s->lock);
	if (s->ready)
		pthread_cond_broadcast(&s->more);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static u32 sync_reap(struct swapd *s)
{
	return 0;
}

static int sync_poll_fd(struct swapd *s)
{
	return -1;
}

const struct sd_engine engine_sync = {
	.name		= "threads",
	.id		= SWAPD_ENGINE_SYNC,
	.start		= sync_start,
	.area_add	= sync_area_add,
	.area_del	= sync_area_del,
	.kick		= sync_kick,
	.reap		= sync_reap,
	.poll_fd	= sync_poll_fd,
};

// SPDX-License-Identifier: Apache-2.0
/*
 * trigger.c - poll() on pressure files
 *
 * A trigger that is written to an open file is set by a connection to the daemon,
 * which stays as long as the file is open (`wait` of the view socket).  One thread
 * reads all connections.  When a line arrives, it marks the trigger as fired and
 * makes the kernel poll the file again.  The first poll() that is answered clears
 * the mark, as in the kernel.
 *
 * A lost connection is made again, twice a second, while the file is open: a dead
 * kvmm is soon replaced, and then the window begins again.  If the daemon refuses
 * the trigger then, for instance because its domain was removed, the trigger ends:
 * poll() returns POLLERR, as for a removed control group.
 *
 * Only the thread closes connections, so no descriptor that it polls is reused.
 * The daemon bounds the number of triggers; SLOTS only bounds a table.
 */
#define FUSE_USE_VERSION 31
#include <fuse.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/log.h>
#include <kvmm/view.h>

#include "kvmm/procfs/procfs.h"

#define SLOTS		64
#define AGAIN_MS	500	/* between tries to make a lost connection again */

enum slot_state {
	SLOT_FREE,
	SLOT_SETTING,	/* the writer of the file asks the daemon */
	SLOT_LIVE,
	SLOT_LOST,	/* the connection was lost */
	SLOT_DEAD,	/* the daemon refused to set it again */
	SLOT_END,	/* the file is closed: the thread frees it */
};

/**
 * struct slot - the trigger of one open file
 * @user:  user of the write()
 * @fd:    connection of a live trigger, else -1
 * @fired: no poll() has reported it yet
 * @ph:    handle to notify, or NULL
 * @req:   the request that sets it
 */
struct slot {
	enum slot_state		state;
	struct pf_user		user;
	int			fd;
	bool			fired;
	struct fuse_pollhandle	*ph;
	char			*req;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot slots[SLOTS];
static int bell = -1;	/* wakes the thread */

static void ring_bell(void)
{
	const u64 one = 1;

	if (write(bell, &one, sizeof(one)) < 0)
		return;
}

int pf_trigger_init(struct procfs *pf)
{
	bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return bell < 0 ? -errno : 0;
}

/* ---- files ---- */

/* Return: number of the slot; PF_NO_TRIGGER: all are in use. */
static u32 slot_take(struct pf_user user, char *req)
{
	u32 i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < SLOTS && slots[i].state != SLOT_FREE; i++)
		;
	if (i < SLOTS)
		slots[i] = (struct slot){ .state = SLOT_SETTING, .user = user,
					  .fd = -1, .req = req };
	pthread_mutex_unlock(&lock);
	return i < SLOTS ? i : PF_NO_TRIGGER;
}

static void slot_change(u32 i, enum slot_state state, int fd)
{
	pthread_mutex_lock(&lock);
	slots[i].state = state;
	if (fd >= 0)
		slots[i].fd = fd;
	pthread_mutex_unlock(&lock);
	ring_bell();
}

int pf_trigger_set(struct procfs *pf, struct pf_user user, const char *path,
		   const char *text, u32 *slot)
{
	struct seq_file answer;
	int fd = -1, err;
	char *req;
	u32 i;

	if (asprintf(&req, "wait %s %s", path, text) < 0)
		return -ENOMEM;
	i = slot_take(user, req);
	if (i == PF_NO_TRIGGER) {
		free(req);
		return -EUSERS;
	}
	seq_init(&answer, 4096);
	err = pf_ask_fd(pf, user, req, &answer, &fd);
	seq_free(&answer);
	slot_change(i, err ? SLOT_END : SLOT_LIVE, fd);
	if (!err)
		*slot = i;
	return err;
}

void pf_trigger_end(u32 slot)
{
	if (slot != PF_NO_TRIGGER)
		slot_change(slot, SLOT_END, -1);
}

unsigned int pf_trigger_poll(u32 slot, struct fuse_pollhandle *ph)
{
	struct slot *s = &slots[slot];
	unsigned int events = 0;

	pthread_mutex_lock(&lock);
	if (ph) {
		if (s->ph)
			fuse_pollhandle_destroy(s->ph);
		s->ph = ph;
	}
	if (s->fired || s->state == SLOT_DEAD)
		events = POLLPRI;
	if (s->state == SLOT_DEAD)
		events |= POLLERR;
	s->fired = false;
	pthread_mutex_unlock(&lock);
	return events;
}

/* ---- the thread ---- */

/* Make the kernel poll the file again; one call is enough for all pollers. */
static void slot_notify(struct slot *s)
{
	if (!s->ph)
		return;
	(void)fuse_notify_poll(s->ph);
	fuse_pollhandle_destroy(s->ph);
	s->ph = NULL;
}

static void slot_read(struct slot *s)
{
	int nr = kv_view_fired(s->fd);

	if (nr < 0) {
		close(s->fd);
		s->fd = -1;
		s->state = SLOT_LOST;
	} else if (nr) {
		s->fired = true;
		slot_notify(s);
	}
}

static void slot_free(struct slot *s)
{
	if (s->fd >= 0)
		close(s->fd);
	if (s->ph)
		fuse_pollhandle_destroy(s->ph);
	free(s->req);
	*s = (struct slot){ .state = SLOT_FREE, .fd = -1 };
}

/* Make a lost connection again.  Return: true when the daemon is away. */
static bool slot_again(struct procfs *pf, struct slot *s)
{
	struct seq_file text;
	int fd = -1, err;

	/* No lock: only this thread frees a slot that lost its connection. */
	seq_init(&text, 4096);
	err = pf_ask_fd(pf, s->user, s->req, &text, &fd);
	seq_free(&text);
	if (err == -EAGAIN || err == -EBUSY)
		return true;
	pthread_mutex_lock(&lock);
	s->fd = fd;
	if (s->state == SLOT_LOST) {
		s->state = err ? SLOT_DEAD : SLOT_LIVE;
		if (err)
			slot_notify(s);
	}
	pthread_mutex_unlock(&lock);
	return false;
}

static void again_all(struct procfs *pf)
{
	bool is_lost;
	u32 i;

	for (i = 0; i < SLOTS; i++) {
		pthread_mutex_lock(&lock);
		is_lost = slots[i].state == SLOT_LOST;
		pthread_mutex_unlock(&lock);
		if (is_lost && slot_again(pf, &slots[i]))
			return;
	}
}

/* Fill @fds.  Return: number of them; @lost: some slots lost their connection. */
static u32 gather(struct pollfd *fds, u32 *of, bool *lost)
{
	u32 i, nr = 0;

	*lost = false;
	fds[nr++] = (struct pollfd){ .fd = bell, .events = POLLIN };
	pthread_mutex_lock(&lock);
	for (i = 0; i < SLOTS; i++) {
		if (slots[i].state == SLOT_END)
			slot_free(&slots[i]);
		*lost |= slots[i].state == SLOT_LOST;
		if (slots[i].state != SLOT_LIVE)
			continue;
		of[nr] = i;
		fds[nr++] = (struct pollfd){ .fd = slots[i].fd,
					     .events = POLLIN };
	}
	pthread_mutex_unlock(&lock);
	return nr;
}

/* Time until the next try, in ms; the bell does not put it off. */
static int again_wait(u64 tried)
{
	const u64 passed = kv_now_ms() - tried;

	return passed < AGAIN_MS ? (int)(AGAIN_MS - passed) : 0;
}

void *pf_trigger_main(void *arg)
{
	struct pollfd fds[SLOTS + 1];
	u32 of[SLOTS + 1], nr, i;
	u64 count, tried = 0;
	bool lost;

	for (;;) {
		nr = gather(fds, of, &lost);
		if (lost && !again_wait(tried)) {
			again_all(arg);
			tried = kv_now_ms();
			continue;
		}
		if (poll(fds, nr, lost ? again_wait(tried) : -1) <= 0)
			continue;
		if (fds[0].revents && read(bell, &count, sizeof(count)) < 0)
			pr_debug("the bell: %s", strerror(errno));
		pthread_mutex_lock(&lock);
		for (i = 1; i < nr; i++)
			if (fds[i].revents && slots[of[i]].state == SLOT_LIVE)
				slot_read(&slots[of[i]]);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

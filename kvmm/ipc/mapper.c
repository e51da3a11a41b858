// SPDX-License-Identifier: Apache-2.0
/*
 * mapper.c - the thread that makes and releases extents
 *
 * Device calls may take long: filling memory, a driver that waits.  They run
 * here, one after the other, in the order in which the core asked.  The mm
 * thread hands commands over and collects answers; it never waits for them.
 *
 * The queues cannot be full: of one extent at most a release and a creation
 * are under way, since the core releases only what was created.
 *
 * A call that does not come back stops this thread, nothing else.  The
 * control thread notices and says so, once.
 *
 * What was made is deposited with hold before the core hears of it: the next
 * daemon finds the memory of every extent that the arena says has some, or it
 * cannot go on with that arena.
 */
#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define SLOW_NS	(2 * NSEC_PER_SEC)
#define DEPOSIT_TRIES	20	/* for longer than hold asks a program (PROBE_MS) */
#define STOP_S	5	/* for a device call to come back, at the end */

/* ---- mm thread ---- */

void mapper_push(struct daemon *d, u32 op, u32 extent, u32 generation)
{
	struct map_msg msg = {
		.op = op, .extent = extent, .generation = generation,
	};

	if (!queue_push(&d->to_mapper, &msg)) {
		pr_err("the mapper's queue is full: extent %u is lost", extent);
		return;
	}
	sem_post(&d->mapper_bell);
}

/* Tell the core what was made.  Return: whether there was anything. */
bool mapper_collect(struct daemon *d, u64 now)
{
	struct map_msg msg;
	bool any = false;

	while (queue_pop(&d->from_mapper, &msg)) {
		mm_look_at_device(d, now);
		core_extent_created(d->setup.core, now, msg.extent, msg.status);
		any = true;
	}
	return any;
}

/* ---- mapper thread ---- */

static void extent_publish(struct daemon *d, u32 extent, int fd, u32 generation)
{
	pthread_mutex_lock(&d->extent_lock);
	d->extent_fds[extent].fd = fd;
	d->extent_fds[extent].generation = generation;
	pthread_mutex_unlock(&d->extent_lock);
}

/*
 * Hold keeps it from here on, or no more; it reads while this daemon dies.
 * Nobody waits for this thread, so it waits for hold.
 */
static void extent_deposit(struct daemon *d, u32 op, u32 extent, int fd,
			   u32 generation)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = op, .kind = HOLD_EXTENT,
		.index = extent, .generation = generation,
	};
	int err = d->setup.arena_fd < 0 ? 0 : deposit_try(&d->deposit, &r, fd);
	u32 i;

	for (i = 0; i < DEPOSIT_TRIES && err == -EAGAIN &&
	     !READ_ONCE(d->mapper_stop); i++)
		err = deposit_try(&d->deposit, &r, fd);
	if (err && log_allowed())
		pr_warn("kvmm-hold does not take extent %u (%s): should kvmm die, the next start is a cold one",
			extent, strerror(-err));
}

static void mapper_create(struct daemon *d, struct map_msg *msg)
{
	int fd = -1;

	msg->status = d->setup.dev.ops->extent_create(&d->setup.dev, msg->extent,
						      msg->generation, &fd);
	if (msg->status && !READ_ONCE(d->setup.dev.failed) && log_allowed())
		pr_warn("extent %u cannot be made: %s: free memory, or give kvmm a smaller --pool-size",
			msg->extent, strerror(-msg->status));
	if (!msg->status) {
		extent_deposit(d, HOLD_PUT, msg->extent, fd,
			       msg->generation);
		extent_publish(d, msg->extent, fd, msg->generation);
	}
	if (!queue_push(&d->from_mapper, msg))
		pr_err("the mapper's answers are full: extent %u is lost",
		       msg->extent);
	mm_wake_up(d);
}

static void mapper_release(struct daemon *d, const struct map_msg *msg)
{
	int fd = d->extent_fds[msg->extent].fd, err;

	if (fd < 0)
		return;
	extent_deposit(d, HOLD_DROP, msg->extent, -1, 0);
	/* Withdrawn first: the number may be another file's after this. */
	extent_publish(d, msg->extent, -1, 0);
	err = d->setup.dev.ops->extent_revoke(&d->setup.dev, msg->extent, fd);
	if (err && log_allowed())
		pr_warn("extent %u: its old memory is not back (%s): a process of its old user keeps it until it ends",
			msg->extent, strerror(-err));
	d->setup.dev.ops->extent_release(&d->setup.dev, msg->extent, fd);
}

static void *mapper_main(void *arg)
{
	struct daemon *d = arg;
	struct map_msg msg;

	pthread_setname_np(pthread_self(), "kvmm-mapper");
	for (;;) {
		while (sem_wait(&d->mapper_bell) && errno == EINTR)
			;
		if (READ_ONCE(d->mapper_stop))
			return NULL;
		if (!queue_pop(&d->to_mapper, &msg))
			continue;
		WRITE_ONCE(d->mapper_extent, msg.extent);
		store_release(&d->mapper_since, clock_ns());
		if (msg.op == MAP_CREATE)
			mapper_create(d, &msg);
		else
			mapper_release(d, &msg);
		store_release(&d->mapper_since, 0ull);
	}
}

/* ---- control thread ---- */

/* Say, once, that a device call takes long. */
void mapper_watchdog(struct daemon *d, u64 now)
{
	u64 since = load_acquire(&d->mapper_since);

	if (!since || now < since + SLOW_NS || d->mapper_warned == since)
		return;
	d->mapper_warned = since;
	pr_warn("extent %u has been in the making for %llu s: is this machine short of memory?",
		READ_ONCE(d->mapper_extent),
		(unsigned long long)((now - since) / NSEC_PER_SEC));
}

int mapper_init(struct daemon *d)
{
	int err;
	u32 i;

	d->extent_fds = calloc(d->setup.nr_extents, sizeof(*d->extent_fds));
	if (!d->extent_fds)
		return -ENOMEM;
	for (i = 0; i < d->setup.nr_extents; i++)
		d->extent_fds[i].fd = -1;
	adopt_extents(d);
	err = queue_init(&d->to_mapper, sizeof(struct map_msg), 2 * d->setup.nr_extents);
	if (err)
		return err;
	err = queue_init(&d->from_mapper, sizeof(struct map_msg), d->setup.nr_extents);
	if (err)
		return err;
	sem_init(&d->mapper_bell, 0, 0);
	pthread_mutex_init(&d->extent_lock, NULL);
	d->mapper_stop = 1;
	return 0;
}

int mapper_start(struct daemon *d)
{
	int err;

	d->mapper_stop = 0;
	err = pthread_create(&d->mapper_thread, NULL, mapper_main, d);
	if (err)
		d->mapper_stop = 1;
	return -err;
}

/**
 * mapper_stop() - end the thread
 * Return: false when a device call does not come back; then nothing that the
 * thread uses may be freed.
 */
bool mapper_stop(struct daemon *d)
{
	struct timespec ts;

	if (d->mapper_stop)
		return true;
	WRITE_ONCE(d->mapper_stop, 1);
	sem_post(&d->mapper_bell);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += STOP_S;
	return !pthread_timedjoin_np(d->mapper_thread, NULL, &ts);
}

void mapper_exit(struct daemon *d)
{
	u32 i;

	for (i = 0; d->extent_fds && i < d->setup.nr_extents; i++)
		if (d->extent_fds[i].fd >= 0)
			d->setup.dev.ops->extent_release(&d->setup.dev, i,
							 d->extent_fds[i].fd);
	free(d->extent_fds);
	queue_exit(&d->to_mapper);
	queue_exit(&d->from_mapper);
}

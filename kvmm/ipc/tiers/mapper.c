// SPDX-License-Identifier: Apache-2.0
/*
 * mapper.c - the thread that makes and releases extents
 *
 * A device call may take long: it fills memory, or waits for a driver.  This
 * thread makes the calls one after the other, in the order of the core.  The mm
 * thread hands orders over and collects answers; it never waits for them.
 *
 * The queues cannot be full: a release and a creation of one extent at most are
 * under way, since the core releases only an extent that was created.
 *
 * A call that does not come back stops this thread alone.  The control thread
 * warns of it once.
 *
 * An extent is deposited with hold before the core hears of it.  Otherwise the
 * next daemon might miss the memory of an extent that the arena says has some,
 * and could not adopt the arena.
 */
#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/tiers/tiers.h"

#define SLOW_NS	(2 * NSEC_PER_SEC)
#define DEPOSIT_TRIES	20	/* for longer than hold asks a program (PROBE_MS) */
#define STOP_S	5	/* for a device call to come back, at the end */

/* ---- mm thread ---- */

/**
 * device_look() - tell the core, once, that the device of a pool has failed
 *
 * It is called before the core hears of a copy or an extent that failed with
 * the device.
 */
void device_look(struct setup *s, u64 now)
{
	/* Pairs with the release in cuda_failed(). */
	const u32 all = load_acquire(&s->dev.failed);
	u32 i;

	for (i = 0; i < s->nr_pools; i++) {
		/* Pairs with the release in pool_fails(). */
		const u32 failed = max(all, load_acquire(&s->pool_failed[i]));

		if (failed == s->dev_failed[i])
			continue;
		s->dev_failed[i] = failed;
		core_device_failed(s->core, now, i, failed == DEV_LOST ?
				   CORE_DEVICE_LOST : CORE_DEVICE_CUT);
	}
}

void mapper_push(struct mapper *m, u32 op, u32 extent, u32 generation)
{
	struct map_msg msg = {
		.op = op, .extent = extent, .generation = generation,
	};

	if (!queue_push(&m->todo, &msg)) {
		pr_err("the mapper's queue is full: extent %u is lost", extent);
		return;
	}
	sem_post(&m->bell);
}

/* mapper_collect() - tell the core of new extents.  Return: were there any? */
bool mapper_collect(struct mapper *m, u64 now)
{
	struct map_msg msg;
	bool any = false;

	while (queue_pop(&m->done, &msg)) {
		device_look(m->setup, now);
		core_extent_created(m->setup->core, now, msg.extent,
				    msg.status);
		any = true;
	}
	return any;
}

/* ---- mapper thread ---- */

/*
 * hold keeps the extent from here on, or no more; it also gets the record of a
 * daemon that dies.  No other thread waits for this one, so it waits for hold.
 */
static void extent_deposit(struct mapper *m, u32 op, u32 extent, int fd,
			   u32 generation)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = op, .kind = HOLD_EXTENT,
		.index = extent, .generation = generation,
	};
	int err = m->setup->arena_fd < 0 ? 0 : deposit_try(m->deposit, &r, fd);
	u32 i;

	for (i = 0; i < DEPOSIT_TRIES && err == -EAGAIN &&
	     !READ_ONCE(m->stop); i++)
		err = deposit_try(m->deposit, &r, fd);
	if (err && log_allowed())
		pr_warn("kvmm-hold does not take extent %u (%s): should kvmm die, the next start is a cold one",
			extent, strerror(-err));
}

/* Does a test make the device of the pool fail now? */
static bool pool_is_to_fail(u32 pool)
{
	return (!pool && kv_fault(KV_FAULT_pool_lost)) ||
	       (pool == 1 && kv_fault(KV_FAULT_pool1_lost));
}

/* The device of the extent's pool fails. */
static int pool_fails(struct setup *s, u32 extent)
{
	const u32 pool = setup_pool_of(s, extent);

	pr_err("gpu%u: the device of the pool failed, and the content of its memory is lost: clients of its domains end",
	       pool);
	store_release(&s->pool_failed[pool], DEV_LOST);
	return -EIO;
}

static void mapper_create(struct mapper *m, struct map_msg *msg)
{
	struct kvmm_dev *dev = &m->setup->dev;
	int fd = -1;

	if (pool_is_to_fail(setup_pool_of(m->setup, msg->extent)))
		msg->status = pool_fails(m->setup, msg->extent);
	else
		msg->status = dev->ops->extent_create(dev, msg->extent,
						      msg->generation, &fd);
	if (msg->status && !m->setup->pool_failed[setup_pool_of(m->setup, msg->extent)] &&
	    !READ_ONCE(dev->failed) && log_allowed())
		pr_warn("extent %u cannot be made: %s: free memory, or give kvmm a smaller --pool-size",
			msg->extent, strerror(-msg->status));
	if (!msg->status) {
		extent_deposit(m, HOLD_PUT, msg->extent, fd, msg->generation);
		extents_publish(m->extents, msg->extent, fd, msg->generation);
	}
	if (!queue_push(&m->done, msg))
		pr_err("the mapper's answers are full: extent %u is lost",
		       msg->extent);
	sleeper_wake(m->mm);
}

static void mapper_release(struct mapper *m, const struct map_msg *msg)
{
	struct kvmm_dev *dev = &m->setup->dev;
	int fd = m->extents->table[msg->extent].fd, err;

	if (fd < 0)
		return;
	extent_deposit(m, HOLD_DROP, msg->extent, -1, 0);
	/* Withdrawn first: the number may be another file's after this. */
	extents_publish(m->extents, msg->extent, -1, 0);
	err = dev->ops->extent_revoke(dev, msg->extent, fd);
	if (err && log_allowed())
		pr_warn("extent %u: its old memory is not back (%s): a process of its old user keeps it until it ends",
			msg->extent, strerror(-err));
	dev->ops->extent_release(dev, msg->extent, fd);
}

static void *mapper_main(void *arg)
{
	struct mapper *m = arg;
	struct map_msg msg;

	pthread_setname_np(pthread_self(), "kvmm-mapper");
	for (;;) {
		while (sem_wait(&m->bell) && errno == EINTR)
			;
		if (READ_ONCE(m->stop))
			return NULL;
		if (!queue_pop(&m->todo, &msg))
			continue;
		WRITE_ONCE(m->extent, msg.extent);
		store_release(&m->since, kv_now_ns());
		if (msg.op == MAP_CREATE)
			mapper_create(m, &msg);
		else
			mapper_release(m, &msg);
		store_release(&m->since, 0ull);
	}
}

/* ---- control thread ---- */

/* mapper_watchdog() - warn, once, of a device call that takes long */
void mapper_watchdog(struct mapper *m, u64 now)
{
	u64 since = load_acquire(&m->since);

	if (!since || now < since + SLOW_NS || m->warned == since)
		return;
	m->warned = since;
	pr_warn("extent %u has been in the making for %llu s: is this machine short of memory?",
		READ_ONCE(m->extent),
		(unsigned long long)((now - since) / NSEC_PER_SEC));
}

int mapper_init(struct mapper *m)
{
	const u32 nr = m->setup->nr_extents;
	int err = extents_init(m->extents, nr);

	if (!err)
		err = queue_init(&m->todo, sizeof(struct map_msg), 2 * nr);
	if (!err)
		err = queue_init(&m->done, sizeof(struct map_msg), nr);
	if (err)
		return err;
	sem_init(&m->bell, 0, 0);
	m->stop = 1;
	return 0;
}

int mapper_start(struct mapper *m)
{
	int err;

	m->stop = 0;
	err = pthread_create(&m->thread, NULL, mapper_main, m);
	if (err)
		m->stop = 1;
	return -err;
}

/**
 * mapper_stop() - end the thread
 * Return: false when a device call does not come back; then nothing that the
 * thread uses may be freed.
 */
bool mapper_stop(struct mapper *m)
{
	struct timespec ts;

	if (m->stop)
		return true;
	WRITE_ONCE(m->stop, 1);
	sem_post(&m->bell);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += STOP_S;
	return !pthread_timedjoin_np(m->thread, NULL, &ts);
}

/* mapper_exit() - release all extents */
void mapper_exit(struct mapper *m)
{
	struct kvmm_dev *dev = &m->setup->dev;
	struct extent_fd *x = m->extents->table;
	u32 i;

	for (i = 0; x && i < m->setup->nr_extents; i++)
		if (x[i].fd >= 0)
			dev->ops->extent_release(dev, i, x[i].fd);
	free(x);
	m->extents->table = NULL;
	queue_exit(&m->todo);
	queue_exit(&m->done);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * copier.c - the thread that copies blocks: device, host pool, device
 *
 * The core orders a copy, the mm thread queues it, this thread makes it and
 * answers; then the core counts it as done.  Until then neither the block nor
 * the slot is given to anybody else, so nothing here looks twice at whom they
 * belong to.
 *
 * Clients may write extents, and a client that lies may write one while it is
 * read here, or punch holes in it.  So extents are read and written by the
 * device's calls and never mapped: what comes is that client's own content,
 * whatever it did to it.  The host pool is mapped by the daemon and by swapd
 * alone.  A slot goes to its area in whole pages, so what a block leaves of its
 * last one is cleared: it is what another tenant's block had there.
 *
 * A block that moves inside the device goes through a buffer of this thread's,
 * for the same reason.
 *
 * A device that copies by itself takes many at once instead: copier_many.c.
 *
 * The queues cannot be full: each copy in flight has a block of the device and
 * a slot of the host pool to itself, or is one of CORE_MAX_MOVES, and the
 * queues have a place for each there can be.  A copy in flight holds the spans
 * of its blocks, so their extents are not released meanwhile and their
 * descriptors stay.
 */
#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define BOUNCE		(256u << 10)
#define DELAY_NS	(20 * NSEC_PER_MSEC)
#define SLOW_NS		(2 * NSEC_PER_SEC)
#define STOP_S		5	/* for a copy to come back, at the end */

/* Copies that can be under way at once. */
static u32 copies_max(const struct daemon *d)
{
	u64 bytes = min(d->setup.cfg.pool_bytes, d->setup.cfg.host_bytes);

	return (u32)(bytes / (16ull * d->setup.cfg.min_token_bytes)) + 1 +
	       CORE_MAX_MOVES;
}

/* Memory that the queues take. */
u64 copier_bytes(const struct daemon *d)
{
	u32 nr = copies_max(d);

	return queue_bytes(sizeof(struct core_copy), nr) +
	       queue_bytes(sizeof(struct copy_done), nr);
}

/* ---- mm thread ---- */

void copier_push(struct daemon *d, const struct core_copy *cp)
{
	if (!queue_push(&d->copier.todo, cp)) {
		pr_err("the copier's queue is full: copy %llx is lost",
		       (unsigned long long)cp->id);
		return;
	}
	sem_post(&d->copier.bell);
}

/* Tell the core what was copied.  Return: whether there was anything. */
bool copier_collect(struct daemon *d, u64 now)
{
	struct copy_done done;
	bool any = false;

	while (d->copier.done.slot && queue_pop(&d->copier.done, &done)) {
		mm_look_at_device(d, now);
		core_copy_done(d->setup.core, now, done.id, done.status);
		any = true;
	}
	return any;
}

/* What was copied until now.  Any thread. */
void copier_get_counts(const struct daemon *d, struct copy_counts *count)
{
#define x(name, text) count->name = READ_ONCE(d->copier.count.name);
	PROC_COPIER_COUNTERS(x)
#undef x
}

/* ---- copier thread ---- */

static bool in_pool(const struct daemon *d, u64 off, u64 bytes)
{
	return off <= d->setup.cfg.pool_bytes && bytes <= d->setup.cfg.pool_bytes - off;
}

/* copier_judge() - does it lie where blocks and slots are?  0 or -EFAULT */
int copier_judge(const struct daemon *d, const struct core_copy *cp)
{
	const u64 slot = ALIGN_UP(cp->bytes, (u64)SWAPD_ALIGN);

	if (!in_pool(d, cp->dev_off, cp->bytes))
		return -EFAULT;
	if (cp->within)
		return in_pool(d, cp->dev_to, cp->bytes) ? 0 : -EFAULT;
	return cp->host_off > d->setup.host.bytes ||
	       slot > d->setup.host.bytes - cp->host_off ? -EFAULT : 0;
}

/* What a block leaves of the last page of its slot. */
void copier_clear_tail(const struct daemon *d, const struct core_copy *cp)
{
	memset(d->setup.host.base + cp->host_off + cp->bytes, 0,
	       ALIGN_UP(cp->bytes, (u64)SWAPD_ALIGN) - cp->bytes);
}

/* copier_fault() - what a test wants to go wrong with this copy */
int copier_fault(const struct core_copy *cp)
{
	struct timespec ts = { .tv_nsec = DELAY_NS };

	if (kv_fault(KV_FAULT_copy_delay))
		nanosleep(&ts, NULL);
	if (cp->within)
		return kv_fault(KV_FAULT_copy_move_eio) ? -EIO : 0;
	return kv_fault(cp->to_host ? KV_FAULT_copy_out_eio :
				      KV_FAULT_copy_in_eio) ? -EIO : 0;
}

static int extent_fd_get(struct daemon *d, u32 extent)
{
	int fd;

	pthread_mutex_lock(&d->extent_lock);
	fd = d->extent_fds[extent].fd;
	pthread_mutex_unlock(&d->extent_lock);
	return fd;
}

/* ---- one after the other, by read and write ---- */

/* The part of a block that lies in one extent. */
static int copy_part(struct daemon *d, bool to_host, u64 dev_off, char *host,
		     u64 len)
{
	const struct kvmm_dev_ops *ops = d->setup.dev.ops;
	u64 off = dev_off % d->setup.cfg.extent_size;
	int fd = extent_fd_get(d, (u32)(dev_off / d->setup.cfg.extent_size));

	if (fd < 0)
		return -EIO;
	return to_host ? ops->read(&d->setup.dev, fd, off, host, len) :
			 ops->write(&d->setup.dev, fd, off, host, len);
}

/* Bytes from an offset of the pool to the end of its extent. */
static u64 extent_left(const struct daemon *d, u64 off)
{
	return d->setup.cfg.extent_size - off % d->setup.cfg.extent_size;
}

/* Inside the device, by way of a buffer that no client can reach. */
static int copy_within(struct daemon *d, const struct core_copy *cp)
{
	static char bounce[BOUNCE];
	u64 done = 0;
	int err = 0;

	while (done < cp->bytes && !err) {
		u64 from = cp->dev_off + done, to = cp->dev_to + done;
		u64 len = min(extent_left(d, from), extent_left(d, to));

		len = min(min(len, cp->bytes - done), (u64)BOUNCE);
		err = copy_part(d, true, from, bounce, len);
		if (!err)
			err = copy_part(d, false, to, bounce, len);
		done += len;
	}
	return err;
}

static int copy_block(struct daemon *d, const struct core_copy *cp)
{
	char *host = d->setup.host.base + cp->host_off;
	u64 off = cp->dev_off, left = cp->bytes;
	int err = 0;

	if (cp->to_host)
		copier_clear_tail(d, cp);
	while (left && !err) {
		u64 len = min(left, extent_left(d, off));

		err = copy_part(d, cp->to_host, off, host, len);
		off += len;
		host += len;
		left -= len;
	}
	return err;
}

static int copier_do(struct daemon *d, const struct core_copy *cp)
{
	int err = copier_fault(cp);

	if (!err)
		err = copier_judge(d, cp);
	if (err)
		return err;
	return cp->within ? copy_within(d, cp) : copy_block(d, cp);
}

/* A copy is over that took @ns; one that failed has moved nothing. */
static void copier_count(struct copy_counts *n, const struct core_copy *cp,
			 u64 ns, int status)
{
	u64 *took = cp->within ? &n->copy_move_ns :
		    cp->to_host ? &n->copy_out_ns : &n->copy_in_ns;
	u64 *moved = cp->within ? &n->copy_move_bytes :
		     cp->to_host ? &n->copy_out_bytes : &n->copy_in_bytes;

	WRITE_ONCE(*took, *took + ns);
	if (!status)
		WRITE_ONCE(*moved, *moved + cp->bytes);
}

/**
 * copier_finish() - a copy is over
 * @ns: that it kept its direction busy
 */
void copier_finish(struct daemon *d, const struct core_copy *cp, u64 ns,
		   int status)
{
	const struct copy_done done = { .id = cp->id, .status = status };

	copier_count(&d->copier.count, cp, ns, status);
	/* Of a device that failed all was said. */
	if (status && !READ_ONCE(d->setup.dev.failed) && log_allowed())
		pr_warn("a block cannot be copied %s: %s",
			cp->within ? "inside the device" :
			cp->to_host ? "to the host pool" :
				      "from the host pool",
			strerror(-status));
	if (!queue_push(&d->copier.done, &done))
		pr_err("the copier's answers are full: copy %llx is lost",
		       (unsigned long long)cp->id);
	mm_wake_up(d);
}

static void copier_one(struct daemon *d)
{
	struct copier *c = &d->copier;
	struct core_copy cp;
	int status;
	u64 began;

	while (sem_wait(&c->bell) && errno == EINTR)
		;
	if (READ_ONCE(c->stop) || !queue_pop(&c->todo, &cp))
		return;
	began = clock_ns();
	store_release(&c->since, began);
	status = copier_do(d, &cp);
	store_release(&c->since, 0ull);
	copier_finish(d, &cp, clock_ns() - began, status);
}

static void *copier_main(void *arg)
{
	struct daemon *d = arg;

	pthread_setname_np(pthread_self(), "kvmm-copier");
	if (d->setup.dev.ops->copy_begin)
		copier_many(d);
	while (!READ_ONCE(d->copier.stop))
		copier_one(d);
	return NULL;
}

/* ---- control thread ---- */

/* Say, once, that a copy takes long. */
void copier_watchdog(struct daemon *d, u64 now)
{
	struct copier *c = &d->copier;
	u64 since = load_acquire(&c->since);

	if (!since || now < since + SLOW_NS || c->warned == since)
		return;
	c->warned = since;
	pr_warn("a copy between device and host pool takes %llu s: is this machine short of memory?",
		(unsigned long long)((now - since) / NSEC_PER_SEC));
}

int copier_init(struct daemon *d)
{
	struct copier *c = &d->copier;
	u32 nr = copies_max(d);
	int err;

	c->stop = 1;
	sem_init(&c->bell, 0, 0);
	err = queue_init(&c->todo, sizeof(struct core_copy), nr);
	if (err)
		return err;
	return queue_init(&c->done, sizeof(struct copy_done), nr);
}

int copier_start(struct daemon *d)
{
	struct copier *c = &d->copier;
	int err;

	c->stop = 0;
	err = pthread_create(&c->thread, NULL, copier_main, d);
	if (err)
		c->stop = 1;
	return -err;
}

/**
 * copier_stop() - end the thread
 * Return: false when a copy does not come back; then nothing that the thread
 * uses may be freed.
 */
bool copier_stop(struct daemon *d)
{
	struct copier *c = &d->copier;
	struct timespec ts;

	if (c->stop)
		return true;
	WRITE_ONCE(c->stop, 1);
	sem_post(&c->bell);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += STOP_S;
	return !pthread_timedjoin_np(c->thread, NULL, &ts);
}

void copier_exit(struct daemon *d)
{
	queue_exit(&d->copier.todo);
	queue_exit(&d->copier.done);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * copier.c - the thread that copies blocks: to the host pool, back, inside the device
 *
 * The core orders a copy, the mm thread queues it, this thread makes it and
 * answers; then the core counts it as done.  Until then the core gives neither
 * the block nor the slot to another owner, so no check of ownership is needed
 * here.
 *
 * Clients may write extents.  A client may write an extent while it is read
 * here, against the rules, or punch holes in it.  So extents are read and
 * written by the device's operations alone, which expect that: whatever the
 * client does, it changes its own content alone.  Only the daemon and swapd map
 * the host pool.
 * A slot goes to its area in whole pages, so the rest of its last page is
 * cleared: it holds bytes of another tenant's block.
 *
 * A block that moves inside the device goes through a buffer of this thread,
 * for the same reason.
 *
 * A device that copies by itself takes many at once instead: copier_many.c.
 *
 * The queues cannot be full: each copy in flight has a block of the device and
 * a slot of the host pool to itself, or is one of CORE_MAX_MOVES, and the
 * queues have a place for each.  A copy in flight pins the spans of its blocks,
 * so their extents are not released meanwhile and their descriptors stay.
 */
#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/tiers/tiers.h"

#define BOUNCE		(256u << 10)
#define DELAY_NS	(20 * NSEC_PER_MSEC)
#define SLOW_NS		(2 * NSEC_PER_SEC)
#define WAKE_NS		250000
#define STOP_S		5	/* for a copy to come back, at the end */

/* Copies that can be under way at once. */
static u32 copies_max(const struct setup *s)
{
	u64 bytes = min(s->cfg.pool_bytes, s->cfg.host_bytes);

	return (u32)(bytes / (16ull * s->cfg.min_token_bytes)) + 1 +
	       CORE_MAX_MOVES;
}

/* copier_bytes() - memory that the queues take */
u64 copier_bytes(const struct setup *s)
{
	u32 nr = copies_max(s);

	return queue_bytes(sizeof(struct core_copy), nr) +
	       queue_bytes(sizeof(struct copy_done), nr);
}

/* ---- mm thread ---- */

void copier_push(struct copier *c, const struct core_copy *cp)
{
	if (!queue_push(&c->todo, cp)) {
		pr_err("the copier's queue is full: copy %llx is lost",
		       (unsigned long long)cp->id);
		return;
	}
	sem_post(&c->bell);
}

/* copier_collect() - tell the core of copies that are over.  Return: any? */
bool copier_collect(struct copier *c, u64 now)
{
	struct copy_done done;
	bool any = false;

	while (c->done.slot && queue_pop(&c->done, &done)) {
		device_look(c->setup, now);
		core_copy_done(c->setup->core, now, done.id, done.status);
		any = true;
	}
	return any;
}

/* copier_get_counts() - the counters as they are now; any thread */
void copier_get_counts(const struct copier *c, struct copy_counts *count)
{
#define x(name, text) count->name = READ_ONCE(c->count.name);
	PROC_COPIER_COUNTERS(x)
#undef x
}

/* ---- copier thread ---- */

static bool in_pool(const struct copier *c, u64 off, u64 bytes)
{
	return off <= c->setup->cfg.pool_bytes && bytes <= c->setup->cfg.pool_bytes - off;
}

/* Bytes of all parts of the block. */
static u64 payload_bytes(const struct core_copy *cp)
{
	return cp->bytes * cp->nr_shards;
}

/* copier_judge() - 0, or -EFAULT: outside of the pools */
int copier_judge(const struct copier *c, const struct core_copy *cp)
{
	const u64 slot = ALIGN_UP(payload_bytes(cp), (u64)SWAPD_ALIGN);
	u32 i;

	for (i = 0; i < cp->nr_shards; i++)
		if (!in_pool(c, cp->dev_off + cp->shard_off[i], cp->bytes) ||
		    (cp->within && !in_pool(c, cp->dev_to + cp->shard_off[i], cp->bytes)))
			return -EFAULT;
	if (cp->within)
		return 0;
	return cp->host_off > c->setup->host.bytes ||
	       slot > c->setup->host.bytes - cp->host_off ? -EFAULT : 0;
}

/* copier_clear_tail() - clear the rest of the last page of the slot */
void copier_clear_tail(const struct copier *c, const struct core_copy *cp)
{
	const u64 bytes = payload_bytes(cp);

	memset(c->setup->host.base + cp->host_off + bytes, 0,
	       ALIGN_UP(bytes, (u64)SWAPD_ALIGN) - bytes);
}

/* copier_fault() - the fault that a test injects into this copy, or 0 */
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

/* ---- one after the other, by read and write ---- */

/* The part of a block that lies in one extent. */
static int copy_part(struct copier *c, bool to_host, u64 dev_off, char *host,
		     u64 len)
{
	const struct kvmm_dev_ops *ops = c->setup->dev.ops;
	const u32 extent = (u32)(dev_off / c->setup->cfg.extent_size);
	const u64 off = dev_off % c->setup->cfg.extent_size;
	const int fd = extents_get(c->extents, extent);

	if (fd < 0)
		return -EIO;
	return to_host ?
	       ops->read(&c->setup->dev, extent, fd, off, host, len) :
	       ops->write(&c->setup->dev, extent, fd, off, host, len);
}

/* Bytes from an offset of the pool to the end of its extent. */
static u64 extent_left(const struct copier *c, u64 off)
{
	return c->setup->cfg.extent_size - off % c->setup->cfg.extent_size;
}

/* Inside the device, by way of a buffer that no client can reach. */
static int copy_within(struct copier *c, const struct core_copy *cp)
{
	static char bounce[BOUNCE];
	u64 done = 0;
	int err = 0;

	while (done < cp->bytes && !err) {
		u64 from = cp->dev_off + done, to = cp->dev_to + done;
		u64 len = min(extent_left(c, from), extent_left(c, to));

		len = min(min(len, cp->bytes - done), (u64)BOUNCE);
		err = copy_part(c, true, from, bounce, len);
		if (!err)
			err = copy_part(c, false, to, bounce, len);
		done += len;
	}
	return err;
}

static int copy_block(struct copier *c, const struct core_copy *cp)
{
	char *host = c->setup->host.base + cp->host_off;
	u64 off = cp->dev_off, left = cp->bytes;
	int err = 0;

	while (left && !err) {
		u64 len = min(left, extent_left(c, off));

		err = copy_part(c, cp->to_host, off, host, len);
		off += len;
		host += len;
		left -= len;
	}
	return err;
}

/* Part @i of a copy, as a copy of its own. */
static int copy_shard(struct copier *c, const struct core_copy *cp, u32 i)
{
	struct core_copy one = *cp;

	one.dev_off += cp->shard_off[i];
	one.dev_to += cp->shard_off[i];
	one.host_off += i * cp->bytes;
	return cp->within ? copy_within(c, &one) : copy_block(c, &one);
}

static int copier_do(struct copier *c, const struct core_copy *cp)
{
	int err = copier_fault(cp);
	u32 i;

	if (!err)
		err = copier_judge(c, cp);
	if (!err && cp->to_host)
		copier_clear_tail(c, cp);
	for (i = 0; !err && i < cp->nr_shards; i++)
		err = copy_shard(c, cp, i);
	return err;
}

/* A copy that took @ns is over; a failed one counts as no bytes. */
static void copier_count(struct copy_counts *n, const struct core_copy *cp,
			 u64 ns, int status)
{
	u64 *took = cp->within ? &n->copy_move_ns :
		    cp->to_host ? &n->copy_out_ns : &n->copy_in_ns;
	u64 *moved = cp->within ? &n->copy_move_bytes :
		     cp->to_host ? &n->copy_out_bytes : &n->copy_in_bytes;

	WRITE_ONCE(*took, *took + ns);
	if (!status)
		WRITE_ONCE(*moved, *moved + payload_bytes(cp));
}

/* Queue the answer; the mm thread may still sleep. */
static void copier_answer(struct copier *c, const struct core_copy *cp, u64 ns,
			  int status)
{
	const struct copy_done done = { .id = cp->id, .status = status };

	copier_count(&c->count, cp, ns, status);
	/* A failed device has been logged. */
	if (status && !READ_ONCE(c->setup->dev.failed) && log_allowed())
		pr_warn("a block cannot be copied %s: %s",
			cp->within ? "inside the device" :
			cp->to_host ? "to the host pool" :
				      "from the host pool",
			strerror(-status));
	if (!queue_push(&c->done, &done))
		pr_err("the copier's answers are full: copy %llx is lost",
		       (unsigned long long)cp->id);
}

/**
 * copier_finish() - a copy is over
 * @ns: that it kept its direction busy
 */
void copier_finish(struct copier *c, const struct core_copy *cp, u64 ns,
		   int status)
{
	copier_answer(c, cp, ns, status);
	sleeper_wake(c->mm);
}

/*
 * To wake the mm thread takes longer than to copy a small block.  While more copies
 * wait, it sleeps on, for WAKE_NS and one more copy at most: it then finds several
 * answers.
 */
static void copier_wake(struct copier *c, u64 now)
{
	if (!queue_empty(&c->todo) && now - c->woken < WAKE_NS)
		return;
	c->woken = now;
	sleeper_wake(c->mm);
}

static void copier_one(struct copier *c)
{
	struct core_copy cp;
	u64 began, now;
	int status;

	while (sem_wait(&c->bell) && errno == EINTR)
		;
	if (READ_ONCE(c->stop) || !queue_pop(&c->todo, &cp))
		return;
	began = kv_now_ns();
	store_release(&c->since, began);
	status = copier_do(c, &cp);
	store_release(&c->since, 0ull);
	now = kv_now_ns();
	copier_answer(c, &cp, now - began, status);
	copier_wake(c, now);
}

static void *copier_main(void *arg)
{
	struct copier *c = arg;

	pthread_setname_np(pthread_self(), "kvmm-copier");
	if (c->setup->dev.ops->copy_begin)
		copier_many(c);
	while (!READ_ONCE(c->stop))
		copier_one(c);
	return NULL;
}

/* ---- control thread ---- */

/* copier_watchdog() - warn, once, of a copy that takes long */
void copier_watchdog(struct copier *c, u64 now)
{
	u64 since = load_acquire(&c->since);

	if (!since || now < since + SLOW_NS || c->warned == since)
		return;
	c->warned = since;
	pr_warn("a copy between device and host pool takes %llu s: is this machine short of memory?",
		(unsigned long long)((now - since) / NSEC_PER_SEC));
}

int copier_init(struct copier *c)
{
	u32 nr = copies_max(c->setup);
	int err;

	c->stop = 1;
	sem_init(&c->bell, 0, 0);
	err = queue_init(&c->todo, sizeof(struct core_copy), nr);
	if (err)
		return err;
	return queue_init(&c->done, sizeof(struct copy_done), nr);
}

int copier_start(struct copier *c)
{
	int err;

	c->stop = 0;
	err = pthread_create(&c->thread, NULL, copier_main, c);
	if (err)
		c->stop = 1;
	return -err;
}

/**
 * copier_stop() - end the thread
 * Return: false when a copy does not come back; then nothing that the thread
 * uses may be freed.
 */
bool copier_stop(struct copier *c)
{
	struct timespec ts;

	if (c->stop)
		return true;
	WRITE_ONCE(c->stop, 1);
	sem_post(&c->bell);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += STOP_S;
	return !pthread_timedjoin_np(c->thread, NULL, &ts);
}

void copier_exit(struct copier *c)
{
	queue_exit(&c->todo);
	queue_exit(&c->done);
}

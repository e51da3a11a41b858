// SPDX-License-Identifier: Apache-2.0
/*
 * swap_area.c - swap areas come and go
 *
 *	FREE -> ADDING -> LIVE -> DRAINING -> REMOVING -> FREE
 *
 * An operator's kvctl opened the file and passed it here.  swapd judges and
 * locks it (ADDING), then the core may use it (LIVE).  Going is the other way
 * round: the core lets go of what it has elsewhere and waits for the rest to be
 * read (DRAINING), then swapd lets go of the file (REMOVING).
 *
 * The descriptor stays here as long as the area does: each new swapd gets it
 * again, with the identity that it had, and must find the same superblock.
 * kvmm-hold has a duplicate: the next daemon goes on with the area as it is, or,
 * after a cold start, adds it again, empty, as soon as there is a swapd,
 * however long that takes.
 *
 * What happens after a while: swap_area_time.c; when its disk fails:
 * swap_area_fail.c.
 *
 * Context: control thread, but the functions handed to mm_call().
 */
#include <sys/file.h>
#include <sys/stat.h>

#include <kvmm/log.h>

#include "kvmm/ipc/admin.h"
#include "kvmm/ipc/daemon.h"

#define ADD_TRIES	3
#define DRAIN_MIN_NS	(20 * NSEC_PER_MSEC)
#define AREA_DRAIN_NS	(60 * NSEC_PER_SEC)	/* that the last daemon began */

struct area_call {
	struct daemon		*d;
	struct swap_area	*a;
	int			err;
	u64			left;
};

static u32 area_index(const struct daemon *d, const struct swap_area *a)
{
	return (u32)(a - d->link.area);
}

/* ---- on the mm thread ---- */

static void area_map(struct daemon *d, const struct swap_area *a, bool live)
{
	d->swap.area[a->core].index = area_index(d, a);
	d->swap.area[a->core].off = a->usable_off;
	d->swap.area[a->core].live = live;
}

/* The next daemon is to know the area. */
static void area_keep(struct daemon *d, const struct swap_area *a)
{
	struct keep_area k = {
		.core		= a->core,
		.draining	= a->state == AREA_DRAINING,
		.priority	= a->priority,
		.bytes		= a->bytes,
		.asked		= a->asked,
		.usable_off	= a->usable_off,
		.usable_bytes	= a->usable_bytes,
	};

	memcpy(k.uuid, a->uuid, sizeof(k.uuid));
	memcpy(k.path, a->path, sizeof(k.path));
	keep_area_put(&d->deposit, area_index(d, a), &k);
}

static void call_add(struct core *core, void *arg)
{
	struct area_call *c = arg;
	struct swapd_ctl *ctl = c->d->swap.ctl;
	u32 i;

	c->err = core_area_add(core, clock_ns(), c->a->usable_bytes,
			       c->a->priority, &c->a->core);
	if (c->err)
		return;
	for (i = 0; i < NR_SWAPD_AREA_COUNTERS; i++)
		if (i != SWAPD_AREA_CNT_wr_depth)	/* a state, and told */
			WRITE_ONCE(ctl->area[area_index(c->d, c->a)][i], 0);
	area_map(c->d, c->a, true);
	c->d->swap.area[c->a->core].busy_ns = 0;
	/* The control thread waits for this. */
	area_keep(c->d, c->a);
}

static void call_del(struct core *core, void *arg)
{
	struct area_call *c = arg;
	struct core_tier_view v;

	c->err = core_area_del(core, clock_ns(), c->a->core);
	if (!c->err) {
		keep_area_drop(&c->d->deposit, area_index(c->d, c->a));
		area_map(c->d, c->a, false);
	} else if (!core_get_tier(core, CORE_POOL_AREA + c->a->core, &v))
		c->left = v.used + v.limbo;
}

static void call_known(struct core *core, void *arg)
{
	struct area_call *c = arg;

	area_map(c->d, c->a, !c->a->lost && !c->a->failed);
}

static int area_call(struct daemon *d, struct swap_area *a,
		     void (*fn)(struct core *core, void *arg), u64 *left)
{
	struct area_call c = { .d = d, .a = a };
	int err = mm_call(&d->mm, fn, &c);

	if (left)
		*left = c.left;
	return err ? err : c.err;
}

/**
 * area_empty() - the core lets go of what it can
 * @left: bytes that it cannot yet
 * Return: 0: of all, and it uses the area no more; a negative errno.
 */
int area_empty(struct daemon *d, struct swap_area *a, u64 *left)
{
	return area_call(d, a, call_del, left);
}

static void call_lose(struct core *core, void *arg)
{
	struct area_call *c = arg;

	core_area_lose(core, clock_ns(), c->a->core);
}

/* What only the area has is not waited for any more. */
void area_forget(struct daemon *d, struct swap_area *a)
{
	if (area_call(d, a, call_lose, NULL))
		pr_debug("swap: the mm thread has ended");
}

/* ---- ends ---- */

/* Tell the log, and who waits, for whom it is the end. */
void area_tell(struct daemon *d, struct swap_area *a, int err,
	       const char *fmt, ...)
{
	struct admin *adm = a->waiter;
	char text[ADMIN_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	a->waiter = NULL;
	if (err)
		pr_warn("%s", text);
	else
		pr_info("%s", text);
	if (adm)
		admin_finish(adm, err, text);
}

/* Nothing of it is left here, in hold, or locked. */
void area_free(struct daemon *d, struct swap_area *a)
{
	deposit_drop(&d->deposit, HOLD_SWAP_AREA, area_index(d, a));
	/* Now, not when the last duplicate of the descriptor is closed. */
	flock(a->fd, LOCK_UN);
	close(a->fd);
	memset(a, 0, sizeof(*a));
	a->fd = -1;
}

/* ---- to swapd ---- */

static void area_offer(struct daemon *d, struct swap_area *a)
{
	struct swapd_msg m = {
		.magic = SWAPD_MAGIC, .op = SWAPD_AREA_ADD,
		.area = area_index(d, a), .epoch = d->setup.epoch,
		.priority = a->priority, .bytes = a->bytes,
		.flags = a->flags,
	};

	if (a->state != AREA_ADDING) {
		m.flags = SWAPD_AREA_KEEP;
		m.bytes = 0;
		memcpy(m.uuid, a->uuid, sizeof(m.uuid));
	}
	a->known = !link_send(d, &m, a->fd);
}

/**
 * area_offer_all() - a new swapd: give it every area that there is
 * Return: how many it must answer before it gets requests.
 */
u32 area_offer_all(struct daemon *d)
{
	u32 i, nr = 0;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &d->link.area[i];

		if (a->state != AREA_ADDING && a->state != AREA_LIVE &&
		    a->state != AREA_DRAINING)
			continue;
		area_offer(d, a);
		a->awaited = a->state != AREA_ADDING && a->known;
		nr += a->awaited;
	}
	return nr;
}

/* swapd is to let go of it, whatever else it says. */
void area_remove(struct daemon *d, struct swap_area *a)
{
	struct swapd_msg m = {
		.magic = SWAPD_MAGIC, .op = SWAPD_AREA_DEL,
		.area = area_index(d, a),
	};

	a->state = AREA_REMOVING;
	/* The next daemon has nothing to do with it. */
	deposit_drop(&d->deposit, HOLD_SWAP_AREA, area_index(d, a));
	if (a->known && !a->lost && !link_send(d, &m, -1))
		return;
	/* There is no swapd that has it. */
	area_tell(d, a, 0, "%s: is no swap area any more", a->path);
	area_free(d, a);
}

/* ---- swapon ---- */

/* Why no area can be added, or NULL. */
static const char *area_refuse(const struct daemon *d)
{
	if (!d->setup.cfg.host_bytes)
		return "kvmm was started without a host pool, which all swap goes through: give it --host-size";
	if (!d->setup.cfg.area_bytes)
		return "kvmm was started without room for areas: give it --area-max";
	if (!d->link.wanted)
		return "swap areas need swapd, which kvmm-hold starts: start kvmm-hold instead of kvmm";
	return NULL;
}

static struct swap_area *area_unused(struct daemon *d)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++)
		if (d->link.area[i].state == AREA_FREE)
			return &d->link.area[i];
	return NULL;
}

static void area_begin(struct daemon *d, struct swap_area *a, int fd)
{
	struct stat st;

	a->state = AREA_ADDING;
	a->fd = fd;
	a->until = clock_ns() + AREA_JOIN_NS;
	if (!fstat(fd, &st)) {
		a->device = S_ISBLK(st.st_mode);
		a->dev = a->device ? st.st_rdev : st.st_dev;
		a->ino = a->device ? 0 : st.st_ino;
	}
	if (d->link.hello)
		area_offer(d, a);
	else if (d->link.ended)
		link_run(d);
}

/*
 * No file takes room on its disk that slots may not use: what is beyond
 * --area-max is not asked for, of a file that is longer already not touched.
 */
static void area_size(const struct daemon *d, struct swap_area *a, int fd,
		      u64 bytes)
{
	const u64 most = d->setup.cfg.area_bytes / d->setup.cfg.extent_size *
			 d->setup.cfg.extent_size + SWAPD_RESERVED_BYTES;
	struct stat st;

	a->asked = bytes;
	if (!bytes && !fstat(fd, &st) && S_ISREG(st.st_mode))
		a->asked = (u64)st.st_size;
	a->bytes = a->asked > most ? most : bytes;
}

/**
 * area_on() - an operator adds an area
 * @fd:    of the file or device, taken over
 * @bytes: size that the file is to have; 0: as it is
 */
void area_on(struct daemon *d, struct admin *adm, int fd, u64 bytes,
	     s32 priority, bool force, const char *path)
{
	const char *why = area_refuse(d);
	const u64 least = d->setup.cfg.extent_size + SWAPD_RESERVED_BYTES;
	struct swap_area *a = area_unused(d);
	char text[ADMIN_TEXT], few[160], size[32];

	if (!why && !a)
		why = "there are as many areas as can be: swapoff one first";
	if (!why && bytes && bytes < least) {
		snprintf(few, sizeof(few), "too small: an area needs at least %s, for one extent behind a header: give a larger --size",
			 kv_format_size(least, size, sizeof(size)));
		why = few;
	}
	if (why) {
		snprintf(text, sizeof(text), "%s: %s", path, why);
		close(fd);
		admin_finish(adm, -EOPNOTSUPP, text);
		return;
	}
	area_size(d, a, fd, bytes & ~(u64)(SWAPD_ALIGN - 1));
	a->priority = priority;
	a->flags = force ? SWAPD_AREA_FORCE : 0;
	a->waiter = adm;
	a->tell = clock_ns() + AREA_TELL_NS;
	snprintf(a->path, sizeof(a->path), "%s", path);
	area_begin(d, a, fd);
}

/* The last daemon had it: add it again, empty. */
void area_adopt(struct daemon *d, u32 index, int fd, u64 value)
{
	struct swap_area *a = &d->link.area[index];
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, a->path, sizeof(a->path) - 1);
	a->path[n > 0 ? n : 0] = '\0';
	a->priority = (s16)value;
	a->bytes = value >> 16 << 12;
	area_begin(d, a, fd);
}

/* The core has it still, with what it holds: the next swapd is to find that. */
void area_resume(struct daemon *d, u32 index, int fd)
{
	const struct keep_area *k = &d->deposit.keep->area[index];
	struct swap_area *a = &d->link.area[index];

	memcpy(a->path, k->path, sizeof(a->path));
	a->path[sizeof(a->path) - 1] = '\0';
	a->priority = k->priority;
	a->asked = k->asked;
	a->bytes = k->bytes;
	a->usable_off = k->usable_off;
	a->usable_bytes = k->usable_bytes;
	memcpy(a->uuid, k->uuid, sizeof(a->uuid));
	a->core = k->core;
	area_begin(d, a, fd);
	a->state = AREA_LIVE;
	if (area_call(d, a, call_known, NULL))
		pr_debug("swap: the mm thread has ended");
	if (k->draining)
		area_drain_begin(d, a, AREA_DRAIN_NS);
}

/* What of the area can be used, and why that is less than it is long. */
static void area_size_text(const struct daemon *d, const struct swap_area *a,
			   char *text, size_t len)
{
	const u64 ext = d->setup.cfg.extent_size;
	const u64 most = min(a->usable_bytes, d->setup.cfg.area_bytes);
	char use[32], all[32], unit[32];

	kv_format_size(most / ext * ext, use, sizeof(use));
	kv_format_size(max(a->bytes, a->asked), all, sizeof(all));
	kv_format_size(ext, unit, sizeof(unit));
	if (most < a->usable_bytes || a->asked > a->bytes)
		snprintf(text, len, "%s, of %s: no more is used (--area-max)",
			 use, all);
	else
		snprintf(text, len, "%s, of %s: whole extents of %s behind a header of 1M",
			 use, all, unit);
}

static void area_added(struct daemon *d, struct swap_area *a,
		       const struct swapd_answer *ans)
{
	char size[192];
	int err;

	a->usable_off = ans->usable_off;
	a->usable_bytes = ans->usable_bytes;
	memcpy(a->uuid, ans->uuid, sizeof(a->uuid));
	a->bytes = ans->usable_off + ans->usable_bytes;
	err = area_call(d, a, call_add, NULL);
	kv_format_size(d->setup.cfg.extent_size, size, sizeof(size));
	if (err) {
		area_tell(d, a, err, err == -EINVAL ?
			  "%s: too small: an area must hold an extent of %s and 1M: give a larger --size" :
			  "%s: the core does not take it: %s", a->path,
			  err == -EINVAL ? size : strerror(-err));
		area_remove(d, a);
		return;
	}
	a->state = AREA_LIVE;
	deposit_put(&d->deposit, HOLD_SWAP_AREA, area_index(d, a), a->fd,
		    (u16)a->priority | a->bytes >> 12 << 16);
	area_size_text(d, a, size, sizeof(size));
	area_tell(d, a, 0, "%s: swap area of %s%s%s", a->path, size,
		  ans->text[0] ? ": " : "", ans->text);
}

/* ---- swapoff ---- */

static struct swap_area *area_find(struct daemon *d, u64 dev, u64 ino,
				   const char *path)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &d->link.area[i];

		if (a->state == AREA_FREE)
			continue;
		if ((dev && a->dev == dev && a->ino == ino) ||
		    !strcmp(a->path, path))
			return a;
	}
	return NULL;
}

/*
 * It is to go: looked at now, then less and less often.  What it holds moves
 * elsewhere for as long as @limit_ns.
 */
void area_drain_begin(struct daemon *d, struct swap_area *a, u64 limit_ns)
{
	a->until = clock_ns() + limit_ns;
	a->told = clock_ns();
	a->left = 0;
	if (a->state == AREA_LIVE) {
		a->state = AREA_DRAINING;
		d->drain_pause = DRAIN_MIN_NS;
		area_keep(d, a);
	}
	d->drain_next = 0;
}

/**
 * area_off() - an operator takes an area away
 * @timeout_ms: to be told by then how far it is
 * @dev, @ino:  of the file, or the device and 0; 0: only @path is known
 */
void area_off(struct daemon *d, struct admin *adm, u64 timeout_ms, u64 dev,
	      u64 ino, const char *path)
{
	struct swap_area *a = area_find(d, dev, ino, path);
	char text[ADMIN_TEXT];

	if (!a || a->waiter) {
		snprintf(text, sizeof(text), !a ?
			 "%s: is no swap area: see kvctl cat swaps" :
			 "%s: somebody else is adding or removing it", path);
		admin_finish(adm, a ? -EBUSY : -EINVAL, text);
		return;
	}
	a->waiter = adm;
	a->until = clock_ns() + timeout_ms * NSEC_PER_MSEC;
	a->tell = clock_ns() + AREA_TELL_NS;
	if (a->state == AREA_LIVE || a->state == AREA_DRAINING) {
		area_drain_begin(d, a, timeout_ms * NSEC_PER_MSEC);
	} else if (a->state == AREA_ADDING) {
		/* Of the last daemon, or of an operator who went away. */
		area_remove(d, a);
	}
}

/* ---- from swapd ---- */

/* swapd was offered it at its start: the others wait for one less. */
static void area_answered(struct daemon *d, struct swap_area *a)
{
	if (!a->awaited)
		return;
	a->awaited = false;
	link_area_answered(d);
}

static void area_again(struct daemon *d, struct swap_area *a,
		       const struct swapd_answer *ans)
{
	a->lost = ans->status != 0;
	if (area_call(d, a, call_known, NULL))
		pr_debug("swap: the mm thread has ended");
	area_answered(d, a);
	if (!a->lost)
		return;
	pr_err("swap area %s is lost: %s: what it held is computed again, and the area goes: kvctl swapon another one",
	       a->path, ans->text);
	a->given_up = true;
	area_forget(d, a);
	area_drain_begin(d, a, 0);
}

static void area_add_answered(struct daemon *d, struct swap_area *a,
			      const struct swapd_answer *ans)
{
	if (a->state == AREA_REMOVING) {
		/* It was emptied meanwhile, and its end is asked for already. */
		area_answered(d, a);
		return;
	}
	if (a->state != AREA_ADDING) {
		area_again(d, a, ans);
		return;
	}
	if (!ans->status) {
		area_added(d, a, ans);
		return;
	}
	area_tell(d, a, ans->status, "%s", ans->text);
	area_free(d, a);
}

void area_answer(struct daemon *d, const struct swapd_answer *ans)
{
	struct swap_area *a;

	if (ans->area >= CORE_MAX_AREAS)
		return;
	a = &d->link.area[ans->area];
	if (ans->op == SWAPD_AREA_ADD && a->known) {
		area_add_answered(d, a, ans);
	} else if (ans->op == SWAPD_AREA_DEL && a->state == AREA_REMOVING) {
		area_tell(d, a, 0, "%s: is no swap area any more", a->path);
		area_free(d, a);
	}
}

/* swapd is dead: what it was asked for must be asked again. */
void area_link_down(struct daemon *d)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &d->link.area[i];
		bool was_known = a->known;

		a->known = false;
		a->awaited = false;
		if (a->state == AREA_REMOVING) {
			area_remove(d, a);
			continue;
		}
		if (a->state != AREA_ADDING ||
		    (!d->link.ended && (a->tries += was_known) < ADD_TRIES))
			continue;
		area_tell(d, a, -ENODEV,
			  "%s: swapd ended while it looked at it: see the log",
			  a->path);
		area_free(d, a);
	}
}

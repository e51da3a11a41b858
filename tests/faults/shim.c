// SPDX-License-Identifier: Apache-2.0
/*
 * shim.c - a disk that lies: faults between swapd and the kernel, for tests
 *
 * Both engines transfer the range in struct sd_transfer and hand the result to
 * transfer_end().  So the shim needs two places: before the transfer it changes
 * the length and the place, after it the result, and the bytes on the disk or in
 * the slot.
 *
 *	nothing is transferred	eio, enospc, lost, hollow
 *	a part			cut, torn
 *	somewhere else		astray_*: the same area, at a multiple of the
 *				slot's length, never in the reserved part
 *	something afterwards	twice, late, flip_*, rot_*: while the request is
 *				unfinished, so its slots are still swapd's
 *	the request waits	delay: not given to the kernel before its time,
 *				so a death of swapd finds it not issued
 *
 * A fault of a write never changes the host slot: kvmm may read it meanwhile.  So
 * the shim turns bits over on the disk, by an additional transfer.  "late" keeps a
 * copy of a written slot; when a newer write of the same place is over, the copy
 * lands on it.
 *
 * The dice depend on the seed and on the number of the request alone.  With a
 * tally the number goes on over deaths.
 *
 * Context: the engines' threads; @sh.lock protects the late writes.  Transfers
 * that the shim adds block the thread; an honest swapd never does that.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/log.h>
#include <kvmm/opts.h>

#include "swapd/daemon.h"
#include "swapd/shim.h"

#define NR_LATE		32u	/* writes that wait for a newer one */
#define DELAY_MS	100u
#define RATE_OF		1000u
#define NSEC_PER_MSEC	1000000ull
#define NR_RULES	8u
#define ALL_AREAS	UINT32_MAX
static_assert(SWAPD_AREAS == 32, "a bit each");

static const struct {
	const char	*name;
	const char	*text;
	const char	*found;
	u32		of;
} kind_list[NR_SHIM_KINDS] = {
#define x(_name, _of, _text, _found)					\
	[SHIM_##_name] = { #_name, _text, _found, _of },
	SHIM_KINDS(x)
#undef x
};

/* A write that is to land once more. */
struct late {
	void	*slot;
	u64	area_off;
	u32	area;
	u32	len;
};

/**
 * struct shim_rule - faults of some areas
 * @areas: a bit each
 * @kinds: likewise
 */
struct shim_rule {
	u64	rate;
	u64	delay_ms;
	u32	areas;
	u32	kinds;
};

bool shim_on;

static struct {
	u64			seed;
	struct shim_rule	rule[NR_RULES];	/* the first that fits counts */
	u32			nr_rules;
	struct shim_tally	*tally;
	struct shim_tally	own;		/* if no file was given */
	pthread_mutex_t		lock;		/* of @late */
	struct late		late[NR_LATE];
	u32			next_late;
} sh;

const char *shim_kind_name(u32 kind)
{
	return kind < NR_SHIM_KINDS ? kind_list[kind].name : NULL;
}

const char *shim_kind_text(u32 kind)
{
	return kind < NR_SHIM_KINDS ? kind_list[kind].text : NULL;
}

const char *shim_kind_found(u32 kind)
{
	return kind < NR_SHIM_KINDS ? kind_list[kind].found : NULL;
}

/* ---- rules ---- */

/* The rule that is being parsed. */
static struct shim_rule *rule(void)
{
	return &sh.rule[sh.nr_rules];
}

static int take_kinds(char *list)
{
	char *name, *rest = NULL;
	u32 i;

	rule()->kinds = 0;
	for (name = strtok_r(list, "+", &rest); name;
	     name = strtok_r(NULL, "+", &rest)) {
		for (i = 0; i < NR_SHIM_KINDS; i++)
			if (!strcmp(kind_list[i].name, name))
				break;
		if (i == NR_SHIM_KINDS)
			return -EINVAL;
		rule()->kinds |= BIT(i);
	}
	return rule()->kinds ? 0 : -EINVAL;
}

static int take_area(const char *value)
{
	u64 area;

	if (kv_parse_uint(value, &area) || area >= SWAPD_AREAS)
		return -EINVAL;
	if (rule()->areas == ALL_AREAS)
		rule()->areas = 0;
	rule()->areas |= (u32)BIT(area);
	return 0;
}

static int take_tally(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *p = MAP_FAILED;

	if (fd < 0)
		return -errno;
	if (!ftruncate(fd, sizeof(*sh.tally)))
		p = mmap(NULL, sizeof(*sh.tally), PROT_READ | PROT_WRITE,
			 MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return -EINVAL;
	sh.tally = p;
	return 0;
}

static int take_item(char *item)
{
	char *value = strchr(item, '=');

	if (!value)
		return -EINVAL;
	*value++ = '\0';
	if (!strcmp(item, "seed"))
		return kv_parse_uint(value, &sh.seed);
	if (!strcmp(item, "rate"))
		return kv_parse_uint(value, &rule()->rate) ||
		       rule()->rate > RATE_OF ? -EINVAL : 0;
	if (!strcmp(item, "delay"))
		return kv_parse_uint(value, &rule()->delay_ms) ||
		       !rule()->delay_ms || rule()->delay_ms > 3600000 ?
		       -EINVAL : 0;
	if (!strcmp(item, "area"))
		return take_area(value);
	if (!strcmp(item, "kinds"))
		return take_kinds(value);
	if (!strcmp(item, "tally"))
		return take_tally(value);
	return -EINVAL;
}

/* One rule: items with commas between them. */
static int take_rule(char *list, char *was, size_t len)
{
	char *item, *rest = NULL;
	int err = 0;

	snprintf(was, len, "%s", list);
	if (sh.nr_rules == NR_RULES)
		return -EINVAL;
	*rule() = (struct shim_rule){
		.rate = RATE_OF / 100, .delay_ms = DELAY_MS,
		.areas = ALL_AREAS, .kinds = BIT(NR_SHIM_KINDS) - 1,
	};
	for (item = strtok_r(list, ",", &rest); item && !err;
	     item = strtok_r(NULL, ",", &rest)) {
		snprintf(was, len, "%s", item);
		err = take_item(item);
	}
	sh.nr_rules += !err;
	return err;
}

int shim_init(const char *spec, char *text, size_t len)
{
	char *all, *list, *rest = NULL, was[64] = "";
	int err = 0;

	shim_on = false;
	if (!spec || !*spec)
		return 0;
	memset(&sh, 0, sizeof(sh));
	sh.tally = &sh.own;
	pthread_mutex_init(&sh.lock, NULL);
	all = strdup(spec);
	if (!all)
		return -ENOMEM;
	for (list = strtok_r(all, ";", &rest); list && !err;
	     list = strtok_r(NULL, ";", &rest))
		err = take_rule(list, was, sizeof(was));
	if (err)
		snprintf(text, len, SHIM_ENV ": '%s': write seed=N,tally=FILE,area=N,rate=N,delay=MS,kinds=NAME+NAME;area=N,..; names are in swapd/shim.h",
			 was);
	free(all);
	shim_on = !err;
	return err ? -EINVAL : 0;
}

int shim_env(char *text, size_t len)
{
	return shim_init(getenv(SHIM_ENV), text, len);
}

/* ---- dice ---- */

/* The @i-th throw for the request of number @n. */
static u64 dice(u64 n, u64 i)
{
	u64 x = sh.seed * 0x9e3779b97f4a7c15ull + n * 0xbf58476d1ce4e5b9ull +
		i * 0x94d049bb133111ebull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static void done(u32 kind)
{
	__atomic_fetch_add(&sh.tally->done[kind], 1, __ATOMIC_RELAXED);
}

static u32 pick_kind(const struct shim_rule *ru, u64 throw, u32 of)
{
	u32 fit[NR_SHIM_KINDS], n = 0, i;

	for (i = 0; i < NR_SHIM_KINDS; i++)
		if ((ru->kinds & BIT(i)) && (kind_list[i].of & of))
			fit[n++] = i;
	return n ? fit[throw % n] : SHIM_NONE;
}

/* ---- before ---- */

/* Another place for a slot of this length; false: there is none. */
static bool go_astray(const struct sd_area *a, struct sd_xfer *x)
{
	const u64 at = x->area_off - a->usable_off;
	const u64 first = at % x->len, mine = at / x->len;
	const u64 nr = (a->usable_bytes - first) / x->len;
	u64 other;

	if (nr < 2)
		return false;
	other = dice(x->throw, 2) % (nr - 1);
	other += other >= mine;
	x->area_off = a->usable_off + first + other * x->len;
	return true;
}

/* Length of a part: from one aligned piece to all but one. */
static u32 part_of(const struct sd_xfer *x)
{
	const u32 nr = x->len / SWAPD_ALIGN;

	return (1 + (u32)(dice(x->throw, 2) % (nr - 1))) * SWAPD_ALIGN;
}

/* Does the request lie in its area?  If not, swapd refuses it anyway. */
static bool is_inside(const struct sd_area *a, const struct swapd_req *r)
{
	return r->area_off >= a->usable_off && r->len <= a->usable_bytes &&
	       r->area_off - a->usable_off <= a->usable_bytes - r->len;
}

static const struct shim_rule *find_rule(u32 area)
{
	u32 i;

	for (i = 0; i < sh.nr_rules; i++)
		if (sh.rule[i].areas & BIT(area))
			return &sh.rule[i];
	return NULL;
}

void shim_plan(struct swapd *s, struct sd_io *io)
{
	const struct swapd_req *r = &io->req;
	const struct sd_area *a = &s->area[r->area];
	const struct shim_rule *ru = find_rule(r->area);
	struct sd_xfer *x = &io->xfer;

	x->throw = __atomic_fetch_add(&sh.tally->seen, 1, __ATOMIC_RELAXED);
	if (READ_ONCE(sh.tally->off) || !ru ||
	    dice(x->throw, 0) % RATE_OF >= ru->rate ||
	    __atomic_load_n(&a->state, __ATOMIC_SEQ_CST) != SD_AREA_LIVE ||
	    !is_inside(a, r))
		return;
	x->kind = pick_kind(ru, dice(x->throw, 1),
			    r->op == SWAPD_READ ? SHIM_R : SHIM_W);
	switch (x->kind) {
	case SHIM_eio:
	case SHIM_enospc:
	case SHIM_lost:
	case SHIM_hollow:
		x->len = 0;
		break;
	case SHIM_cut:
	case SHIM_torn:
		x->len = part_of(x);
		break;
	case SHIM_astray_write:
	case SHIM_astray_read:
		if (!go_astray(a, x))
			x->kind = SHIM_NONE;
		break;
	case SHIM_delay:
		done(SHIM_delay);
		x->kind = SHIM_NONE;
		io->due = kv_now_ns() + NSEC_PER_MSEC *
			  (1 + dice(x->throw, 2) % ru->delay_ms);
		break;
	}
}

/* ---- shared transfers ---- */

/* All requests from @io on get this fault instead of the planned one. */
static void all_have(struct swapd *s, struct sd_io *io, u32 kind)
{
	for (; io; io = sd_mate(s, io)) {
		io->xfer.kind = kind;
		io->xfer.len = io->req.len;
		io->xfer.area_off = io->req.area_off;
	}
}

/* Move the transfer as far as @io was to go, if that is in the area. */
static bool all_astray(struct swapd *s, struct sd_io *lead,
		       const struct sd_io *io)
{
	const struct sd_area *a = &s->area[lead->req.area];
	const u64 to = lead->go.area_off + io->xfer.area_off -
		       io->req.area_off;
	const u64 end = a->usable_off + a->usable_bytes;

	if (to < a->usable_off || to >= end || lead->go.bytes > end - to)
		return false;
	lead->go.area_off = to;
	return true;
}

/*
 * Give the fault of @io to the transfer, and to each request the fault that
 * shim_end() then adds.  Requests before @io do not change the transfer.
 * Return: whether @io changes it.
 */
static bool join_fault(struct swapd *s, struct sd_io *lead, struct sd_io *io,
		       u32 at)
{
	const u32 kind = io->xfer.kind;

	switch (kind) {
	case SHIM_eio:
	case SHIM_enospc:
	case SHIM_cut:
		lead->go.fails = true;
		lead->go.len = kind == SHIM_cut ? at + io->xfer.len : 0;
		return true;
	case SHIM_torn:
		lead->go.len = at + io->xfer.len;
		all_have(s, io, SHIM_lost);
		io->xfer.kind = kind;
		return true;
	case SHIM_lost:
	case SHIM_hollow:
		lead->go.len = 0;
		all_have(s, lead, kind);
		return true;
	case SHIM_astray_write:
	case SHIM_astray_read:
		if (all_astray(s, lead, io))
			all_have(s, lead, kind);
		else
			all_have(s, lead, SHIM_NONE);
		return true;
	}
	return false;
}

void shim_join(struct swapd *s, struct sd_io *lead)
{
	struct sd_io *io;
	u32 at = 0;

	if (lead->go.nr == 1) {
		lead->go.len = lead->xfer.len;
		lead->go.area_off = lead->xfer.area_off;
		return;
	}
	for (io = lead; io; io = sd_mate(s, io)) {
		if (join_fault(s, lead, io, at))
			return;
		at += io->req.len;
	}
}

/* ---- after ---- */

static bool disk_write(const struct sd_area *a, const void *buf, u64 at,
		       u32 len)
{
	return pwrite(a->fd, buf, len, (off_t)at) == (ssize_t)len;
}

/* Turn over a bit of the byte at @at of the area. */
static bool disk_flip(const struct sd_area *a, u64 at, u32 bit)
{
	const u64 page = at & ~(u64)(SWAPD_ALIGN - 1);
	u8 *buf = aligned_alloc(SWAPD_ALIGN, SWAPD_ALIGN);
	bool ok = buf && pread(a->fd, buf, SWAPD_ALIGN, (off_t)page) ==
			 (ssize_t)SWAPD_ALIGN;

	if (ok) {
		buf[at - page] ^= (u8)BIT(bit);
		ok = disk_write(a, buf, page, SWAPD_ALIGN);
	}
	free(buf);
	return ok;
}

static bool turn_over(struct swapd *s, const struct sd_io *io)
{
	const struct swapd_req *r = &io->req;
	const u64 where = dice(io->xfer.throw, 2);
	const u32 bit = (u32)(where >> 60) & 7, kind = io->xfer.kind;
	u64 at = where % SWAPD_HEADER_BYTES;

	if (kind == SHIM_flip_payload || kind == SHIM_rot_payload) {
		if (!r->payload_len)
			return false;
		at = SWAPD_HEADER_BYTES + where % r->payload_len;
	}
	if (kind == SHIM_rot_header || kind == SHIM_rot_payload)
		return disk_flip(&s->area[r->area], r->area_off + at, bit);
	s->pool[r->host_off + at] ^= (u8)BIT(bit);
	return true;
}

/* Keep a copy of the written slot, for later. */
static void late_keep(struct swapd *s, const struct swapd_req *r)
{
	struct late *l = &sh.late[sh.next_late++ % NR_LATE];

	free(l->slot);
	*l = (struct late){
		.slot = aligned_alloc(SWAPD_ALIGN, r->len),
		.area_off = r->area_off, .area = r->area, .len = r->len,
	};
	if (l->slot)
		memcpy(l->slot, s->pool + r->host_off, r->len);
}

/* A newer write of the place is over: the older one lands on it. */
static void late_land(struct swapd *s, const struct swapd_req *r)
{
	u32 i;

	for (i = 0; i < NR_LATE; i++) {
		struct late *l = &sh.late[i];

		if (!l->slot || l->area != r->area ||
		    l->area_off != r->area_off || l->len != r->len)
			continue;
		if (!READ_ONCE(sh.tally->off) &&
		    disk_write(&s->area[l->area], l->slot, l->area_off, l->len))
			done(SHIM_late);
		free(l->slot);
		l->slot = NULL;
	}
}

static void late_write(struct swapd *s, const struct sd_io *io)
{
	pthread_mutex_lock(&sh.lock);
	late_land(s, &io->req);
	if (io->xfer.kind == SHIM_late)
		late_keep(s, &io->req);
	pthread_mutex_unlock(&sh.lock);
}

/* The transfer did as planned: add the fault of the request. */
static s64 lie(struct swapd *s, struct sd_io *io, s64 res)
{
	const struct swapd_req *r = &io->req;
	bool took = true;

	switch (io->xfer.kind) {
	case SHIM_eio:
		res = -EIO;
		break;
	case SHIM_enospc:
		res = -ENOSPC;
		break;
	case SHIM_torn:
	case SHIM_lost:
	case SHIM_hollow:
		res = r->len;
		break;
	case SHIM_twice:
		took = disk_write(&s->area[r->area], s->pool + r->host_off,
				  r->area_off, r->len);
		break;
	case SHIM_flip_header:
	case SHIM_flip_payload:
	case SHIM_rot_header:
	case SHIM_rot_payload:
		took = turn_over(s, io);
		break;
	case SHIM_late:		/* counted when it lands */
	case SHIM_NONE:
		took = false;
		break;
	}
	if (took)
		done(io->xfer.kind);
	return res;
}

s64 shim_end(struct swapd *s, struct sd_io *io, s64 res)
{
	const u32 kind = io->xfer.kind;

	/* A fault of the disk itself comes first. */
	if (res != (s64)io->xfer.len)
		return res;
	if (io->req.op == SWAPD_WRITE &&
	    (kind == SHIM_late || kind == SHIM_NONE))
		late_write(s, io);
	return lie(s, io, res);
}

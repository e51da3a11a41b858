// SPDX-License-Identifier: Apache-2.0
/*
 * request.c - an operator adds or removes an area; areas of the last daemon
 *
 * An operator's kvctl opened the file and passed it here.
 */
#include <stdio.h>
#include <sys/stat.h>

#include <kvmm/log.h>

#include "kvmm/ipc/swap/swap.h"

#define AREA_DRAIN_NS	(60 * NSEC_PER_SEC)	/* that the last daemon began */

/* Why no area can be added; NULL: it can. */
static const char *area_refuse(const struct swap_link *l)
{
	if (!l->setup->cfg.host_bytes)
		return "kvmm was started without a host pool, which all swap goes through: give it --host-size";
	if (!l->setup->cfg.area_bytes)
		return "kvmm was started without room for areas: give it --area-max";
	if (!l->wanted)
		return "swap areas need swapd, which kvmm-hold starts: start kvmm-hold instead of kvmm";
	return NULL;
}

static struct swap_area *area_unused(struct swap_link *l)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++)
		if (l->area[i].state == AREA_FREE)
			return &l->area[i];
	return NULL;
}

static void area_begin(struct swap_link *l, struct swap_area *a, int fd)
{
	struct stat st;

	a->state = AREA_ADDING;
	a->fd = fd;
	a->until = kv_now_ns() + AREA_JOIN_NS;
	if (!fstat(fd, &st)) {
		a->device = S_ISBLK(st.st_mode);
		a->dev = a->device ? st.st_rdev : st.st_dev;
		a->ino = a->device ? 0 : st.st_ino;
	}
	if (l->hello)
		area_offer(l, a);
	else if (l->ended)
		link_run(l);
}

/* Bytes of a file that slots and its header may use (--area-max). */
static u64 area_most(const struct swap_link *l)
{
	const struct core_config *cfg = &l->setup->cfg;

	return cfg->area_bytes / cfg->extent_size * cfg->extent_size +
	       SWAPD_RESERVED_BYTES;
}

/* Why the area cannot get @bytes; NULL: it can. */
static const char *area_refuse_size(const struct swap_link *l, u64 bytes, char *why,
				    size_t len)
{
	const u64 least = l->setup->cfg.extent_size + SWAPD_RESERVED_BYTES;
	const u64 most = area_most(l);
	char size[32], bound[32], max[32];

	if (bytes && bytes < least) {
		snprintf(why, len, "too small: an area needs at least %s, for one extent behind a header: give a larger --size",
			 kv_format_size(least, size, sizeof(size)));
		return why;
	}
	if (bytes <= most)
		return NULL;
	snprintf(why, len, "%s is more than the %s that an area may have: give a smaller --size, or start kvmm with a larger --area-max (it is %s%s)",
		 kv_format_size(bytes, size, sizeof(size)),
		 kv_format_size(most, bound, sizeof(bound)),
		 kv_format_size(l->setup->cfg.area_bytes, max, sizeof(max)),
		 l->setup->opt.area_max ? "" : ", four times --host-size");
	return why;
}

/* The rest of a file that is longer than area_most() already is not touched. */
static void area_size(const struct swap_link *l, struct swap_area *a, int fd,
		      u64 bytes)
{
	const u64 most = area_most(l);
	struct stat st;

	a->asked = bytes;
	if (!bytes && !fstat(fd, &st) && S_ISREG(st.st_mode))
		a->asked = (u64)st.st_size;
	a->bytes = a->asked > most ? most : bytes;
}

static struct swap_area *area_find(struct swap_link *l, u64 dev, u64 ino,
				   const char *path)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &l->area[i];

		if (a->state == AREA_FREE)
			continue;
		if ((dev && a->dev == dev && a->ino == ino) ||
		    !strcmp(a->path, path))
			return a;
	}
	return NULL;
}

/* The file or device of @fd is in use already: no mistake for a file that is read again. */
static bool area_refuse_twice(struct swap_link *l, struct admin *adm, int fd,
			      const char *path)
{
	const struct swap_area *a = NULL;
	char text[ADMIN_TEXT];
	struct stat st;

	if (!fstat(fd, &st))
		a = S_ISBLK(st.st_mode) ? area_find(l, st.st_rdev, 0, "") :
					  area_find(l, st.st_dev, st.st_ino, "");
	if (!a || a->state != AREA_LIVE)
		return false;
	snprintf(text, sizeof(text), "%s: it is area %u already: see kvctl cat swaps",
		 path, area_index(l, a));
	close(fd);
	admin_finish(adm, -EALREADY, text);
	return true;
}

/*
 * The name that the kernel has for the file.  The operator's word for it may name
 * another file, which root would then open at a restart with the saved options.
 */
static void area_name(struct swap_area *a, int fd, const char *word)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, a->path, sizeof(a->path) - 1);
	if (n > 0)
		a->path[n] = '\0';
	else
		snprintf(a->path, sizeof(a->path), "%s", word);
}

/**
 * area_on() - an operator adds an area; @adm is answered then or later
 * @fd:    of the file or device, taken over
 * @bytes: size that the file is to have; 0: as it is
 */
void area_on(struct swap_link *l, struct admin *adm, int fd, u64 bytes,
	     s32 priority, bool force, const char *path)
{
	const char *why = area_refuse(l);
	struct swap_area *a = area_unused(l);
	char text[ADMIN_TEXT], size[256];

	if (!why && !a)
		why = "there are as many areas as can be: swapoff one first";
	if (!why)
		why = area_refuse_size(l, bytes, size, sizeof(size));
	if (!why && area_refuse_twice(l, adm, fd, path))
		return;
	if (why) {
		snprintf(text, sizeof(text), "%s: %s", path, why);
		close(fd);
		admin_finish(adm, -EOPNOTSUPP, text);
		return;
	}
	area_size(l, a, fd, bytes & ~(u64)(SWAPD_ALIGN - 1));
	a->priority = priority;
	a->flags = force ? SWAPD_AREA_FORCE : 0;
	a->waiter = adm;
	a->tell = kv_now_ns() + AREA_TELL_NS;
	area_name(a, fd, path);
	area_begin(l, a, fd);
}

/* After a cold start: add the area again, empty. */
static void area_adopt(struct swap_link *l, u32 index, int fd, u64 value)
{
	struct swap_area *a = &l->area[index];

	area_name(a, fd, "");
	a->priority = (s16)value;
	a->bytes = value >> 16 << 12;
	area_begin(l, a, fd);
}

/* The core was adopted, so the area and its content are: offer it to swapd. */
static void area_resume(struct swap_link *l, u32 index, int fd)
{
	const struct keep_area *k = &l->deposit->keep->area[index];
	struct swap_area *a = &l->area[index];

	memcpy(a->path, k->path, sizeof(a->path));
	a->path[sizeof(a->path) - 1] = '\0';
	a->priority = k->priority;
	a->asked = k->asked;
	a->bytes = k->bytes;
	a->usable_off = k->usable_off;
	a->usable_bytes = k->usable_bytes;
	memcpy(a->uuid, k->uuid, sizeof(a->uuid));
	a->core = k->core;
	area_begin(l, a, fd);
	a->state = AREA_LIVE;
	area_use(l, a);
	if (k->draining)
		area_drain_begin(l, a, AREA_DRAIN_NS);
}

/* area_of_last() - an area of the last daemon: go on with it, or drop it */
void area_of_last(struct swap_link *l, u32 index)
{
	struct deposit *p = l->deposit;
	const int fd = p->area[index].fd;

	if (fd < 0)
		return;
	p->area[index].fd = -1;
	if (l->wanted && l->setup->adopted >= 0 && p->keep->area[index].valid) {
		area_resume(l, index, fd);
	} else if (l->wanted) {
		area_adopt(l, index, fd, p->area[index].value);
	} else {
		deposit_drop(p, HOLD_SWAP_AREA, index);
		close(fd);
	}
}

/**
 * area_off() - an operator takes an area away
 * @timeout_ms: for its content to be moved elsewhere; then the rest is given up
 * @dev, @ino:  of the file, or the device and 0; 0: only @path is known
 */
void area_off(struct swap_link *l, struct admin *adm, u64 timeout_ms, u64 dev,
	      u64 ino, const char *path)
{
	struct swap_area *a = area_find(l, dev, ino, path);
	char text[ADMIN_TEXT];

	if (!a || a->waiter) {
		snprintf(text, sizeof(text), !a ?
			 "%s: is no swap area: see kvctl cat swaps" :
			 "%s: somebody else is adding or removing it", path);
		admin_finish(adm, a ? -EBUSY : -EINVAL, text);
		return;
	}
	a->waiter = adm;
	a->until = kv_now_ns() + timeout_ms * NSEC_PER_MSEC;
	a->tell = kv_now_ns() + AREA_TELL_NS;
	if (a->state == AREA_LIVE || a->state == AREA_DRAINING) {
		area_drain_begin(l, a, timeout_ms * NSEC_PER_MSEC);
	} else if (a->state == AREA_ADDING) {
		/* It is of the last daemon, or its operator hung up. */
		area_remove(l, a);
	}
}

/* area_forget_waiter() - the operator hung up; the area goes on without it */
void area_forget_waiter(struct swap_link *l, const struct admin *adm)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++)
		if (l->area[i].waiter == adm)
			l->area[i].waiter = NULL;
}

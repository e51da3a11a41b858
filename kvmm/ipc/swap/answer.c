// SPDX-License-Identifier: Apache-2.0
/*
 * answer.c - swapd answers for an area, or dies
 */
#include <stdio.h>

#include <kvmm/log.h>

#include "kvmm/ipc/swap/swap.h"

#define ADD_TRIES	3	/* deaths of swapd while it judges an area */

/**
 * area_offer_all() - give a new swapd every area that there is
 * Return: how many it must answer for before it gets requests.
 */
u32 area_offer_all(struct swap_link *l)
{
	u32 i, nr = 0;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &l->area[i];

		if (a->state != AREA_ADDING && a->state != AREA_LIVE &&
		    a->state != AREA_DRAINING)
			continue;
		area_offer(l, a);
		a->awaited = a->state != AREA_ADDING && a->known;
		nr += a->awaited;
	}
	return nr;
}

/* Bytes of the area that can be used, and why that is less than its length. */
static void area_size_text(const struct swap_link *l, const struct swap_area *a,
			   char *text, size_t len)
{
	const u64 ext = l->setup->cfg.extent_size;
	const u64 most = min(a->usable_bytes, l->setup->cfg.area_bytes);
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

static void area_added(struct swap_link *l, struct swap_area *a,
		       const struct swapd_answer *ans)
{
	char size[192];
	int err;

	a->usable_off = ans->usable_off;
	a->usable_bytes = ans->usable_bytes;
	memcpy(a->uuid, ans->uuid, sizeof(a->uuid));
	a->bytes = ans->usable_off + ans->usable_bytes;
	err = area_add(l, a);
	kv_format_size(l->setup->cfg.extent_size, size, sizeof(size));
	if (err) {
		area_tell(l, a, err, err == -EINVAL ?
			  "%s: too small: an area must hold an extent of %s and 1M: give a larger --size" :
			  "%s: the core does not take it: %s", a->path,
			  err == -EINVAL ? size : strerror(-err));
		area_remove(l, a);
		return;
	}
	a->state = AREA_LIVE;
	deposit_put(l->deposit, HOLD_SWAP_AREA, area_index(l, a), a->fd,
		    (u16)a->priority | a->bytes >> 12 << 16);
	area_size_text(l, a, size, sizeof(size));
	area_tell(l, a, 0, "%s: swap area of %s%s%s", a->path, size,
		  ans->text[0] ? ": " : "", ans->text);
}

static void area_again(struct swap_link *l, struct swap_area *a,
		       const struct swapd_answer *ans)
{
	a->lost = ans->status != 0;
	area_use(l, a);
	link_area_answered(l, a);
	if (!a->lost)
		return;
	pr_err("swap area %s is lost: %s: what it held is computed again, and the area goes: kvctl swapon another one",
	       a->path, ans->text);
	a->given_up = true;
	area_forget(l, a);
	area_drain_begin(l, a, 0);
}

static void area_add_answered(struct swap_link *l, struct swap_area *a,
			      const struct swapd_answer *ans)
{
	if (a->state == AREA_REMOVING) {
		/* It was emptied meanwhile, and swapd was told to close it. */
		link_area_answered(l, a);
		return;
	}
	if (a->state != AREA_ADDING) {
		area_again(l, a, ans);
		return;
	}
	if (!ans->status) {
		area_added(l, a, ans);
		return;
	}
	area_tell(l, a, ans->status, "%s", ans->text);
	area_free(l, a);
}

/* area_answer() - swapd has judged an area, or closed it */
void area_answer(struct swap_link *l, const struct swapd_answer *ans)
{
	struct swap_area *a;

	if (ans->area >= CORE_MAX_AREAS)
		return;
	a = &l->area[ans->area];
	if (ans->op == SWAPD_AREA_ADD && a->known) {
		area_add_answered(l, a, ans);
	} else if (ans->op == SWAPD_AREA_DEL && a->state == AREA_REMOVING) {
		area_tell(l, a, 0, "%s: is no swap area any more", a->path);
		area_free(l, a);
	}
}

/* area_link_down() - swapd is dead: ask the next one again */
void area_link_down(struct swap_link *l)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &l->area[i];
		bool was_known = a->known;

		a->known = false;
		a->awaited = false;
		if (a->state == AREA_REMOVING) {
			area_remove(l, a);
			continue;
		}
		if (a->state != AREA_ADDING ||
		    (!l->ended && (a->tries += was_known) < ADD_TRIES))
			continue;
		area_tell(l, a, -ENODEV,
			  "%s: swapd ended while it looked at it: see the log",
			  a->path);
		area_free(l, a);
	}
}

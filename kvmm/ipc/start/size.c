// SPDX-License-Identifier: Apache-2.0
/*
 * size.c - bytes that a share of memory, or auto, comes to
 *
 * A share is of the total: the machine's memory, or the least limit of a
 * control group above this process.  auto is half of the memory that is
 * available when kvmm starts, less a reserve of a sixteenth of the total, at
 * least DEV_SPARE_BYTES.  The host pool is computed after the device pool and
 * takes half of the rest, or the huge pages that were set aside, if they are
 * more.  So records, the page cache of models and the runtimes have the other
 * half.  A pool with memory of its own, on a GPU, is computed from that memory
 * by the same rule: the other half is for weights and workspaces of the
 * runtimes; the host pool then has the machine's memory for itself.
 *
 * Without --host-size there is a small host pool, so that an area can be added at any
 * time: a sixteenth of the device pool, as far as that is small beside the machine.
 *
 * The result is a multiple of an extent, and is checked as if it had been
 * written in bytes.  It is computed in the first life only: in the next one the
 * memory of the last may not be free yet, and swap areas are there already.
 */
#include <kvmm/log.h>

#include "kvmm/ipc/start/start.h"

#define HOST_DEFAULT_MOST	(1ull << 30)
#define DEV_RECORD		1280	/* bytes for a block of the pool, roughly */
#define TIER_RECORD		256	/* and for one of the lower tiers */

/**
 * limits_share() - bytes that an amount comes to
 * @a:     the option
 * @m:     the machine
 * @taken: available bytes that are used otherwise
 * @huge:  bytes in huge pages that may be had instead
 * @unit:  of an extent
 *
 * Return: a multiple of @unit, 0 where it is less than one; bytes as they are.
 */
u64 limits_share(const struct kv_amount *a, const struct memory_room *m,
		 u64 taken, u64 huge, u64 unit)
{
	u64 bytes;

	switch (a->unit) {
	case KV_AMOUNT_BYTES:
		return a->value;
	case KV_AMOUNT_PERCENT:
		/* An unknown total is UINT64_MAX. */
		bytes = m->total / 100 * a->value +
			m->total % 100 * a->value / 100;
		break;
	case KV_AMOUNT_AUTO:
		taken += max(m->total / 16, DEV_SPARE_BYTES);
		bytes = m->available > taken ? (m->available - taken) / 2 : 0;
		bytes = max(bytes, huge);
		break;
	default:
		return 0;
	}
	return bytes / unit * unit;
}

/* Bytes of the records for a host pool of @bytes and its areas. */
static u64 tier_records(const struct setup *s, u64 bytes)
{
	u64 area = s->opt.area_max ? s->opt.area_max : AREA_HOSTS * bytes;

	return (bytes + CORE_MAX_AREAS * area) /
	       (16ull * s->opt.min_token_bytes) * TIER_RECORD;
}

/**
 * limits_host_default() - bytes of the host pool without --host-size
 * @m: the machine
 *
 * Return: a multiple of an extent, 0 where even one would not be small.
 */
u64 limits_host_default(const struct setup *s, const struct memory_room *m)
{
	const u64 most = min(m->total / 64, HOST_DEFAULT_MOST);
	const u64 unit = s->opt.extent_size;
	u64 bytes = max(min(s->pool_size / 16, most) / unit * unit, unit);
	u64 taken = s->dev.ops->own_memory ? 0 : s->pool_size;

	taken += s->pool_size / (16ull * s->opt.min_token_bytes) * DEV_RECORD +
		 DEV_SPARE_BYTES;
	if (m->total == UINT64_MAX || bytes > most || m->available < taken ||
	    bytes + tier_records(s, bytes) > (m->available - taken) / 4)
		return 0;
	return bytes;
}

/* Without --host-size; the next daemon must have what the first one had. */
static void host_default(struct setup *s, struct deposit *p,
			 const struct memory_room *m)
{
	char size[32];

	s->host_size = p->last_epoch ? p->size[1] : limits_host_default(s, m);
	if (p->last_epoch)
		return;
	if (!s->host_size) {
		pr_info("no host pool: an extent of it, with records, is not small here: give --host-size for swap areas");
		return;
	}
	pr_info("--host-size is not given, and comes to %s",
		kv_format_size(s->host_size, size, sizeof(size)));
	deposit_put(p, HOLD_SIZE, 1, -1, s->host_size);
}

/* Compute one size; @index as in HOLD_SIZE. */
static int size_find(struct setup *s, struct deposit *p, u32 index, const char *name,
		     const struct kv_amount *a, const struct memory_room *m,
		     u64 *bytes)
{
	const bool host = index == 1;
	char size[32], avail[32];

	if (a->unit != KV_AMOUNT_BYTES && p->size[index]) {
		*bytes = p->size[index];
		return 0;
	}
	*bytes = limits_share(a, m, host && !s->dev.ops->own_memory ?
			      s->pool_size : 0,
			      host ? m->huge_free : 0, s->opt.extent_size);
	if (a->unit == KV_AMOUNT_BYTES)
		return 0;
	if (m->total == UINT64_MAX) {
		pr_err("--%s: how much memory there is cannot be read from /proc/meminfo: give bytes",
		       name);
		return -EINVAL;
	}
	if (!host)
		*bytes = min(*bytes, CORE_POOL_LIMIT / s->opt.extent_size *
			     s->opt.extent_size - s->opt.extent_size);
	kv_format_size(m->available & ~((1ull << 20) - 1), avail,
		       sizeof(avail));
	if (!*bytes) {
		pr_err("--%s comes to less than one extent of %s, %s of memory are available: give bytes, or a smaller --extent-size",
		       name, kv_format_size(s->opt.extent_size, size,
					    sizeof(size)), avail);
		return -EINVAL;
	}
	pr_info("--%s comes to %s, %s of memory are available%s", name,
		kv_format_size(*bytes, size, sizeof(size)), avail,
		!host && s->dev.ops->own_memory ? " on the device" : "");
	deposit_put(p, HOLD_SIZE, index, -1, *bytes);
	return 0;
}

/**
 * limits_sizes() - compute --pool-size and --host-size on this machine
 * Return: 0 or a negative errno, which has been logged.
 */
int limits_sizes(struct setup *s, struct deposit *p)
{
	const struct kvmm_dev_ops *ops = s->dev.ops;
	struct memory_room m, dev;
	int err;

	memory_look(&m, "");
	dev = m;
	if (ops->own_memory) {
		dev.total = ops->total(&s->dev);
		dev.available = ops->available(&s->dev);
	}
	err = size_find(s, p, 0, "pool-size", &s->opt.pool_size, &dev,
			&s->pool_size);
	if (!err && s->opt.host_size.unit == KV_AMOUNT_UNSET)
		host_default(s, p, &m);
	else if (!err)
		err = size_find(s, p, 1, "host-size", &s->opt.host_size, &m,
				&s->host_size);
	return err;
}

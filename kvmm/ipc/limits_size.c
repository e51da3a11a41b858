// SPDX-License-Identifier: Apache-2.0
/*
 * limits_size.c - what a share of memory, or auto, comes to
 *
 * A share is of what there is: the machine's memory, or the least limit of a
 * control group above this process.  auto is half of what is available when
 * kvmm starts, less a reserve of a sixteenth of what there is, at least
 * DEV_SPARE_BYTES; the host pool is reckoned after the device pool and takes
 * half of what that leaves, or the huge pages that were set aside, if they are
 * more.  So records, the page cache of models and the runtimes keep the rest.
 * A pool with memory of its own, on a GPU, is reckoned from that memory by the
 * same rule: the other half is for weights and workspaces of the runtimes; the
 * host pool then has the machine's for itself.
 *
 * Whatever it comes to is a multiple of an extent, and is checked against what
 * fits as if it had been written in bytes.  It is reckoned in the first life
 * only: in the next one the memory of the last may not be free yet, and swap
 * areas are there already.
 *
 * Context: start-up.
 */
#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

/**
 * limits_share() - bytes that an amount comes to
 * @a:     what was asked for
 * @m:     the machine
 * @taken: bytes of what is available that are spoken for
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
		/* What there is may not be known: UINT64_MAX. */
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

/* One of the two: @index as in HOLD_SIZE. */
static int size_find(struct daemon *d, u32 index, const char *name,
		     const struct kv_amount *a, const struct memory_room *m,
		     u64 *bytes)
{
	const bool host = index == 1;
	char size[32], avail[32];

	if (a->unit != KV_AMOUNT_BYTES && d->deposit.size[index]) {
		*bytes = d->deposit.size[index];
		return 0;
	}
	*bytes = limits_share(a, m, host && !d->setup.dev.ops->own_memory ?
			      d->setup.pool_size : 0,
			      host ? m->huge_free : 0, d->setup.opt.extent_size);
	if (a->unit == KV_AMOUNT_BYTES)
		return 0;
	if (m->total == UINT64_MAX) {
		pr_err("--%s: how much memory there is cannot be read from /proc/meminfo: give bytes",
		       name);
		return -EINVAL;
	}
	if (!host)
		*bytes = min(*bytes, CORE_POOL_LIMIT / d->setup.opt.extent_size *
			     d->setup.opt.extent_size - d->setup.opt.extent_size);
	kv_format_size(m->available & ~((1ull << 20) - 1), avail,
		       sizeof(avail));
	if (!*bytes) {
		pr_err("--%s comes to less than one extent of %s, %s of memory are available: give bytes, or a smaller --extent-size",
		       name, kv_format_size(d->setup.opt.extent_size, size,
					    sizeof(size)), avail);
		return -EINVAL;
	}
	pr_info("--%s comes to %s, %s of memory are available%s", name,
		kv_format_size(*bytes, size, sizeof(size)), avail,
		!host && d->setup.dev.ops->own_memory ? " on the device" : "");
	deposit_put(&d->deposit, HOLD_SIZE, index, -1, *bytes);
	return 0;
}

/**
 * limits_sizes() - what --pool-size and --host-size come to on this machine
 * Return: 0, or a negative errno that was told.
 */
int limits_sizes(struct daemon *d)
{
	const struct kvmm_dev_ops *ops = d->setup.dev.ops;
	struct memory_room m, dev;
	int err;

	memory_look(&m, "");
	dev = m;
	if (ops->own_memory) {
		dev.total = ops->total(&d->setup.dev);
		dev.available = ops->available(&d->setup.dev);
	}
	err = size_find(d, 0, "pool-size", &d->setup.opt.pool_size, &dev,
			&d->setup.pool_size);
	if (!err)
		err = size_find(d, 1, "host-size", &d->setup.opt.host_size, &m,
				&d->setup.host_size);
	return err;
}

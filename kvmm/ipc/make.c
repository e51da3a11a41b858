// SPDX-License-Identifier: Apache-2.0
/*
 * make.c - a fresh core in a fresh arena
 *
 * The arena lies in memory that hold keeps, if there may be a next daemon.
 *
 * Context: start-up, before threads exist.
 */
#include "kvmm/ipc/daemon.h"

/**
 * core_make() - make the core, unless it was adopted
 * Return: 0; -EINVAL: the core refuses the configuration; -EFBIG: the limit on
 * files is too low; -ENOMEM.
 */
int core_make(struct daemon *d)
{
	struct setup *s = &d->setup;
	int err;

	if (s->adopted >= 0)
		return 0;
	err = mm_ready_core(&d->mm);
	if (err)
		return err;
	if (deposit_wanted(&d->deposit))
		s->arena = keep_memory("kvmm-arena", s->arena_bytes,
				       &s->arena_fd);
	else
		s->arena = mm_map(s->arena_bytes);
	if (!s->arena)
		return errno == EFBIG ? -EFBIG : -ENOMEM;
	err = core_init(s->core, s->arena, s->arena_bytes, &s->cfg,
			&d->mm.ops, &d->mm);
	if (!err && s->arena_fd >= 0)
		deposit_put(&d->deposit, HOLD_ARENA, 0, s->arena_fd, 0);
	return err;
}

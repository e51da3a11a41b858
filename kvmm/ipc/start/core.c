// SPDX-License-Identifier: Apache-2.0
/*
 * core.c - a fresh core in a fresh arena
 *
 * The arena lies in memory that hold keeps, if there may be a next daemon.
 */
#include "kvmm/ipc/start/start.h"

/**
 * core_make() - make the core, unless it was adopted
 * Return: 0; -EINVAL: the core refuses the configuration; -EFBIG: the limit on
 * files is too low; -ENOMEM.
 */
int core_make(struct adoption *a)
{
	struct setup *s = a->setup;
	int err;

	if (s->adopted >= 0)
		return 0;
	err = mm_ready_core(a->mm);
	if (err)
		return err;
	if (deposit_wanted(a->deposit))
		s->arena = keep_memory("kvmm-arena", s->arena_bytes,
				       &s->arena_fd);
	else
		s->arena = mm_map(s->arena_bytes);
	if (!s->arena)
		return errno == EFBIG ? -EFBIG : -ENOMEM;
	err = core_init(s->core, s->arena, s->arena_bytes, &s->cfg,
			&a->mm->ops, a->mm);
	if (!err && s->arena_fd >= 0)
		deposit_put(a->deposit, HOLD_ARENA, 0, s->arena_fd, 0);
	return err;
}

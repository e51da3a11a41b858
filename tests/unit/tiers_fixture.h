/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiers_fixture.h - the code below the mm thread, without threads
 *
 * The core is real, but empty.  It ignores answers to requests that it did not
 * order, so a test pushes made-up orders and looks at the tables.  Nothing runs
 * but the functions that the test calls.
 */
#ifndef TESTS_UNIT_TIERS_FIXTURE_H
#define TESTS_UNIT_TIERS_FIXTURE_H

#include <check.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "kvmm/ipc/tiers/tiers.h"

#ifndef TF_EXTENT
#define TF_EXTENT	(64u << 10)
#endif
#define TF_EXTENTS	8u
#define TF_HOST		4u

struct tiers_fixture {
	struct setup	setup;
	struct extents	extents;
	struct sleeper	mm;
	struct mapper	mapper;
	struct copier	copier;
	struct swap_mm	swap;
	int		mm_epoll;
};

static struct tiers_fixture *td;
static int td_shm;

static void tf_setup(void)
{
	static const struct core_ops none;

	td = aligned_alloc(_Alignof(struct tiers_fixture), sizeof(*td));
	ck_assert_ptr_nonnull(td);
	memset(td, 0, sizeof(*td));
	td->setup.cfg = (struct core_config){
		.pool_bytes = (u64)TF_EXTENTS * TF_EXTENT,
		.extent_size = TF_EXTENT, .min_token_bytes = 64,
		.max_tenants = 2, .max_domains = 2, .max_clients = 2,
		.max_seqs = 8, .max_steps = 2,
		.host_bytes = (u64)TF_HOST * TF_EXTENT,
		.area_bytes = (u64)TF_HOST * TF_EXTENT, .swappiness = 100,
	};
	td->setup.nr_extents = TF_EXTENTS;
	td->setup.arena_bytes = core_arena_size(&td->setup.cfg);
	td->setup.core = calloc(1, core_struct_size());
	td->setup.arena = mmap(NULL, td->setup.arena_bytes,
			       PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_int_eq(core_init(td->setup.core, td->setup.arena,
				   td->setup.arena_bytes, &td->setup.cfg,
				   &none, td), 0);
	td->mm_epoll = epoll_create1(EPOLL_CLOEXEC);
	td->mm.bell = -1;
	td->setup.host.fd = -1;
	td->swap.req_bell = -1;
	td->swap.cpl_bell = -1;
	td->mapper.setup = &td->setup;
	td->mapper.extents = &td->extents;
	td->mapper.mm = &td->mm;
	td->copier.setup = &td->setup;
	td->copier.extents = &td->extents;
	td->copier.mm = &td->mm;
	td->copier.stop = 1;
	td->swap.setup = &td->setup;
	td_shm = -1;
}

static void tf_teardown(void)
{
	swap_exit(&td->swap);
	if (td_shm >= 0)
		close(td_shm);
	close(td->mm_epoll);
	munmap(td->setup.arena, td->setup.arena_bytes);
	free(td->setup.core);
	free(td);
}

#endif /* TESTS_UNIT_TIERS_FIXTURE_H */

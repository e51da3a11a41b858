/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_fake_adapters.h - no adapters: it_adapters has them, with a real daemon
 *
 * The calls that adapters need end the test.
 */
#ifndef ENGINE_FAKE_ADAPTERS_H
#define ENGINE_FAKE_ADAPTERS_H

#include <check.h>
#include <libkvmm.h>

#include "runtime/model/adapter.h"

#define NEVER(ret, name, ...)						\
	ret name(__VA_ARGS__)						\
	{								\
		ck_abort_msg("%s: there are no adapters here", #name);	\
	}

NEVER(int, adapter_load, const struct model *m, const char *dir, u32 rank, struct adapter **out,
	struct model_error *err)
NEVER(void, adapter_free, struct adapter *a)
NEVER(u64, adapter_block_bytes, const struct model *m, u32 rank, struct model_error *err)
NEVER(u32, adapter_blocks, const struct adapter *a, u64 bytes)
NEVER(const struct adapter_info *, adapter_info, const struct adapter *a)
NEVER(void, adapter_locate, const struct adapter *a, u64 bytes, void *const *blocks,
	struct adapter_place *place)
NEVER(u32, adapter_pairs, const struct model *m)
NEVER(int, adapter_write, const struct adapter *a, u64 bytes, u32 block, void *to)
NEVER(int, model_put, struct model *m, void *to, const void *from, u64 bytes)

NEVER(bool, kvmm_alive, struct kvmm *k)
NEVER(void *, kvmm_block, const struct kvmm *k, u32 entry, u32 shard)
NEVER(int, kvmm_seq_open, struct kvmm *k, const struct kvmm_open_arg *args, u32 nr,
	struct kvmm_open_res *res)
NEVER(int, kvmm_seq_match, struct kvmm *k, u64 seq, const u32 *ids, u32 nr)
NEVER(int, kvmm_seq_advise, struct kvmm *k, const struct kvmm_advise_arg *args, u32 nr,
	struct kvmm_seq_res *res)
NEVER(int, kvmm_seq_close, struct kvmm *k, const u64 *seqs, u32 nr)
NEVER(int, kvmm_step_begin, struct kvmm *k, u64 step, const struct kvmm_begin_arg *args, u32 nr,
	struct kvmm_begin_res *res)
NEVER(int, kvmm_step_end, struct kvmm *k, u64 step, u64 ns, u64 prefill,
	const struct kvmm_end_arg *args, u32 nr, const u32 *ids, struct kvmm_end_res *res)

#endif /* ENGINE_FAKE_ADAPTERS_H */

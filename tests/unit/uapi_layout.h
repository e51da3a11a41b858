/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uapi_layout.h - every structure, field and number of uapi/kvmm.h
 *
 * check_uapi fails if a structure or number of the header is missing here.  It
 * also fails if a field is missing: the sizes of the others would not add up.
 */
#ifndef UAPI_LAYOUT_H
#define UAPI_LAYOUT_H

#define F_GROUP(f, s)	f(s, layers) f(s, kv_heads) f(s, k_bytes)	\
	f(s, v_bytes) f(s, scale_bytes) f(s, window) f(s, block_tokens) f(s, kind)
#define F_LIMITS(f, s)	f(s, min) f(s, low) f(s, high) f(s, max)
#define F_ATTACH_REQ(f, s)	f(s, magic) f(s, abi_version)		\
	f(s, flags) f(s, layout_hash) f(s, features) f(s, domain)	\
	f(s, identity) f(s, block_tokens) f(s, nr_shards)		\
	f(s, nr_groups) f(s, max_steps) f(s, sq_entries)		\
	f(s, max_seqs) f(s, group) f(s, limits) f(s, weight)		\
	f(s, step_tokens) f(s, resume_epoch) f(s, resume_token)		\
	f(s, resume_seen) f(s, resume_client) f(s, resume_index)	\
	f(s, pool) f(s, shard) f(s, leader) f(s, resv)
#define F_ATTACH_REP(f, s)	f(s, magic) f(s, abi_version)		\
	f(s, status) f(s, layout_hash) f(s, features)			\
	f(s, daemon_epoch) f(s, token) f(s, client) f(s, domain)	\
	f(s, pool_bytes) f(s, extent_size) f(s, nr_extents) f(s, unit)	\
	f(s, stride) f(s, block_bytes) f(s, span_extents)		\
	f(s, span_blocks) f(s, span_tail) f(s, c_bytes) f(s, d_bytes)	\
	f(s, sq_off) f(s, sq_entries) f(s, arg_off) f(s, arg_bytes)	\
	f(s, cq_off) f(s, cq_entries) f(s, result_off)			\
	f(s, result_bytes) f(s, event_off) f(s, event_entries)		\
	f(s, seq_off) f(s, max_seqs) f(s, extent_off) f(s, table_off)	\
	f(s, nr_tables) f(s, max_steps) f(s, max_batch)			\
	f(s, step_deadline_ms) f(s, committed) f(s, ring_index)		\
	f(s, resumed) f(s, memory) f(s, device) f(s, pool)	\
	f(s, nr_pools) f(s, nr_shards) f(s, pool_extents) f(s, shard_off) f(s, text)
#define F_MAP_ENTRY(f, s)	f(s, extent) f(s, generation)
#define F_MAP_MSG(f, s)	f(s, magic) f(s, nr) f(s, resv) f(s, entry)
#define F_CLIENT_CTL(f, s)	f(s, sq_tail) f(s, resv0)		\
	f(s, cq_head) f(s, resv1) f(s, need_wake) f(s, resv2)
#define F_DAEMON_CTL(f, s)	f(s, sq_head) f(s, resv0)		\
	f(s, cq_tail) f(s, event_tail) f(s, wake) f(s, resv1)		\
	f(s, need_doorbell) f(s, resv2) f(s, seqcount) f(s, state)	\
	f(s, reason) f(s, pressure) f(s, daemon_epoch) f(s, committed)	\
	f(s, draining) f(s, resv3)	\
	f(s, resv4)
#define F_SQE(f, s)	f(s, op) f(s, flags) f(s, nr) f(s, number)	\
	f(s, user_data) f(s, step) f(s, arg_off) f(s, arg_len)		\
	f(s, param) f(s, resv)
#define F_CQE(f, s)	f(s, number) f(s, user_data) f(s, status)	\
	f(s, nr) f(s, result_off) f(s, resv)
#define F_OPEN_ARG(f, s)	f(s, prompt_len) f(s, max_tokens)	\
	f(s, flags) f(s, priority) f(s, salt) f(s, lease)
#define F_OPEN_RES(f, s)	f(s, status) f(s, limiting_pool)	\
	f(s, seq)
#define F_MATCH_ARG(f, s)	f(s, seq) f(s, start) f(s, nr_ids)	\
	f(s, flags) f(s, resv)
#define F_SEQ_RES(f, s)	f(s, status) f(s, valid_len)
#define F_BEGIN_ARG(f, s)	f(s, seq) f(s, seq_epoch) f(s, start)	\
	f(s, max_tokens) f(s, resv)
#define F_BEGIN_RES(f, s)	f(s, status) f(s, valid_len)		\
	f(s, table_lo) f(s, limiting_pool) f(s, copy_from)		\
	f(s, copy_to) f(s, copy_tokens) f(s, seq_epoch)
#define F_END_ARG(f, s)	f(s, seq) f(s, valid_len) f(s, nr_ids)
#define F_END_RES(f, s)	f(s, status) f(s, valid_len) f(s, seq_epoch)	\
	f(s, resv)
#define F_FORK_ARG(f, s)	f(s, seq) f(s, nr_children) f(s, resv)
#define F_REMAP_ARG(f, s)	f(s, child) f(s, other)
#define F_SEQ_ARG(f, s)	f(s, seq)
#define F_LEN_ARG(f, s)	f(s, seq) f(s, len) f(s, resv)
#define F_ADVISE_ARG(f, s)	f(s, seq) f(s, advice) f(s, retain)	\
	f(s, value)
#define F_PRIO_ARG(f, s)	f(s, seq) f(s, priority) f(s, resv)
#define F_ACK_ARG(f, s)	f(s, extent) f(s, generation) f(s, what)	\
	f(s, resv)
#define F_LOOKUP_ARG(f, s)	f(s, salt) f(s, cookie) f(s, start)	\
	f(s, nr_ids) f(s, flags) f(s, resv0) f(s, resv)
#define F_LOOKUP_RUN(f, s)	f(s, tier) f(s, blocks)
#define F_LOOKUP_RES(f, s)	f(s, status) f(s, flags) f(s, found)	\
	f(s, nr_runs) f(s, tokens) f(s, cookie) f(s, run)		\
	f(s, hit) f(s, resv) f(s, hit_cookie)
#define F_LEASE_ARG(f, s)	f(s, salt) f(s, cookie) f(s, len)	\
	f(s, ms) f(s, flags) f(s, resv0) f(s, label)
#define F_LEASE_RES(f, s)	f(s, status) f(s, reason) f(s, held)	\
	f(s, kept) f(s, seq) f(s, number) f(s, until)
#define F_SEQ_STATUS(f, s)	f(s, seqcount) f(s, generation)		\
	f(s, state) f(s, reason) f(s, limiting_pool) f(s, valid_len)	\
	f(s, seq_epoch) f(s, cached_len) f(s, table)
#define F_EXTENT_STATUS(f, s)	f(s, state) f(s, generation)
#define F_EVENT(f, s)	f(s, type) f(s, index) f(s, seq)
#define F_TABLE_PAGE(f, s)	f(s, seq) f(s, group) f(s, first)	\
	f(s, next) f(s, resv) f(s, entry)

#define UAPI_STRUCTS(S)							\
	S(kvmm_group, F_GROUP)						\
	S(kvmm_limits, F_LIMITS)					\
	S(kvmm_attach_req, F_ATTACH_REQ)				\
	S(kvmm_attach_rep, F_ATTACH_REP)				\
	S(kvmm_map_entry, F_MAP_ENTRY)					\
	S(kvmm_map_msg, F_MAP_MSG)					\
	S(kvmm_client_ctl, F_CLIENT_CTL)				\
	S(kvmm_daemon_ctl, F_DAEMON_CTL)				\
	S(kvmm_sqe, F_SQE)						\
	S(kvmm_cqe, F_CQE)						\
	S(kvmm_open_arg, F_OPEN_ARG)					\
	S(kvmm_open_res, F_OPEN_RES)					\
	S(kvmm_match_arg, F_MATCH_ARG)					\
	S(kvmm_seq_res, F_SEQ_RES)					\
	S(kvmm_begin_arg, F_BEGIN_ARG)					\
	S(kvmm_begin_res, F_BEGIN_RES)					\
	S(kvmm_end_arg, F_END_ARG)					\
	S(kvmm_end_res, F_END_RES)					\
	S(kvmm_fork_arg, F_FORK_ARG)					\
	S(kvmm_remap_arg, F_REMAP_ARG)					\
	S(kvmm_seq_arg, F_SEQ_ARG)					\
	S(kvmm_len_arg, F_LEN_ARG)					\
	S(kvmm_advise_arg, F_ADVISE_ARG)				\
	S(kvmm_prio_arg, F_PRIO_ARG)					\
	S(kvmm_ack_arg, F_ACK_ARG)					\
	S(kvmm_lookup_arg, F_LOOKUP_ARG)				\
	S(kvmm_lookup_run, F_LOOKUP_RUN)				\
	S(kvmm_lookup_res, F_LOOKUP_RES)				\
	S(kvmm_lease_arg, F_LEASE_ARG)					\
	S(kvmm_lease_res, F_LEASE_RES)					\
	S(kvmm_seq_status, F_SEQ_STATUS)				\
	S(kvmm_extent_status, F_EXTENT_STATUS)				\
	S(kvmm_event, F_EVENT)						\
	S(kvmm_table_page, F_TABLE_PAGE)

#define UAPI_CONSTS(C)	C(KVMM_ABI_VERSION) C(KVMM_MAX_GROUPS) C(KVMM_MAX_SHARDS)	\
	C(KVMM_MAX_TIERS) C(KVMM_NAME_LEN) C(KVMM_LABEL_LEN)		\
	C(KVMM_IDENTITY_LEN)						\
	C(KVMM_MAX_STEPS) C(KVMM_MIN_BLOCK_TOKENS) C(KVMM_MAX_BLOCK_TOKENS) \
	C(KVMM_NO_INDEX) C(KVMM_NO_POOL)				\
	C(KVMM_LIMIT_MAX) C(KVMM_ATTACH_MAGIC) C(KVMM_REPLY_MAGIC)	\
	C(KVMM_MAP_MAGIC) C(KVMM_ATTACH_RESUME) C(KVMM_ATTACH_ASK) C(KVMM_FEAT_REMAP)	\
	C(KVMM_FEAT_TRUNCATE) C(KVMM_FEAT_TRIM) C(KVMM_FEAT_ADVISE)	\
	C(KVMM_FEAT_SWAP) C(KVMM_FEAT_RESUME) C(KVMM_RESUMED_NO)	\
	C(KVMM_RESUMED_WHOLE) C(KVMM_RESUMED_SALVAGED)			\
	C(KVMM_GROUP_KV) C(KVMM_GROUP_STATE) C(KVMM_MEMORY_HOST)	\
	C(KVMM_MEMORY_CUDA) C(KVMM_MAP_BATCH) C(KVMM_MAP_AT_ONCE)	\
	C(KVMM_CLIENT_ALIVE) C(KVMM_CLIENT_DETACHED)			\
	C(KVMM_CLIENT_EXPELLED) C(KVMM_CLIENT_SHUTDOWN) C(KVMM_OP_NOP)	\
	C(KVMM_OP_SEQ_OPEN) C(KVMM_OP_SEQ_MATCH) C(KVMM_OP_STEP_BEGIN)	\
	C(KVMM_OP_STEP_END) C(KVMM_OP_SEQ_FORK) C(KVMM_OP_SEQ_REMAP)	\
	C(KVMM_OP_SEQ_CLOSE) C(KVMM_OP_SEQ_TRUNCATE)			\
	C(KVMM_OP_SEQ_TRIM) C(KVMM_OP_SEQ_ADVISE)			\
	C(KVMM_OP_SEQ_SETPRIO) C(KVMM_OP_EXTENT_ACK) C(KVMM_OP_DETACH)	\
	C(KVMM_OP_SEQ_LOOKUP) C(KVMM_LOOKUP_LAST) C(KVMM_TIER_DEVICE)	\
	C(KVMM_TIER_HOST) C(KVMM_TIER_AREA) C(KVMM_TIER_MOVING)		\
	C(KVMM_NR_LOOKUP_TIERS) C(KVMM_LOOKUP_RUNS) C(KVMM_LOOKUP_MORE)	\
	C(KVMM_OP_SEQ_LEASE)						\
	C(KVMM_NR_OPS) C(KVMM_OPEN_NO_MATCH) C(KVMM_OPEN_NO_INDEX)	\
	C(KVMM_OPEN_WHOLE_BLOCKS) C(KVMM_OPEN_WHOLE_PROMPT)		\
	C(KVMM_MATCH_LAST) C(KVMM_ADV_COLD) C(KVMM_ADV_PAGEOUT)		\
	C(KVMM_ADV_WILLNEED) C(KVMM_ADV_KEEP_UNTIL)			\
	C(KVMM_ADV_DONTNEED) C(KVMM_ADV_RETAIN) C(KVMM_DONTNEED_OWN)	\
	C(KVMM_DONTNEED_FOUND) C(KVMM_RETAIN_PRIO)			\
	C(KVMM_RETAIN_LOW) C(KVMM_RETAIN_NORMAL) C(KVMM_RETAIN_HIGH)	\
	C(KVMM_PRIO_NORMAL) C(KVMM_PRIO_HIGH)				\
	C(KVMM_ACK_MAP) C(KVMM_ACK_REVOKE)				\
	C(KVMM_SEQ_CLOSED) C(KVMM_SEQ_WAITING) C(KVMM_SEQ_READY)	\
	C(KVMM_SEQ_MARKED) C(KVMM_SEQ_SWAPPED) C(KVMM_SEQ_RECOMPUTE)	\
	C(KVMM_SEQ_RESTORING) C(KVMM_SEQ_FAILED) C(KVMM_NR_SEQ_STATES)	\
	C(KVMM_EXTENT_ABSENT) C(KVMM_EXTENT_MAP) C(KVMM_EXTENT_MAPPED)	\
	C(KVMM_EXTENT_REVOKE) C(KVMM_EV_PREEMPTED) C(KVMM_EV_READY)	\
	C(KVMM_EV_FAILED) C(KVMM_EV_PRESSURE) C(KVMM_EV_MAP)		\
	C(KVMM_EV_REVOKE) C(KVMM_EV_POISONED) C(KVMM_EV_SHUTDOWN)	\
	C(KVMM_TABLE_ENTRIES)

#endif /* UAPI_LAYOUT_H */

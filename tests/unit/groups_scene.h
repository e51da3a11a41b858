/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups_scene.h - a domain with several layer groups, for tests of them
 *
 * A block has 1 KiB in each group that has 16 tokens a block.  With other sizes all
 * blocks have the bytes of the largest.  With setup_with() there is a host pool, too;
 * the test answers the copies.
 */
#ifndef GROUPS_SCENE_H
#define GROUPS_SCENE_H

#include "tests/unit/core_shell.h"
#include "kvmm/core/node/node.h"

static struct core *c;
static u32 cl;

/* The tokens of a block of a group, and its window. */
struct shape {
	u32	tokens;
	u32	window;
};

static struct kvmm_attach_req __maybe_unused groups_req(const char *name, u32 step_tokens,
							u32 nr, const struct shape *shapes)
{
	struct kvmm_attach_req req = sh_attach_req(name);
	u32 g;

	req.nr_groups = nr;
	req.step_tokens = step_tokens;
	for (g = 0; g < nr; g++) {
		req.group[g] = req.group[0];
		req.group[g].block_tokens = shapes[g].tokens;
		req.group[g].window = shapes[g].window;
	}
	return req;
}

static u32 __maybe_unused groups_attach(u32 step_tokens, u32 nr, const struct shape *shapes)
{
	struct kvmm_attach_req req = groups_req("d", step_tokens, nr, shapes);
	int id = sh_attach_as(1, &req);

	ck_assert_int_ge(id, 0);
	sh_settle();
	return (u32)id;
}

/* Start with @extents extents of 4 KiB, and attach. */
static void __maybe_unused groups_start(u32 extents, u32 step_tokens, u32 nr,
					const struct shape *shapes)
{
	sh_config(extents);
	sh.cfg.starve_ns = 3600000 * MS;
	sh_start();
	c = sh.core;
	cl = groups_attach(step_tokens, nr, shapes);
}

static struct kv_seq *__maybe_unused record(u64 seq)
{
	return seq_find(c, cl, seq);
}

static struct kv_domain *__maybe_unused domain(void)
{
	return &c->domains[sh.cl[cl].info.domain];
}

static struct kv_tab *__maybe_unused tab(u64 seq, u32 g)
{
	return seq_tab(c, record(seq), g);
}

/* The block at an index of the table of a group. */
static u32 __maybe_unused block_at(u64 seq, u32 g, u32 idx)
{
	return table_get(c, tab(seq, g), idx);
}

/* The entry at an index below KVMM_TABLE_ENTRIES of the table that the client reads. */
static u32 __maybe_unused shown(u64 seq, u32 g, u32 idx)
{
	return sh.cl[cl].tables[sh_status(cl, seq)->table[g]].entry[idx];
}

/* Table entries, and those of them that were trimmed. */
static void __maybe_unused tab_has(u64 seq, u32 g, u32 nr_blocks, u32 trimmed)
{
	ck_assert_uint_eq(tab(seq, g)->nr_blocks, nr_blocks);
	ck_assert_uint_eq(tab(seq, g)->trimmed, trimmed);
}

/* Begin a step of one entry; @res takes a result for each group. */
static int __maybe_unused begin(u64 seq, u32 start, u32 tokens, struct kvmm_begin_res *res)
{
	struct kvmm_begin_arg a = sh_entry(cl, seq, start, tokens);

	memcpy(sh.args, &a, sizeof(a));
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_STEP_BEGIN, 1, ++sh.cl[cl].step,
				   sizeof(a)), 0);
	memcpy(res, sh.results, domain()->nr_groups * sizeof(*res));
	sh_settle();
	return res->status;
}

/* Compute positions @from to @to - 1 in steps of @step tokens. */
static void __maybe_unused compute_by(u64 seq, u32 from, u32 to, u32 step, u32 seed)
{
	for (; from < to; from += step)
		sh_compute(cl, seq, from, min(to, from + step), seed);
}

/* A sequence that has computed all of its prompt in one step. */
static u64 __maybe_unused runs(u32 prompt, u32 more, u32 seed)
{
	u64 seq = sh_ready(cl, prompt, more, seed);

	sh_compute(cl, seq, sh_status(cl, seq)->valid_len, prompt, seed);
	return seq;
}

/* Send TRUNCATE or TRIM. */
static int __maybe_unused len_verb(u16 op, u64 seq, u32 len)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)sh.args;
	int err;

	*a = (struct kvmm_len_arg){ .seq = seq, .len = len };
	ck_assert_int_eq(sh_submit(cl, op, 1, 0, sizeof(*a)), 0);
	err = sh_seq_res(0);
	sh_settle();
	return err;
}

#define truncate_to(seq, len)	len_verb(KVMM_OP_SEQ_TRUNCATE, seq, len)
#define trim(seq, len)		len_verb(KVMM_OP_SEQ_TRIM, seq, len)

/* Tokens that a prompt of @len ids finds; its sequence is closed again. */
static u32 __maybe_unused finds(u32 len, u32 seed)
{
	u64 seq = sh_ready(cl, len, 0, seed);
	u32 found = sh_status(cl, seq)->cached_len;

	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, found);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	return found;
}

/* ---- a host pool ---- */

#define MAX_IO	64
#define SLOT	(2 * SH_EXTENT)

static struct core_copy copies[MAX_IO];
static u32 nr_copies;

static void __maybe_unused on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MAX_IO);
	copies[nr_copies++] = *cp;
}

static void __maybe_unused on_io(const struct core_io *io)
{
	ck_abort_msg("there is no area");
}

static void __maybe_unused do_copies(void)
{
	while (nr_copies) {
		u64 id = copies[--nr_copies].id;

		SH_CORE(core_copy_done(sh.core, sh.now, id, 0));
		sh_settle();
	}
}

/* Make memory for growth: that of the longest prompt. */
static void __maybe_unused make_memory(void)
{
	struct kvmm_open_arg a = { .prompt_len = 1024 };
	u64 seq;

	while (sh_open_as(cl, &a, &seq) == -E2BIG)
		a.prompt_len -= 16;
	ck_assert_int_eq(sh_match(cl, seq, a.prompt_len, 1 << 20), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

static void __maybe_unused setup_with(u32 swappiness, u32 nr, const struct shape *with)
{
	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	sh_config(24);
	sh.cfg.starve_ns = 3600000 * MS;
	sh.cfg.host_bytes = 64 * SLOT;
	sh.cfg.swappiness = swappiness;
	sh_start();
	c = sh.core;
	cl = groups_attach(128, nr, with);
	make_memory();
}

static int __maybe_unused advise(u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;
	int err;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	err = sh_seq_res(0);
	sh_settle();
	return err;
}

/* Only the host pool has the cache from now on. */
static void __maybe_unused evict_all(void)
{
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_blocks; i++)
		if (c->blocks[i].state == BLK_CACHED && !c->blocks[i].nr_map)
			index_evict(c, i);
	sh_check();
}

/* A prompt of 134 tokens is in the host pool, from 64 on in the group with a window. */
static void __maybe_unused swap_prompt(u64 *seq)
{
	*seq = runs(134, 60, 1);
	tab_has(*seq, 1, 5, 2);
	ck_assert_int_eq(advise(*seq, KVMM_ADV_PAGEOUT), 0);
	do_copies();
	evict_all();
}

/* ---- tables ---- */

/* A table of each group, as the client sees it. */
struct picture {
	u32	nr[2];
	u32	trimmed[2];
	u32	entry[2][16];
	u64	hash[2][2];	/* name before the first block */
};

static struct picture __maybe_unused picture_of(u64 seq)
{
	struct picture p = { 0 };
	u32 g, i;

	for (g = 0; g < 2; g++) {
		p.nr[g] = tab(seq, g)->nr_blocks;
		p.trimmed[g] = tab(seq, g)->trimmed;
		memcpy(p.hash[g], tab(seq, g)->trim_hash, sizeof(p.hash[g]));
		for (i = 0; i < p.nr[g]; i++)
			p.entry[g][i] = shown(seq, g, i);
	}
	return p;
}

#endif /* GROUPS_SCENE_H */

// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_blocks.c - blocks of 16 to 4096 tokens, and clients that use them whole
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kvmm/core/node/node.h"
#include "tests/unit/core_shell.h"

#define EXTENT	65536u
#define TOKEN	64u		/* bytes */
#define HOST	(32ull * EXTENT)
#define MOST	64u		/* requests in flight */
#define OTHER	100000u		/* seed of the tokens after the common part */

static const u32 sizes[] = { 16, 32, 48, 64, 784, 1600, 4096 };

static struct core *c;
static u32 cl, bt;
static struct core_copy copies[MOST];
static struct core_io ios[MOST];
static u32 nr_copies, nr_ios;

static void on_copy(const struct core_copy *cp)
{
	ck_assert_uint_lt(nr_copies, MOST);
	copies[nr_copies++] = *cp;
}

static void on_io(const struct core_io *io)
{
	ck_assert_uint_lt(nr_ios, MOST);
	ios[nr_ios++] = *io;
}

static void answers(void)
{
	while (nr_copies || nr_ios) {
		if (nr_copies)
			SH_CORE(core_copy_done(c, sh.now, copies[--nr_copies].id, 0));
		else
			SH_CORE(core_io_done(c, sh.now, ios[--nr_ios].id, 0));
		sh_settle();
	}
}

/* A pool of 32 extents for blocks of @tokens tokens, and lower tiers. */
static void start(u32 tokens)
{
	struct kvmm_attach_req req = sh_attach_req("a");
	u32 area;

	sh_on_copy = on_copy;
	sh_on_io = on_io;
	nr_copies = 0;
	nr_ios = 0;
	sh_config(32);
	sh.cfg.extent_size = EXTENT;
	sh.cfg.pool_bytes = 32ull * EXTENT;
	sh.cfg.host_bytes = HOST;
	sh.cfg.area_bytes = HOST;
	sh.cfg.swappiness = 200;
	sh.cfg.nr_idpages = 256 * SH_CLIENTS;
	sh_start();
	c = sh.core;
	bt = tokens;
	req.block_tokens = tokens;
	cl = (u32)sh_attach_as(1, &req);
	ck_assert_int_lt((int)cl, SH_CLIENTS);
	sh_settle();
	ck_assert_uint_eq(sh.cl[cl].info.block_bytes, tokens * TOKEN);
	ck_assert_int_eq(core_area_add(c, sh.now, HOST, 0, &area), 0);
}

/* Compute @from to @to in steps of at most @piece tokens. */
static void compute(u64 seq, u32 from, u32 to, u32 piece, u32 seed)
{
	for (; from < to; from += min(piece, to - from))
		sh_compute(cl, seq, from, from + min(piece, to - from), seed);
}

/* Compute and close a sequence of @common tokens of seed 0, then others. */
static void cache(u32 common, u32 len, u32 piece)
{
	u64 seq = sh_open(cl, len, 0);

	ck_assert_int_eq(sh_match_piece(cl, seq, 0, common, common == len ?
					KVMM_MATCH_LAST : 0, 0), 0);
	if (common < len)
		ck_assert_int_eq(sh_match_piece(cl, seq, common, len - common,
						KVMM_MATCH_LAST, OTHER), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	compute(seq, sh_status(cl, seq)->valid_len, common, piece, 0);
	compute(seq, common, len, piece, OTHER);
	ck_assert_int_eq(sh_close(cl, seq), 0);
}

/* Tokens that a prompt hits: @common of seed 0, and others up to @len. */
static u32 found(u32 common, u32 len, u32 flags)
{
	struct kvmm_open_arg a = { .prompt_len = len, .flags = flags };
	u32 valid;
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match_piece(cl, seq, 0, common, common == len ?
					KVMM_MATCH_LAST : 0, 0), 0);
	if (common < len)
		ck_assert_int_eq(sh_match_piece(cl, seq, common, len - common,
						KVMM_MATCH_LAST, OTHER), 0);
	answers();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	valid = sh_status(cl, seq)->valid_len;
	ck_assert_uint_eq(sh_status(cl, seq)->cached_len, valid);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	return valid;
}

/* ---- names ---- */

/* Append a field as the names of 0.1.0 have it: type, length, bytes. */
static u32 field(u8 *to, u32 type, const void *bytes, u32 len)
{
	u32 head[2] = { type, len };

	memcpy(to, head, sizeof(head));
	memcpy(to + sizeof(head), bytes, len);
	return (u32)sizeof(head) + len;
}

static void expect_hash(const u8 *bytes, u32 len, const u64 *hash)
{
	XXH128_hash_t h = XXH3_128bits_withSecret(bytes, len, c->tenants[0].secret,
						  CORE_SECRET_LEN);

	ck_assert_uint_eq(hash[0], h.low64);
	ck_assert_uint_eq(hash[1], h.high64);
}

/* The name of a block is one hash over its fields, so that it stays over releases. */
START_TEST(test_names)
{
	static u8 bytes[64 + 4 * KVMM_MAX_BLOCK_TOKENS];
	u32 ids[KVMM_MAX_BLOCK_TOKENS], i, len;
	const struct kv_domain *d;
	u64 root[2], hash[2], salt = 0x123456789abcdefull;

	start(sizes[_i]);
	d = &c->domains[0];
	for (i = 0; i < bt; i++)
		ids[i] = i * 0x9e3779b9u;
	index_root(c, d, salt, 0, root);
	len = field(bytes, 1, d->identity, sizeof(d->identity));
	len += field(bytes + len, 2, &salt, sizeof(salt));
	expect_hash(bytes, len, root);
	index_chain(c, d, 0, root, ids, hash);
	len = field(bytes, 3, root, sizeof(root));
	len += field(bytes + len, 4, ids, 4 * bt);
	expect_hash(bytes, len, hash);
	sh_stop();
}
END_TEST

/* ---- hits ---- */

START_TEST(test_hits)
{
	u32 lens[] = { 1, 15, 16, 17, 0, 0, 0, 0, 0 }, i;

	start(sizes[_i]);
	lens[4] = bt - 1;
	lens[5] = bt;
	lens[6] = bt + 1;
	lens[7] = bt + bt / 2 + 1;
	lens[8] = 2 * bt;
	cache(2 * bt, 2 * bt + 5, 2 * bt);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		ck_assert_uint_eq(found(lens[i], 2 * bt + 9, 0), lens[i]);
		/* The last token of a prompt is always computed. */
		ck_assert_uint_eq(found(lens[i], lens[i], 0), lens[i] - 1);
	}
	ck_assert_uint_eq(found(2 * bt + 5, 2 * bt + 5, 0), 2 * bt);
	sh_stop();
}
END_TEST

/* Steps that end anywhere seal the same blocks as one step. */
START_TEST(test_pieces)
{
	start(sizes[_i]);
	cache(2 * bt, 2 * bt + 3, bt / 3 + 2);
	ck_assert_uint_eq(sh_pool().indexed, 2 * bt * TOKEN);
	ck_assert_uint_eq(found(2 * bt, 2 * bt + 1, 0), 2 * bt);
	/* The same content again is merged. */
	cache(2 * bt, 2 * bt + 3, 2 * bt);
	ck_assert_uint_eq(sh_pool().indexed, 2 * bt * TOKEN);
	sh_stop();
}
END_TEST

/* ---- whole blocks ---- */

START_TEST(test_whole_blocks)
{
	u32 lens[] = { 1, 17, 0, 0, 0, 0, 0 }, i;

	start(sizes[_i]);
	lens[2] = bt - 1;
	lens[3] = bt;
	lens[4] = bt + 1;
	lens[5] = 2 * bt - 1;
	lens[6] = 2 * bt;
	cache(2 * bt, 2 * bt, 2 * bt);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		ck_assert_uint_eq(found(lens[i], 2 * bt + 9, KVMM_OPEN_WHOLE_BLOCKS),
				  lens[i] / bt * bt);
		ck_assert_uint_eq(found(lens[i], lens[i], KVMM_OPEN_WHOLE_BLOCKS),
				  (lens[i] - 1) / bt * bt);
	}
	ck_assert_uint_eq(sh_count(CORE_EV_prefix_partial_tokens), 0);
	/* Other sequences still get parts. */
	ck_assert_uint_eq(found(bt / 2 + 1, 2 * bt, 0), bt / 2 + 1);
	sh_stop();
}
END_TEST

/* Nothing of the prompt is computed if all of it is found, and nothing is reserved for it. */
START_TEST(test_whole_prompt)
{
	const u32 both = KVMM_OPEN_WHOLE_PROMPT | KVMM_OPEN_WHOLE_BLOCKS;
	struct kvmm_open_arg a = { .prompt_len = 2 * sizes[_i], .flags = both };
	u32 lens[] = { 1, 17, 0, 0, 0, 0 }, i;
	u64 seq;

	start(sizes[_i]);
	lens[2] = bt - 1;
	lens[3] = bt;
	lens[4] = bt + 1;
	lens[5] = 2 * bt;
	cache(2 * bt, 2 * bt, 2 * bt);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		ck_assert_uint_eq(found(lens[i], lens[i], KVMM_OPEN_WHOLE_PROMPT), lens[i]);
		ck_assert_uint_eq(found(lens[i], lens[i], both), lens[i] / bt * bt);
		ck_assert_uint_eq(found(lens[i], lens[i], 0), lens[i] - 1);
	}
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, 2 * bt, 0), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(c->domains[0].dev.reserved, 0);
	ck_assert_int_eq(sh_close(cl, seq), 0);
	sh_stop();
}
END_TEST

static void advise(u64 seq, u32 advice)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)sh.args;

	*a = (struct kvmm_advise_arg){ .seq = seq, .advice = advice };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	sh_settle();
}

/* A fork, a truncation and a swap keep the sequence's own part of a block. */
START_TEST(test_own_content_stays)
{
	struct kvmm_open_arg a = { .prompt_len = 2 * sizes[_i], .max_tokens = 9,
				   .flags = KVMM_OPEN_WHOLE_BLOCKS };
	struct kvmm_len_arg *cut = (struct kvmm_len_arg *)sh.args;
	u32 half = sizes[_i] + sizes[_i] / 2;
	u64 seq, kid;

	start(sizes[_i]);
	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	ck_assert_int_eq(sh_match(cl, seq, 2 * bt, 0), 0);
	sh_compute(cl, seq, 0, 2 * bt, 0);
	*cut = (struct kvmm_len_arg){ .seq = seq, .len = half };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_TRUNCATE, 1, 0, sizeof(*cut)), 0);
	ck_assert_int_eq(sh_seq_res(0), 0);
	ck_assert_int_eq(sh_fork(cl, seq, 1, &kid), 0);
	ck_assert_uint_eq(sh_status(cl, kid)->valid_len, half);
	ck_assert_int_eq(sh_close(cl, kid), 0);
	sh_compute(cl, seq, half, half + 3, OTHER);
	advise(seq, KVMM_ADV_PAGEOUT);
	answers();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_SWAPPED);
	advise(seq, KVMM_ADV_WILLNEED);
	answers();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, half + 3);
	sh_stop();
}
END_TEST

/* ---- work, and the next core ---- */

/* Hashing a large block counts as more work than a small one. */
START_TEST(test_slices)
{
	u64 seq;

	start(784);
	cache(4 * bt, 4 * bt, 4 * bt);
	c->head->cfg.event_work = 100;	/* an admission, and one block of 784 */
	seq = sh_open(cl, 4 * bt + 1, 0);
	ck_assert_int_eq(sh_match(cl, seq, 4 * bt + 1, 0), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_WAITING);
	while (core_poll(c, sh.now))
		sh_check();
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	ck_assert_uint_eq(sh_status(cl, seq)->valid_len, 4 * bt);
	sh_stop();
}
END_TEST

/* Most tokens of a block that are known when the core ends inside an event. */
START_TEST(test_salvaged)
{
	struct sh_client *k;
	struct core_bind bind;
	struct core_attach_info info;
	struct core_report r;
	u64 committed;

	start(sizes[_i]);
	cache(2 * bt, 2 * bt, 2 * bt);
	core_commit_begin(c);
	core_commit_end(c, cl);
	c->head->event = 1;
	memset(c, 0xa5, core_struct_size());
	k = &sh.cl[cl];
	memset(&k->ctl, 0, sizeof(*k) - offsetof(struct sh_client, ctl));
	ck_assert_int_eq(core_adopt(c, sh.arena, core_arena_size(&sh.cfg), &sh.cfg,
				    &sh_ops, NULL, sh.now, &r), CORE_ADOPT_SALVAGED);
	ck_assert_int_eq(core_client_resume(c, sh.now, cl, k->number, &info,
					    &committed), 0);
	bind = (struct core_bind){ .ctl = &k->ctl, .seqs = k->seqs,
				   .extents = k->extents, .tables = k->tables,
				   .events = k->events, .nr_events = SH_EVENTS };
	core_client_bind(c, cl, &bind);
	sh_tick(1);
	ck_assert_uint_eq(found(2 * bt, 2 * bt + 1, 0), 2 * bt);
	ck_assert_uint_eq(found(bt + 3, 2 * bt, KVMM_OPEN_WHOLE_BLOCKS), bt);
	sh_stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_blocks");
	TCase *tc = tcase_create("blocks");
	const int nr = ARRAY_SIZE(sizes);

	tcase_add_loop_test(tc, test_names, 0, nr);
	tcase_add_loop_test(tc, test_hits, 0, nr);
	tcase_add_loop_test(tc, test_pieces, 0, nr);
	tcase_add_loop_test(tc, test_whole_blocks, 0, nr);
	tcase_add_loop_test(tc, test_whole_prompt, 0, nr);
	tcase_add_loop_test(tc, test_own_content_stays, 0, nr);
	tcase_add_test(tc, test_slices);
	tcase_add_loop_test(tc, test_salvaged, 0, nr);
	suite_add_tcase(s, tc);
	return sh_run(s);
}

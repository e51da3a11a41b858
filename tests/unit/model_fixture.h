/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_fixture.h - pools and small models for the tests of the model
 *
 * Paged pools with scattered tables and memory full of NaN, so that a read of
 * unwritten memory shows; and small random models, written to a temporary
 * directory and kept in memory for an oracle.
 */
#ifndef TESTS_MODEL_FIXTURE_H
#define TESTS_MODEL_FIXTURE_H

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/model/model.h"
#include "tests/tmp.h"

#define POOL_UNIT	64u

/**
 * struct pool - memory for blocks, and tables into it
 * @kv:		as model_forward() takes it
 * @mem:	all blocks
 * @bytes:	size of @mem
 * @entries:	table entries of all blocks, shuffled
 * @nr_blocks:	number of blocks
 * @next:	first of @entries that is in no table
 * @states:	table entries of all blocks of recurrent layers, shuffled
 * @record:	blocks of a record; 0: the model has no recurrent layers
 * @next_state:	first of @states that is in no table
 */
struct pool {
	struct model_kv	kv;
	u8		*mem;
	u64		bytes;
	u32		*entries;
	u32		nr_blocks;
	u32		next;
	u32		*states;
	u32		record;
	u32		next_state;
};

static inline u32 rnd(u32 *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static inline void pool_shuffle(u32 *entries, u32 nr, u32 *seed)
{
	u32 i, j, t;

	for (i = nr - 1; i > 0; i--) {
		j = rnd(seed) % (i + 1);
		t = entries[i];
		entries[i] = entries[j];
		entries[j] = t;
	}
}

/*
 * Make room behind @at bytes for records of as many tokens as the pool has, in blocks of
 * three units of state.  @seed also chooses the distance of records.
 */
static inline u64 pool_states(struct pool *p, const struct model_info *info, u64 at,
			      u32 *seed)
{
	static const u32 tokens[] = { 16, 64, 32 };
	const struct model_group *g = &info->group[info->nr_groups - 1];
	const u64 block = 3 * ALIGN_UP((u64)g->unit_bytes, 128ull) + POOL_UNIT;
	const u32 nr = p->nr_blocks;
	u32 i;

	if (!g->units)
		return at;
	p->kv.block_tokens[info->nr_groups - 1] = tokens[*seed % 3];
	p->kv.block_bytes = block;
	p->record = DIV_ROUND_UP(g->layers * g->units, 3u);
	p->states = calloc((size_t)nr * p->record, sizeof(*p->states));
	ck_assert_ptr_nonnull(p->states);
	for (i = 0; i < nr * p->record; i++)
		p->states[i] = (u32)((at + i * block) / POOL_UNIT);
	pool_shuffle(p->states, nr * p->record, seed);
	return at + nr * p->record * block;
}

/*
 * @layer_major: all blocks of a layer adjacent, else all layers of a block.
 * @seed: seed for the order of the blocks in the pool.
 */
static inline void pool_create(struct pool *p, const struct model_info *info,
			       u32 nr_blocks, u32 block_tokens,
			       bool layer_major, u32 seed)
{
	const u64 layer = block_tokens * model_layer_bytes(info);
	u32 i;

	memset(p, 0, sizeof(*p));
	p->nr_blocks = nr_blocks;
	p->bytes = ALIGN_UP(layer * info->nr_layers * nr_blocks, (u64)POOL_UNIT);
	p->bytes = pool_states(p, info, p->bytes, &seed);
	p->mem = aligned_alloc(POOL_UNIT, p->bytes);
	p->entries = calloc(nr_blocks, sizeof(*p->entries));
	ck_assert(p->mem && p->entries);
	memset(p->mem, 0xff, p->bytes);
	p->kv.base = p->mem;
	p->kv.unit = POOL_UNIT;
	p->kv.block_tokens[0] = block_tokens;
	p->kv.layer_stride[0] = layer_major ? layer * nr_blocks : layer;
	for (i = 0; i < nr_blocks; i++)
		p->entries[i] = i * (layer_major ? layer :
				     layer * info->nr_layers) / POOL_UNIT;
	pool_shuffle(p->entries, nr_blocks, &seed);
}

static inline void pool_destroy(struct pool *p)
{
	free(p->mem);
	free(p->entries);
	free(p->states);
}

/* A table for @tokens tokens, with blocks that no other table has. */
static inline const u32 *pool_table(struct pool *p, u32 tokens)
{
	const u32 *table = p->entries + p->next;

	p->next += DIV_ROUND_UP(tokens, p->kv.block_tokens[0]);
	ck_assert_uint_le(p->next, p->nr_blocks);
	return table;
}

/* The tables of all groups, for @tokens tokens, of a model with one group of KV. */
static inline void pool_tables(struct pool *p, u32 tokens, struct model_seq_in *in)
{
	in->table[0] = pool_table(p, tokens);
	if (!p->record)
		return;
	in->table[1] = p->states + p->next_state;
	p->next_state += DIV_ROUND_UP(tokens, p->kv.block_tokens[1]) * p->record;
}

static char fixture_dir[128];

static inline void dir_create(void)
{
	ck_assert_ptr_nonnull(mkdtemp(tmp_name(fixture_dir, sizeof(fixture_dir), "model")));
}

static inline void dir_destroy(void)
{
	DIR *d = opendir(fixture_dir);
	struct dirent *e;

	while ((e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	rmdir(fixture_dir);
}

static inline FILE *dir_open(const char *name, const char *how)
{
	char path[160];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", fixture_dir, name);
	f = fopen(path, how);
	ck_assert_msg(f != NULL, "%s", path);
	return f;
}

static inline void dir_write(const char *name, const char *text)
{
	FILE *f = dir_open(name, "w");

	fputs(text, f);
	ck_assert_int_eq(fclose(f), 0);
}

enum tiny_type {
	TINY_F32,
	TINY_BF16,
	TINY_F16,
};

struct tiny_tensor {
	char	name[80];
	u32	rows;
	u32	cols;		/* 0 for a vector */
	float	*data;
};

#define TINY_MAX_TENSORS	64u

/**
 * struct tiny - a small random model
 * @arch:	architecture
 * @more:	further keys of config.json, each followed by a comma
 * @vocab:	this and the next ones: as in config.json
 * @type:	of all tensors in the file
 * @shards:	files to spread the tensors over; 1 for model.safetensors
 * @odd:	start the data at an odd address
 * @tensors:	filled by tiny_make()
 * @nr_tensors:	ditto
 */
struct tiny {
	const char		*arch;
	const char		*more;
	u32			vocab;
	u32			hidden;
	u32			inter;
	u32			layers;
	u32			heads;
	u32			kv_heads;
	u32			head_dim;
	bool			tied;
	bool			qkv_bias;
	bool			qk_norm;
	enum tiny_type		type;
	u32			shards;
	bool			odd;
	struct tiny_tensor	tensors[TINY_MAX_TENSORS];
	u32			nr_tensors;
};

static inline const float *tiny_get(const struct tiny *t, const char *name)
{
	u32 i;

	for (i = 0; i < t->nr_tensors; i++)
		if (!strcmp(t->tensors[i].name, name))
			return t->tensors[i].data;
	return NULL;
}

/*
 * Values that all three types hold exactly: 7 bits, some so small that they are
 * subnormal in f16.  Vectors are centred at @centre.
 */
static inline void tiny_add(struct tiny *t, const char *name, u32 rows,
			    u32 cols, float centre)
{
	struct tiny_tensor *x = &t->tensors[t->nr_tensors];
	const u32 n = rows * (cols ? cols : 1);
	u32 i, seed = t->nr_tensors * 7919 + 17;
	s32 k;

	ck_assert_uint_lt(t->nr_tensors++, TINY_MAX_TENSORS);
	snprintf(x->name, sizeof(x->name), "%s", name);
	x->rows = rows;
	x->cols = cols;
	x->data = calloc(n, sizeof(*x->data));
	ck_assert_ptr_nonnull(x->data);
	for (i = 0; i < n; i++) {
		k = (s32)(rnd(&seed) % 255) - 127;
		x->data[i] = cols ? k * 0x1p-9f : centre + k / 8 * 0x1p-6f;
		if (cols && i % 16 == 5)
			x->data[i] = k * 0x1p-17f;
	}
}

static inline void tiny_add_layer(struct tiny *t, u32 l)
{
	const u32 q = t->heads * t->head_dim, kv = t->kv_heads * t->head_dim;
	const struct {
		const char	*name;
		u32		rows, cols;
		float		centre;
		bool		there;
	} list[] = {
		{ "input_layernorm.weight", t->hidden, 0, 1.0f, true },
		{ "post_attention_layernorm.weight", t->hidden, 0, 1.0f, true },
		{ "self_attn.q_proj.weight", q, t->hidden, 0, true },
		{ "self_attn.k_proj.weight", kv, t->hidden, 0, true },
		{ "self_attn.v_proj.weight", kv, t->hidden, 0, true },
		{ "self_attn.o_proj.weight", t->hidden, q, 0, true },
		{ "self_attn.q_proj.bias", q, 0, 0, t->qkv_bias },
		{ "self_attn.k_proj.bias", kv, 0, 0, t->qkv_bias },
		{ "self_attn.v_proj.bias", kv, 0, 0, t->qkv_bias },
		{ "self_attn.q_norm.weight", t->head_dim, 0, 1.0f, t->qk_norm },
		{ "self_attn.k_norm.weight", t->head_dim, 0, 1.0f, t->qk_norm },
		{ "mlp.gate_proj.weight", t->inter, t->hidden, 0, true },
		{ "mlp.up_proj.weight", t->inter, t->hidden, 0, true },
		{ "mlp.down_proj.weight", t->hidden, t->inter, 0, true },
	};
	char name[80];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(list); i++) {
		snprintf(name, sizeof(name), "model.layers.%u.%s", l,
			 list[i].name);
		if (list[i].there)
			tiny_add(t, name, list[i].rows, list[i].cols,
				 list[i].centre);
	}
}

/* Fill in the tensors; the caller may then change them. */
static inline void tiny_make(struct tiny *t)
{
	u32 l;

	tiny_add(t, "model.embed_tokens.weight", t->vocab, t->hidden, 0);
	tiny_add(t, "model.norm.weight", t->hidden, 0, 1.0f);
	if (!t->tied)
		tiny_add(t, "lm_head.weight", t->vocab, t->hidden, 0);
	for (l = 0; l < t->layers; l++)
		tiny_add_layer(t, l);
}

static inline void tiny_free(struct tiny *t)
{
	u32 i;

	for (i = 0; i < t->nr_tensors; i++)
		free(t->tensors[i].data);
	t->nr_tensors = 0;
}

static inline void tiny_put(FILE *f, enum tiny_type type, float v)
{
	u32 bits, exp;
	u16 half;

	memcpy(&bits, &v, sizeof(bits));
	if (type == TINY_F32) {
		fwrite(&bits, 4, 1, f);
		return;
	}
	exp = bits >> 23 & 255;
	half = bits >> 16;
	if (type == TINY_F16 && exp > 112)
		half = (bits >> 16 & 0x8000) | (exp - 112) << 10 |
		       (bits >> 13 & 1023);
	else if (type == TINY_F16)
		half = (bits >> 16 & 0x8000) |
		       (u16)((v < 0 ? -v : v) * 0x1p24f);
	fwrite(&half, 2, 1, f);
}

static inline u32 tiny_elems(const struct tiny_tensor *x)
{
	return x->rows * (x->cols ? x->cols : 1);
}

/* Write the header of one shard, which has every @t->shards-th tensor. */
static inline u64 tiny_header(const struct tiny *t, u32 shard, char *head)
{
	static const char * const dtype[] = { "F32", "BF16", "F16" };
	const u32 size = t->type == TINY_F32 ? 4 : 2;
	const struct tiny_tensor *x;
	u64 at = 0, n = 0, end;
	char shape[32];
	u32 i;

	for (i = shard; i < t->nr_tensors; i += t->shards, at = end) {
		x = &t->tensors[i];
		end = at + (u64)tiny_elems(x) * size;
		if (x->cols)
			snprintf(shape, sizeof(shape), "%u,%u", x->rows,
				 x->cols);
		else
			snprintf(shape, sizeof(shape), "%u", x->rows);
		n += sprintf(head + n, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":"
			     "[%s],\"data_offsets\":[%llu,%llu]}",
			     at ? ',' : '{', x->name, dtype[t->type], shape,
			     (unsigned long long)at, (unsigned long long)end);
	}
	n += sprintf(head + n, "}");
	while (n % 8 != (t->odd ? 5 : 0))
		n += sprintf(head + n, " ");
	return n;
}

static inline void tiny_write_shard(const struct tiny *t, u32 shard,
				    const char *file)
{
	static char head[32768];
	const u64 len = tiny_header(t, shard, head);
	FILE *f = dir_open(file, "w");
	u32 i, j;

	fwrite(&len, sizeof(len), 1, f);
	fwrite(head, 1, len, f);
	for (i = shard; i < t->nr_tensors; i += t->shards)
		for (j = 0; j < tiny_elems(&t->tensors[i]); j++)
			tiny_put(f, t->type, t->tensors[i].data[j]);
	ck_assert_int_eq(fclose(f), 0);
}

static inline void tiny_write_config(const struct tiny *t)
{
	FILE *f = dir_open("config.json", "w");

	fprintf(f, "{%s\"architectures\":[\"%s\"],\"vocab_size\":%u,"
		"\"hidden_size\":%u,\"intermediate_size\":%u,"
		"\"num_hidden_layers\":%u,\"num_attention_heads\":%u,"
		"\"num_key_value_heads\":%u,\"head_dim\":%u,"
		"\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,"
		"\"tie_word_embeddings\":%s}", t->more ? t->more : "",
		t->arch, t->vocab, t->hidden, t->inter, t->layers, t->heads,
		t->kv_heads, t->head_dim, t->tied ? "true" : "false");
	ck_assert_int_eq(fclose(f), 0);
}

/* Write the folder. */
static inline void tiny_write(const struct tiny *t)
{
	char name[40];
	FILE *f;
	u32 i;

	tiny_write_config(t);
	if (t->shards == 1) {
		tiny_write_shard(t, 0, "model.safetensors");
		return;
	}
	f = dir_open("model.safetensors.index.json", "w");
	fprintf(f, "{\"metadata\":{},\"weight_map\":");
	for (i = 0; i < t->nr_tensors; i++)
		fprintf(f, "%c\"%s\":\"model-%u.safetensors\"",
			i ? ',' : '{', t->tensors[i].name, i % t->shards);
	fprintf(f, "}}");
	ck_assert_int_eq(fclose(f), 0);
	for (i = 0; i < t->shards; i++) {
		snprintf(name, sizeof(name), "model-%u.safetensors", i);
		tiny_write_shard(t, i, name);
	}
}

#endif /* TESTS_MODEL_FIXTURE_H */

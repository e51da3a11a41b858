// SPDX-License-Identifier: Apache-2.0
/*
 * adapter.c - read an adapter, check it, and lay it out in blocks
 *
 * An adapter is a list of spots, which are sites of layers with a pair.  Loading checks names
 * and shapes against the model and reads all numbers once, for the digest and for numbers
 * that are not finite.
 *
 * In blocks the matrices follow one another in the order of layers, sites, A, B.  Each begins
 * at a multiple of ADAPTER_ALIGN, and in the next block if it would not fit the rest of this
 * one.  Places follow from sizes alone, so they are computed when they are needed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/lib/folder.h"
#include "runtime/model/adapter_internal.h"
#include "runtime/model/error.h"

#define PICKLE		"adapter_model.bin"	/* the format before safetensors */

#define MODULE_MAX	256u

#define MIN_BLOCK	(64ull << 10)
#define EASY_BLOCK	(1ull << 20)
#define EASY_RANK	16u

static_assert(ADAPTER_DIGEST_LEN == KVMM_IDENTITY_LEN, "one digest");

/* ---- files ---- */

static bool file_is_there(const char *dir, const char *name)
{
	char *path;
	bool there;

	if (asprintf(&path, "%s/%s", dir, name) < 0)
		return false;
	there = !access(path, F_OK);
	free(path);
	return there;
}

static int check_files(const char *dir, struct model_error *err)
{
	const bool tensors = file_is_there(dir, ADAPTER_TENSORS);

	if (!tensors && file_is_there(dir, PICKLE))
		return model_fail(err, -EOPNOTSUPP, "%s/" PICKLE ": is a program and no list of "
				  "numbers: load the adapter with PEFT and save it with "
				  "save_pretrained(), which writes " ADAPTER_TENSORS, dir);
	if (tensors && file_is_there(dir, ADAPTER_CONFIG))
		return 0;
	return model_fail(err, -ENOENT, "%s: %s is missing: name a folder that PEFT saved, with "
			  ADAPTER_CONFIG " and " ADAPTER_TENSORS, dir,
			  tensors ? ADAPTER_CONFIG : ADAPTER_TENSORS);
}

/* Was the header of @file read from the file that @a->fd is? */
static bool same_file(const struct adapter *a, const struct st_file *file)
{
	const u8 *map = file->map;
	u8 part[4096];
	u64 len, at, n;

	memcpy(&len, map, sizeof(len));
	len += sizeof(len);
	for (at = 0; at < len; at += n) {
		n = min(len - at, (u64)sizeof(part));
		if (pread(a->fd, part, n, (off_t)at) != (ssize_t)n || memcmp(part, map + at, n))
			return false;
	}
	return true;
}

static int open_tensors(struct adapter *a, struct st_file **file, struct model_error *err)
{
	char *path;
	u64 size;
	int ret;

	if (asprintf(&path, "%s/" ADAPTER_TENSORS, a->dir) < 0)
		return model_fail_errno(err, -ENOMEM, a->dir, ADAPTER_TENSORS);
	ret = st_open_header(path, file, err);
	if (!ret) {
		a->fd = folder_open(path, &size);
		if (a->fd < 0 || size != (*file)->size || !same_file(a, *file))
			ret = model_fail(err, -EINVAL, "%s: was replaced while it was read: "
					 "load the adapter again", path);
	}
	free(path);
	return ret;
}

static u32 number_bytes(enum st_dtype dtype)
{
	return dtype == ST_F32 ? 4 : 2;
}

/* ---- checks ---- */

/* The arguments of checks. */
struct check {
	const struct adapter_config	*config;
	u32				max_rank;
	struct model_error		*err;
};

static int check_shape(const struct check *c, const struct st_tensor *t, u64 rows, u64 cols)
{
	const u64 want[2] = { rows, cols };
	char has[160], wants[64];

	if (t->dtype != ST_F32 && t->dtype != ST_F16 && t->dtype != ST_BF16)
		return model_fail(c->err, -EOPNOTSUPP, "%s: tensor " MODEL_NAME_FMT ": dtype %s "
				  "is not supported: save the adapter in F32, F16 or BF16",
				  t->path, t->name, st_type_name(t));
	if (t->nr_dims == 2 && !memcmp(t->shape, want, sizeof(want)))
		return 0;
	return model_fail(c->err, -EINVAL, "%s: tensor " MODEL_NAME_FMT ": shape is %s, the model "
			  "asks for %s: this adapter is for another model", t->path, t->name,
			  st_shape_str(t->shape, t->nr_dims, has, sizeof(has)),
			  st_shape_str(want, 2, wants, sizeof(wants)));
}

/* The name of the module of tensor A, as the keys of patterns mean it. */
static const char *module_of(const struct st_tensor *t, char *to, size_t size)
{
	const char *name = t->name + strlen(ADAPTER_PREFIX);

	snprintf(to, size, "%.*s", (int)(strstr(name, ".lora_A.") - name), name);
	return to;
}

/* Both tensors must have the rank that the configuration says. */
static int check_rank(const struct check *c, const struct adapter_module *m, u32 rank)
{
	const struct st_tensor *a = m->t[0], *b = m->t[1];
	const u64 in_a = a->nr_dims == 2 ? a->shape[0] : rank;
	const u64 in_b = b->nr_dims == 2 ? b->shape[1] : rank;

	if (in_a != rank || in_b != rank)
		return model_fail(c->err, -EINVAL, "%s: tensor " MODEL_NAME_FMT ": the rank is "
				  "%llu, " ADAPTER_CONFIG " says %u: copy both files again",
				  a->path, in_a != rank ? a->name : b->name,
				  (unsigned long long)(in_a != rank ? in_a : in_b), rank);
	if (rank > c->max_rank)
		return model_fail(c->err, -EINVAL, "%s: tensor " MODEL_NAME_FMT ": rank %u is above "
				  "%u: raise --max-lora-rank", a->path, a->name, rank,
				  c->max_rank);
	return 0;
}

static int check_module(const struct check *c, const struct adapter_module *m)
{
	const struct st_tensor *one = m->t[0] ? m->t[0] : m->t[1];
	char name[MODULE_MAX];
	u32 rank;
	int ret;

	if (!m->t[0] || !m->t[1])
		return model_fail(c->err, -EINVAL, "%s: tensor " MODEL_NAME_FMT ": its lora_%c is "
				  "missing: copy the file again", one->path, one->name,
				  m->t[0] ? 'B' : 'A');
	rank = adapter_config_rank(c->config, module_of(m->t[0], name, sizeof(name)));
	ret = check_rank(c, m, rank);
	if (!ret)
		ret = check_shape(c, m->t[0], rank, m->cols);
	return ret ? ret : check_shape(c, m->t[1], m->rows, rank);
}

/* ---- spots ---- */

static struct adapter_matrix matrix_of(const struct st_file *file, const struct st_tensor *t,
				       u64 first, u64 rows, bool turn)
{
	const u64 at = (u64)((const u8 *)t->data - (const u8 *)file->map);

	return (struct adapter_matrix){
		.at = at + first * t->shape[1] * number_bytes(t->dtype),
		.dtype = t->dtype, .rows = rows, .cols = t->shape[1], .turn = turn,
	};
}

/* Add the sites that a matrix of the model fills; several of them share A. */
static void add_spots(struct adapter *a, const struct check *c, const struct st_file *file,
		      const struct adapter_module *m, const struct model_config *cfg)
{
	enum adapter_site sites[WEIGHT_PARTS];
	u64 rows[WEIGHT_PARTS], first = 0;
	const u32 rank = (u32)m->t[0]->shape[0];
	const u32 nr = adapter_sites(cfg, m->spec, m->layer, sites, rows);
	char name[MODULE_MAX];
	float scale;
	u32 i;

	scale = adapter_config_scale(c->config, module_of(m->t[0], name, sizeof(name)), rank);
	for (i = 0; i < nr; first += rows[i++])
		a->spots[a->nr++] = (struct adapter_spot){
			.layer = m->layer, .site = sites[i], .rank = rank,
			.scale = scale,
			.m = { matrix_of(file, m->t[0], 0, rank, false),
			       matrix_of(file, m->t[1], first, rows[i], true) },
		};
}

static int spot_cmp(const void *pa, const void *pb)
{
	const struct adapter_spot *a = pa, *b = pb;

	if (a->layer != b->layer)
		return a->layer < b->layer ? -1 : 1;
	return (int)a->site - (int)b->site;
}

/* All spots of the modules that have tensors. */
static int make_spots(struct adapter *a, const struct check *c, const struct st_file *file,
		      const struct adapter_modules *m)
{
	u32 i;
	int ret;

	a->spots = calloc((size_t)m->nr * WEIGHT_PARTS + 1, sizeof(*a->spots));
	if (!a->spots)
		return model_fail_errno(c->err, -ENOMEM, a->dir, "load");
	for (i = 0; i < m->nr; i++) {
		if (!m->list[i].t[0] && !m->list[i].t[1])
			continue;
		ret = check_module(c, &m->list[i]);
		if (ret)
			return ret;
		add_spots(a, c, file, &m->list[i], m->cfg);
	}
	if (!a->nr)
		return model_fail(c->err, -EINVAL, "%s: has no pair of tensors: use an adapter "
				  "that PEFT saved", file->path);
	qsort(a->spots, a->nr, sizeof(*a->spots), spot_cmp);
	return 0;
}

/* ---- numbers ---- */

/* The number at @at of the file is not finite. */
static int bad_number(const struct adapter *a, const struct st_file *file, u64 at,
		      struct model_error *err)
{
	const u8 *data = (const u8 *)file->map + at;
	const struct st_tensor *t = file->tensors;

	while ((u64)(data - (const u8 *)t->data) >= t->nr_bytes)
		t++;
	return model_fail(err, -EINVAL, "%s: tensor " MODEL_NAME_FMT ": element %llu is not finite"
			  "%s: use an adapter with numbers", file->path, t->name,
			  (unsigned long long)(data - (const u8 *)t->data) / number_bytes(t->dtype),
			  a->type == KERN_BF16 ? " in bf16" : "");
}

/* Read a matrix for the digest. */
static int read_matrix(struct adapter *a, struct adapter_matrix *m, const struct st_file *file,
		       struct kvmm_identity *id, struct model_error *err)
{
	const u64 shape[2] = { m->rows, m->cols };
	u64 bad;
	int ret;

	kvmm_identity_add(id, "shape", shape, sizeof(shape));
	ret = adapter_matrix_read(a, m, NULL, id, &m->sum, &bad);
	if (ret)
		return model_fail_errno(err, ret, file->path, "cannot read");
	a->info.params += m->rows * m->cols;
	a->info.bytes += ALIGN_UP(adapter_matrix_bytes(a, m), (u64)ADAPTER_ALIGN);
	if (bad == ADAPTER_ALL_FINITE)
		return 0;
	return bad_number(a, file, m->at + bad * number_bytes(m->dtype), err);
}

/* Read all numbers, and fill in @a->info. */
static int read_numbers(struct adapter *a, const struct st_file *file, struct model_error *err)
{
	struct kvmm_identity id;
	struct adapter_spot *s;
	u32 i;
	int ret = 0;

	kvmm_identity_init(&id);
	kvmm_identity_add(&id, "type", &a->type, sizeof(a->type));
	for (i = 0; i < a->nr && !ret; i++) {
		s = &a->spots[i];
		kvmm_identity_add(&id, "layer", &s->layer, sizeof(s->layer));
		kvmm_identity_add(&id, "site", &s->site, sizeof(s->site));
		kvmm_identity_add(&id, "scale", &s->scale, sizeof(s->scale));
		ret = read_matrix(a, &s->m[0], file, &id, err);
		if (!ret)
			ret = read_matrix(a, &s->m[1], file, &id, err);
		a->info.rank = max(a->info.rank, s->rank);
	}
	kvmm_identity_final(&id, a->info.digest);
	a->info.sites = a->nr;
	return ret;
}

/* ---- loading ---- */

/* Read the file of numbers. */
static int load_tensors(struct adapter *a, const struct model_config *cfg, const struct check *c)
{
	struct adapter_modules modules;
	struct st_file *file = NULL;
	int ret;

	ret = open_tensors(a, &file, c->err);
	if (ret) {
		st_close(file);
		return ret;
	}
	ret = adapter_modules_list(cfg, &modules);
	if (ret)
		model_fail_errno(c->err, ret, a->dir, "load");
	else
		ret = adapter_modules_bind(&modules, file, c->err);
	if (!ret)
		ret = make_spots(a, c, file, &modules);
	if (!ret)
		ret = read_numbers(a, file, c->err);
	free(modules.list);
	st_close(file);
	return ret;
}

static int load(struct adapter *a, const struct model *model, u32 max_rank,
		struct model_error *err)
{
	struct adapter_config config;
	const struct check c = { .config = &config, .max_rank = max_rank, .err = err };
	int ret;

	ret = check_files(a->dir, err);
	if (ret)
		return ret;
	ret = adapter_config_open(&config, a->dir, err);
	if (!ret)
		ret = load_tensors(a, &model->cfg, &c);
	adapter_config_close(&config);
	return ret;
}

int adapter_load(const struct model *model, const char *dir, u32 max_rank, struct adapter **out,
		 struct model_error *err)
{
	struct adapter *a = calloc(1, sizeof(*a));
	int ret;

	if (!a)
		return model_fail_errno(err, -ENOMEM, dir, "load");
	a->fd = -1;
	a->type = adapter_dtype(model);
	a->pairs = adapter_pairs(model);
	a->dir = strdup(dir);
	a->info.dir = a->dir;
	/* The model has memory for the sums of so many. */
	if (model->max_rank)
		max_rank = min(max_rank, model->max_rank);
	ret = a->dir ? load(a, model, max_rank, err) :
		       model_fail_errno(err, -ENOMEM, dir, "load");
	if (ret)
		adapter_free(a);
	else
		*out = a;
	return ret;
}

void adapter_free(struct adapter *a)
{
	if (!a)
		return;
	if (a->fd >= 0)
		close(a->fd);
	free(a->spots);
	free(a->dir);
	free(a);
}

const struct adapter_info *adapter_info(const struct adapter *a)
{
	return &a->info;
}

/* ---- blocks ---- */

/* The longest side of a matrix that can have a pair; 0: there is none. */
static u64 longest_side(const struct model_config *cfg)
{
	enum adapter_site sites[WEIGHT_PARTS];
	struct adapter_modules m;
	u64 rows[WEIGHT_PARTS], most = 0;
	u32 i, nr;

	if (adapter_modules_list(cfg, &m))
		m.nr = 0;
	for (i = 0; i < m.nr; i++) {
		nr = adapter_sites(cfg, m.list[i].spec, m.list[i].layer, sites, rows);
		while (nr--)
			most = max(most, max(rows[nr], m.list[i].cols));
	}
	free(m.list);
	return most;
}

u64 adapter_block_bytes(const struct model *model, u32 max_rank, struct model_error *err)
{
	const u64 side = longest_side(&model->cfg) *
			 kern_dtype_size(adapter_dtype(model));

	if (!side) {
		model_fail(err, -EOPNOTSUPP, "%s: %s takes no adapters: leave out --lora, or merge "
			   "the adapter into the model", model->dir, model->cfg.arch);
		return 0;
	}
	return max(max(roundup_pow_of_two(side * max_rank), MIN_BLOCK),
		   min(roundup_pow_of_two(4 * side * EASY_RANK), EASY_BLOCK));
}

/**
 * struct place - the place of a matrix
 * @block: the block
 * @at:    offset in the block
 * @bytes: its size
 */
struct place {
	u32	block;
	u64	at;
	u64	bytes;
};

/* Go on to the place of the next matrix; begin with all zero. */
static void place_next(struct place *p, const struct adapter *a, const struct adapter_matrix *m,
		       u64 block_bytes)
{
	p->at = ALIGN_UP(p->at + p->bytes, (u64)ADAPTER_ALIGN);
	p->bytes = adapter_matrix_bytes(a, m);
	if (p->at + p->bytes <= block_bytes)
		return;
	p->block++;
	p->at = 0;
}

u32 adapter_blocks(const struct adapter *a, u64 block_bytes)
{
	struct place p = { 0 };
	u32 i;

	for (i = 0; i < 2 * a->nr; i++)
		place_next(&p, a, &a->spots[i / 2].m[i % 2], block_bytes);
	return p.block + 1;
}

int adapter_write(const struct adapter *a, u64 block_bytes, u32 block, void *to)
{
	const struct adapter_matrix *m;
	struct place p = { 0 };
	u64 end = 0, sum, bad;
	u32 i;
	int ret;

	for (i = 0; i < 2 * a->nr; i++) {
		m = &a->spots[i / 2].m[i % 2];
		place_next(&p, a, m, block_bytes);
		if (p.block < block)
			continue;
		if (p.block > block)
			break;
		memset((u8 *)to + end, 0, p.at - end);
		ret = adapter_matrix_read(a, m, (u8 *)to + p.at, NULL, &sum, &bad);
		if (ret || sum != m->sum)
			return -EIO;
		end = p.at + p.bytes;
	}
	memset((u8 *)to + end, 0, block_bytes - end);
	return 0;
}

void adapter_locate(const struct adapter *a, u64 block_bytes, void *const *blocks,
		    struct adapter_place *place)
{
	const struct adapter_spot *s;
	struct adapter_pair *pair;
	struct place p = { 0 };
	u32 i;

	memset(place->pair, 0, a->pairs * sizeof(*place->pair));
	for (i = 0; i < a->nr; i++) {
		s = &a->spots[i];
		pair = &place->pair[s->layer * NR_ADAPTER_SITES + s->site];
		pair->rank = s->rank;
		pair->scale = s->scale;
		place_next(&p, a, &s->m[0], block_bytes);
		pair->a = (const u8 *)blocks[p.block] + p.at;
		place_next(&p, a, &s->m[1], block_bytes);
		pair->b = (const u8 *)blocks[p.block] + p.at;
	}
}

u32 adapter_pairs(const struct model *model)
{
	return model->cfg.layers * NR_ADAPTER_SITES;
}

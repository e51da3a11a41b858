// SPDX-License-Identifier: Apache-2.0
/*
 * quantized_config.c - "quantization_config" of config.json as schemes
 *
 * A scheme says how the tensors of a matrix are to be read.  Most methods have one
 * scheme; compressed-tensors has one for each of its groups of modules.  Which modules
 * are quantized is what the tensors of the folder say, so lists of modules that stay
 * as they are ("ignore", "modules_to_not_convert") are not needed.
 *
 * Settings of activations are ignored: activations keep their type.
 */
#include <regex.h>
#include <stdio.h>

#include "runtime/model/quantized_internal.h"

#define KEY		"quantization_config"
#define MAX_GROUP	(1u << 20)
#define MAX_PATTERN	256u
#define MAX_REPEATED	4u	/* groups of a pattern that are repeated */

#define REMEDY								\
	"use a model in AWQ, GPTQ, compressed-tensors, fp8 or mxfp4, or one "	\
	"without quantization and --quantization"

static int quant_fail(struct quant_config *q, int code, const char *what,
		      const char *value)
{
	return mj_fail(&q->f, code, KEY, "%s \"%.60s\" is not supported: "
		       REMEDY, what, value);
}

/* A string, with a default. */
static const char *text_of(struct quant_config *q, json_t *obj, const char *key,
			   const char *def)
{
	const char *s = mj_str(&q->f, obj, key);

	return s ? s : def;
}

static struct quant_scheme *scheme_add(struct quant_config *q, enum quant_how how)
{
	struct quant_scheme *s = &q->schemes[q->nr_schemes];

	if (q->nr_schemes == QUANT_MAX_SCHEMES) {
		mj_fail(&q->f, -EOPNOTSUPP, KEY, "has more than %u groups: "
			REMEDY, QUANT_MAX_SCHEMES);
		return NULL;
	}
	q->nr_schemes++;
	memset(s, 0, sizeof(*s));
	s->how = how;
	s->bits = 8;
	return s;
}

/* A size of groups; -1 means all columns. */
static u32 group_of(struct quant_config *q, json_t *obj, const char *key)
{
	const json_t *v = mj_get(obj, key);
	u32 group = 0;

	if (json_is_number(v) && json_number_value(v) == -1)
		return 0;
	mj_u32(&q->f, obj, key, 1, MAX_GROUP, &group);
	if (!q->f.ret && group % 32)
		mj_fail(&q->f, -EOPNOTSUPP, KEY, "%s %u is not supported: use a "
			"model with a multiple of 32", key, group);
	return group;
}

static void check_bits(struct quant_config *q, u32 bits, bool four, bool eight)
{
	if (!q->f.ret && !((bits == 4 && four) || (bits == 8 && eight)))
		mj_fail(&q->f, -EOPNOTSUPP, KEY, "weights of %u bits are not "
			"supported by this method: " REMEDY, bits);
}

static void read_awq(struct quant_config *q, json_t *obj)
{
	struct quant_scheme *s = scheme_add(q, QUANT_AWQ);
	const char *version = text_of(q, obj, "version", "gemm");
	u32 bits = 4;

	mj_u32(&q->f, obj, "bits", 1, 64, &bits);
	mj_u32(&q->f, obj, "w_bit", 1, 64, &bits);
	check_bits(q, bits, true, false);
	if (strcasecmp(version, "gemm"))
		quant_fail(q, -EOPNOTSUPP, "version", version);
	s->bits = bits;
	/* Folders without "zero_point" store the middle, 8, as all zero points. */
	s->per_row = s->zeros = true;
	s->group = group_of(q, obj, mj_get(obj, "group_size") ? "group_size" :
							      "q_group_size");
}

/*
 * Settings of single modules.  Modules that are left out need none; others have a
 * form of their own.
 */
static void check_dynamic(struct quant_config *q, json_t *obj)
{
	json_t *v = mj_get(obj, "dynamic"), *entry;
	const char *key;

	json_object_foreach(v, key, entry)
		if (key[0] != '-')
			quant_fail(q, -EOPNOTSUPP, "dynamic", key);
}

static void read_gptq(struct quant_config *q, json_t *obj, bool minus_one)
{
	struct quant_scheme *s = scheme_add(q, QUANT_GPTQ);
	const char *format = text_of(q, obj, "format", "gptq");
	const char *pack = text_of(q, obj, "pack_dtype", "int32");
	bool marlin = false;

	format = text_of(q, obj, "checkpoint_format", format);
	mj_u32(&q->f, obj, "bits", 1, 64, &s->bits);
	mj_bool(&q->f, obj, "is_marlin_format", &marlin);
	mj_bool(&q->f, obj, "desc_act", &s->needs_idx);
	check_bits(q, s->bits, true, true);
	if (strcmp(format, "gptq") && strcmp(format, "gptq_v2"))
		quant_fail(q, -EOPNOTSUPP, "checkpoint_format", format);
	if (marlin)
		quant_fail(q, -EOPNOTSUPP, "checkpoint_format", "marlin");
	if (strcmp(pack, "int32"))
		quant_fail(q, -EOPNOTSUPP, "pack_dtype", pack);
	check_dynamic(q, obj);
	s->per_row = s->zeros = s->sorted = true;
	s->zero_less_one = minus_one && !strcmp(format, "gptq");
	s->group = group_of(q, obj, "group_size");
}

/* Files of AutoRound are those of GPTQ or AWQ. */
static void read_auto_round(struct quant_config *q, json_t *obj)
{
	const char *packing = text_of(q, obj, "packing_format", "");
	json_t *extra = mj_get(obj, "extra_config");

	if (json_object_size(extra))
		quant_fail(q, -EOPNOTSUPP, "extra_config",
			   json_object_iter_key(json_object_iter(extra)));
	else if (!strcmp(packing, "auto_round:auto_gptq"))
		read_gptq(q, obj, true);
	else if (!strcmp(packing, "auto_round:auto_awq"))
		read_awq(q, obj);
	else
		quant_fail(q, -EOPNOTSUPP, "packing_format", packing);
}

/* Two whole numbers: rows and columns that share a scale. */
static void read_block(struct quant_config *q, json_t *obj, const char *key,
		       struct quant_scheme *s)
{
	json_t *v = mj_get(obj, key);
	const double rows = json_number_value(json_array_get(v, 0));
	const double cols = json_number_value(json_array_get(v, 1));

	if (!json_is_array(v) || json_array_size(v) != 2 || rows < 1 || cols < 1 ||
	    rows > MAX_GROUP || cols > MAX_GROUP || (u32)rows != rows ||
	    (u32)cols != cols) {
		mj_fail(&q->f, -EINVAL, KEY, "%s is not two sizes: copy the file "
			"again", key);
		return;
	}
	if ((u32)cols % 32)
		mj_fail(&q->f, -EOPNOTSUPP, KEY, "%s with %u columns is not "
			"supported: use a model with a multiple of 32", key,
			(u32)cols);
	s->block_rows = rows;
	s->group = cols;
}

static void read_fp8(struct quant_config *q, json_t *obj)
{
	struct quant_scheme *s = scheme_add(q, QUANT_PLAIN);
	const char *fmt = text_of(q, obj, "fmt", "e4m3");

	if (strcmp(fmt, "e4m3"))
		quant_fail(q, -EOPNOTSUPP, "fmt", fmt);
	s->is_float = true;
	if (mj_get(obj, "weight_block_size"))
		read_block(q, obj, "weight_block_size", s);
}

static void read_fbgemm(struct quant_config *q, json_t *obj)
{
	struct quant_scheme *s = scheme_add(q, QUANT_PLAIN);

	s->is_float = s->per_row = true;
}

static void read_mxfp4(struct quant_config *q, json_t *obj)
{
	scheme_add(q, QUANT_MXFP4)->bits = 4;
}

/* ---- compressed-tensors ---- */

static const struct {
	const char	*name;
	enum quant_how	how;
} formats[] = {
	{ "pack-quantized",	QUANT_PACKED },
	{ "int-quantized",	QUANT_PLAIN },
	{ "float-quantized",	QUANT_PLAIN },
	{ "naive-quantized",	QUANT_PLAIN },
};

/* Which columns and rows share a scale. */
static void read_strategy(struct quant_config *q, json_t *w,
			  struct quant_scheme *s)
{
	const char *strategy = text_of(q, w, "strategy", NULL);

	if (!strategy)
		strategy = !mj_get(w, "group_size") ? "tensor" :
			   json_number_value(mj_get(w, "group_size")) == -1 ?
			   "channel" : "group";
	if (!strcmp(strategy, "block")) {
		read_block(q, w, "block_structure", s);
		return;
	}
	s->per_row = strcmp(strategy, "tensor");
	if (!strcmp(strategy, "group"))
		s->group = group_of(q, w, "group_size");
	else if (s->per_row && strcmp(strategy, "channel"))
		quant_fail(q, -EOPNOTSUPP, "strategy", strategy);
}

static void read_weights(struct quant_config *q, json_t *w,
			 struct quant_scheme *s)
{
	const char *type = text_of(q, w, "type", "int");
	const json_t *order = mj_get(w, "actorder");
	bool symmetric = true;

	mj_u32(&q->f, w, "num_bits", 1, 64, &s->bits);
	mj_bool(&q->f, w, "symmetric", &symmetric);
	s->is_float = !strcasecmp(type, "float");
	if (!s->is_float && strcasecmp(type, "int"))
		quant_fail(q, -EOPNOTSUPP, "type", type);
	check_bits(q, s->bits, s->how == QUANT_PACKED && !s->is_float,
		   s->how != QUANT_PACKED || !s->is_float);
	s->zeros = !symmetric;
	s->sorted = order && !json_is_false(order);
	read_strategy(q, w, s);
}

/* One group of modules; without weights only activations are quantized. */
static void read_group(struct quant_config *q, json_t *group, const char *format)
{
	json_t *w = mj_get(group, "weights");
	struct quant_scheme *s = NULL;
	u32 i;

	if (!json_is_object(group))
		mj_fail(&q->f, -EINVAL, KEY, "a group of config_groups is no "
			"object: copy the file again");
	format = text_of(q, group, "format", format);
	if (!w || !strcmp(format, "dense"))
		return;
	for (i = 0; i < ARRAY_SIZE(formats); i++)
		if (!strcmp(format, formats[i].name))
			s = scheme_add(q, formats[i].how);
	if (!s) {
		quant_fail(q, -EOPNOTSUPP, "format", format);
		return;
	}
	s->targets = mj_get(group, "targets");
	if (s->targets && !json_is_array(s->targets))
		mj_fail(&q->f, -EINVAL, KEY, "targets is no list: copy the file "
			"again");
	read_weights(q, w, s);
}

/* Parts of compressed-tensors that change weights or products. */
static void check_compressed(struct quant_config *q, json_t *obj)
{
	json_t *sparsity = mj_get(obj, "sparsity_config");
	json_t *turn = mj_get(obj, "transform_config");
	const char *format = text_of(q, sparsity, "format", "dense");

	if (strcmp(format, "dense"))
		quant_fail(q, -EOPNOTSUPP, "sparsity_config", format);
	if (json_object_size(mj_get(turn, "config_groups")))
		quant_fail(q, -EOPNOTSUPP, "transform_config", "config_groups");
}

static void read_compressed(struct quant_config *q, json_t *obj)
{
	const char *format = text_of(q, obj, "format", "dense");
	json_t *groups = mj_get(obj, "config_groups"), *group;
	const char *name;

	check_compressed(q, obj);
	json_object_foreach(groups, name, group) {
		if (q->f.ret)
			return;
		read_group(q, group, format);
	}
}

/* ---- methods ---- */

static void read_gptq_plain(struct quant_config *q, json_t *obj)
{
	read_gptq(q, obj, true);
}

static const struct {
	const char	*name;
	void		(*read)(struct quant_config *q, json_t *obj);
} methods[] = {
	{ "awq",		read_awq },
	{ "gptq",		read_gptq_plain },
	{ "fp8",		read_fp8 },
	{ "fbgemm_fp8",		read_fbgemm },
	{ "compressed-tensors",	read_compressed },
	{ "mxfp4",		read_mxfp4 },
	{ "auto-round",		read_auto_round },
	{ "intel/auto-round",	read_auto_round },
};

static void read_method(struct quant_config *q, json_t *obj)
{
	const char *method = text_of(q, obj, "quant_method", NULL);
	u32 i;

	if (!json_is_object(obj)) {
		mj_fail(&q->f, -EINVAL, KEY, "is no object: copy the file again");
		return;
	}
	if (!method) {
		mj_fail(&q->f, -EOPNOTSUPP, KEY, "quant_method is missing: "
			REMEDY);
		return;
	}
	for (i = 0; i < ARRAY_SIZE(methods); i++)
		if (!strcmp(method, methods[i].name))
			break;
	if (i == ARRAY_SIZE(methods))
		quant_fail(q, -EOPNOTSUPP, "quant_method", method);
	else
		methods[i].read(q, obj);
}

int quant_config_open(struct quant_config *q, const char *dir,
		      struct model_error *err)
{
	json_t *obj;
	int ret;

	memset(q, 0, sizeof(*q));
	ret = mj_open(&q->f, dir, "config.json", JSON_DECODE_INT_AS_REAL, err);
	if (ret)
		return ret;
	obj = mj_top(&q->f, KEY);
	q->there = obj;
	if (obj)
		read_method(q, obj);
	return q->f.ret;
}

void quant_config_close(struct quant_config *q)
{
	mj_close(&q->f);
}

/* ---- which modules ---- */

static bool is_repeat(char c)
{
	return c == '*' || c == '+' || c == '?';
}

/*
 * Is @p compiled soon?  regcomp() takes exponential time for a repeat of a repeat, and
 * for many repeated groups that may be empty.  So a repeated group holds no repeat, and
 * there are few of them.  A lazy repeat ("*?") is one repeat.
 */
static bool pattern_is_quick(const char *p)
{
	u64 repeats = 0;	/* bit n: the open group of depth n holds a repeat */
	u32 depth = 0, groups = 0;
	bool set = false;

	for (; *p; p++) {
		set = *p == '[' || (set && *p != ']');
		if (*p == '\\' && p[1]) {
			p++;
		} else if (set) {
			continue;
		} else if (*p == '(') {
			if (++depth > 60)
				return false;
			repeats &= ~(1ull << depth);
			p += p[1] == '?';
		} else if (*p == ')' && depth) {
			if ((p[1] == '*' || p[1] == '+') &&
			    (repeats >> depth & 1 || ++groups > MAX_REPEATED))
				return false;
			repeats |= (repeats >> depth & 1) << (depth - 1);
			depth--;
		} else if (is_repeat(*p)) {
			p += p[1] == '?';
			if (is_repeat(p[1]))
				return false;
			repeats |= 1ull << depth;
		}
	}
	return true;
}

/*
 * A pattern of Python as one of POSIX.  Patterns are not trusted: those that could
 * take much time or memory, and those that POSIX does not know, are refused.
 */
static bool pattern_translate(const char *p, char *to)
{
	char *end = to + MAX_PATTERN;
	bool set = false;

	if (!pattern_is_quick(p))
		return false;
	to = stpcpy(to, "^(");
	for (; *p; p++) {
		set = *p == '[' || (set && *p != ']');
		if (to + 5 > end || *p == '{' || (*p == '\\' && set) ||
		    (*p == '(' && p[1] == '?' && p[2] != ':'))
			return false;
		if (*p == '\\' && p[1] == 'd') {
			to = stpcpy(to, "[0-9]");
			p++;
		} else if (*p == '\\') {
			if (!p[1] || (p[1] >= '0' && p[1] <= '9'))
				return false;
			*to++ = *p++;
			*to++ = *p;
		} else {
			*to++ = *p;
			p += *p == '(' && p[1] == '?' ? 2 : 0;
		}
	}
	strcpy(to, ")");
	return true;
}

static bool pattern_matches(struct quant_config *q, const char *pattern,
			    const char *name)
{
	char posix[MAX_PATTERN + 16];
	regex_t re;
	bool hit;

	if (!pattern_translate(pattern, posix) ||
	    regcomp(&re, posix, REG_EXTENDED | REG_NOSUB)) {
		quant_fail(q, -EOPNOTSUPP, "target", pattern);
		return false;
	}
	hit = !regexec(&re, name, 0, NULL, 0);
	regfree(&re);
	return hit;
}

/* How well a target names a module: by name 3, by a pattern 2, by its kind 1. */
static u32 target_rank(struct quant_config *q, const char *target,
		       const char *name)
{
	if (!strcmp(target, name))
		return 3;
	if (!strncmp(target, "re:", 3))
		return pattern_matches(q, target + 3, name) ? 2 : 0;
	return !strcmp(target, "Linear");
}

static u32 scheme_rank(struct quant_config *q, const struct quant_scheme *s,
		       const char *name)
{
	const char *target;
	u32 best = s->targets ? 0 : 1, rank;
	size_t i;
	json_t *v;

	json_array_foreach(s->targets, i, v) {
		target = json_string_value(v);
		rank = target ? target_rank(q, target, name) : 0;
		best = max(best, rank);
	}
	return best;
}

const struct quant_scheme *quant_scheme_of(struct quant_config *q,
					   enum quant_how how, const char *name,
					   u32 len)
{
	const struct quant_scheme *best = NULL;
	char module[256];
	u32 i, rank, most = 0;

	if (len >= sizeof(module))
		return NULL;
	memcpy(module, name, len);
	module[len] = '\0';
	for (i = 0; i < q->nr_schemes && !q->f.ret; i++) {
		if (q->schemes[i].how != how)
			continue;
		rank = q->nr_schemes == 1 ? 1 :
		       scheme_rank(q, &q->schemes[i], module);
		if (rank > most) {
			most = rank;
			best = &q->schemes[i];
		}
	}
	return best;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * adapter_modules.c - names of an adapter's tensors, and the sites they mean
 *
 * PEFT names a pair by the module of the model in Hugging Face's program, which is also the
 * name of its matrix in a folder.  The tables of layout.c have these names, and the places
 * of the decoder that a matrix fills; so families have no names of their own here.  GGUF
 * files have the layout of their family's folders.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/adapter_internal.h"
#include "runtime/model/error.h"
#include "runtime/model/names.h"

#define TAKES	"adapters of q, k, v and o, and of gate, up and down of MLPs are supported"
#define OTHER	"this adapter is for another model"

/* ---- the matrices of the model ---- */

static int list_one(void *arg, const struct weight_at *at)
{
	struct adapter_modules *m = arg;
	struct adapter_module *new;

	if (!at->cols || at->layer == WEIGHT_TOP || at->spec->of != OF_LAYER ||
	    !name_ends(at->name, ".weight"))
		return 0;
	if (m->nr == m->room) {
		m->room = m->room ? 2 * m->room : 256;
		new = realloc(m->list, m->room * sizeof(*new));
		if (!new)
			return -ENOMEM;
		m->list = new;
	}
	new = &m->list[m->nr++];
	memset(new, 0, sizeof(*new));
	memcpy(new->name, at->name, strlen(at->name) - strlen(".weight"));
	new->spec = at->spec;
	new->layer = at->layer;
	new->rows = at->rows;
	new->cols = at->cols;
	return 0;
}

static int module_cmp(const void *a, const void *b)
{
	return strcmp(((const struct adapter_module *)a)->name,
		      ((const struct adapter_module *)b)->name);
}

int adapter_modules_list(const struct model_config *cfg, struct adapter_modules *m)
{
	int ret;

	*m = (struct adapter_modules){ .cfg = cfg };
	ret = weights_walk(cfg, 0, list_one, m);
	if (!ret)
		qsort(m->list, m->nr, sizeof(*m->list), module_cmp);
	return ret;
}

/* The site of a place in a layer; NR_ADAPTER_SITES: none. */
static enum adapter_site site_at(size_t offset)
{
	static const struct {
		size_t			offset;
		enum adapter_site	site;
	} sites[] = {
		{ offsetof(struct model_layer, q),	  ADAPTER_Q },
		{ offsetof(struct model_layer, k),	  ADAPTER_K },
		{ offsetof(struct model_layer, v),	  ADAPTER_V },
		{ offsetof(struct model_layer, qkv),	  ADAPTER_QKV },
		{ offsetof(struct model_layer, o),	  ADAPTER_O },
		{ offsetof(struct model_layer, mlp.gate), ADAPTER_GATE },
		{ offsetof(struct model_layer, mlp.up),	  ADAPTER_UP },
		{ offsetof(struct model_layer, mlp.down), ADAPTER_DOWN },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(sites); i++)
		if (sites[i].offset == offset)
			return sites[i].site;
	return NR_ADAPTER_SITES;
}

u32 adapter_sites(const struct model_config *cfg, const struct weight_spec *spec, u32 layer,
		  enum adapter_site sites[WEIGHT_PARTS], u64 rows[WEIGHT_PARTS])
{
	struct weight_part parts[WEIGHT_PARTS];
	u32 nr, i;

	if (cfg->latent.rank || config_is_recurrent(cfg, layer) || spec->of != OF_LAYER ||
	    spec->cols == DIM_NONE)
		return 0;
	nr = weight_parts(cfg, spec, parts);
	for (i = 0; i < nr; i++) {
		sites[i] = site_at(parts[i].offset);
		rows[i] = parts[i].rows;
		if (sites[i] == NR_ADAPTER_SITES)
			return 0;
	}
	return nr;
}

/* ---- names of tensors ---- */

/**
 * struct name - the parts of a tensor's name
 * @module: without ADAPTER_PREFIX
 * @which:  0: A, 1: B
 */
struct name {
	char	module[256];
	u32	which;
};

static int bad_name(const struct st_tensor *t, int code, const char *why,
		    struct model_error *err)
{
	return model_fail(err, code, "%s: tensor " MODEL_NAME_FMT ": %s", t->path, t->name, why);
}

/* A name that is none of a pair's. */
static int refuse_name(const struct st_tensor *t, struct model_error *err)
{
	static const struct {
		const char	*part;
		const char	*why;
	} known[] = {
		{ ".lora_embedding_", "pairs of embeddings are not supported: train without "
		  "embed_tokens" },
		{ ".lora_magnitude_vector", "DoRA is not supported: train without use_dora" },
		{ ".lora_B.bias", "biases of pairs are not supported: train without lora_bias" },
		{ ".modules_to_save", "whole modules are replaced, and only pairs are supported: "
		  "train without modules_to_save" },
		{ ".base_layer.", "pairs of embeddings and of the output matrix are not supported: "
		  "train without them in target_modules" },
		{ "lm_head.", "the output matrix is replaced, and only pairs are supported: save "
		  "without save_embedding_layers" },
		{ "embed_tokens.", "the embedding is replaced, and only pairs are supported: save "
		  "without save_embedding_layers" },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(known); i++)
		if (strstr(t->name, known[i].part))
			return bad_name(t, -EOPNOTSUPP, known[i].why, err);
	return bad_name(t, -EOPNOTSUPP, "is no tensor of a pair (\"" ADAPTER_PREFIX
			"MODULE.lora_A.weight\", \"...lora_B.weight\"): use an adapter that "
			"PEFT saved", err);
}

/* Take a tensor's name apart: prefix, module, ".lora_A", perhaps ".NAME", ".weight". */
static int parse_name(const struct st_tensor *t, struct name *n, struct model_error *err)
{
	const size_t skip = strlen(ADAPTER_PREFIX), mark = strlen(".lora_A");
	const char *module = t->name + skip, *a, *b, *at, *end;

	if (strncmp(t->name, ADAPTER_PREFIX, skip))
		return refuse_name(t, err);
	a = strstr(module, ".lora_A.");
	b = strstr(module, ".lora_B.");
	at = a ? a : b;
	if (!at || (a && b) || (size_t)(at - module) >= sizeof(n->module))
		return refuse_name(t, err);
	end = at + mark;
	if (strcmp(end, ".weight") && (end[1] == '.' || !strchr(end + 1, '.') ||
				       strcmp(strchr(end + 1, '.'), ".weight")))
		return refuse_name(t, err);
	n->which = !a;
	memcpy(n->module, module, at - module);
	n->module[at - module] = '\0';
	return 0;
}

static struct adapter_module *find_exact(struct adapter_modules *m, const char *name)
{
	struct adapter_module key;

	if (strlen(name) >= sizeof(key.name))
		return NULL;
	strcpy(key.name, name);
	return m->nr ? bsearch(&key, m->list, m->nr, sizeof(*m->list), module_cmp) : NULL;
}

/* By the first prefix of the family, or the second one. */
static struct adapter_module *find_module(struct adapter_modules *m, const char *name)
{
	const struct weight_names *n = weight_names_of(m->cfg->layout);
	struct adapter_module *found = find_exact(m, name);
	char other[512];

	if (found || !n->prefixes[1] ||
	    strncmp(name, n->prefixes[1], strlen(n->prefixes[1])))
		return found;
	snprintf(other, sizeof(other), "%s%s", n->prefixes[0],
		 name + strlen(n->prefixes[1]));
	return find_exact(m, other);
}

/* A tensor of the model that is sought. */
struct sought {
	const char	*name;
	bool		found;
};

static int seek_one(void *arg, const struct weight_at *at)
{
	struct sought *s = arg;
	const size_t len = strlen(s->name);

	s->found = !strncmp(at->name, s->name, len) &&
		   (!at->name[len] || at->name[len] == '.');
	return s->found;
}

/* Is it the output matrix?  The model has no tensor of it if it is the embedding. */
static bool is_head(const struct weight_names *names, const char *module)
{
	const size_t len = strlen(module);

	return !strncmp(names->head, module, len) && !strcmp(names->head + len, ".weight");
}

/* The module is none of a layer's matrices. */
static int refuse_module(const struct adapter_modules *m, const struct st_tensor *t,
			 const struct name *n, struct model_error *err)
{
	const struct weight_names *names = weight_names_of(m->cfg->layout);
	const char *number = strstr(n->module, names->layers);
	struct sought s = { .name = n->module };
	char *end;
	u64 layer;

	if (number) {
		number += strlen(names->layers);
		layer = strtoull(number, &end, 10);
		if (end > number && *end == '.' && layer >= m->cfg->layers)
			return model_fail(err, -EINVAL, "%s: tensor " MODEL_NAME_FMT ": the "
					  "model has %u layers: " OTHER, t->path, t->name,
					  m->cfg->layers);
	}
	if (weights_walk(m->cfg, 0, seek_one, &s) || is_head(names, n->module))
		return bad_name(t, -EOPNOTSUPP, "this part of the model takes no adapter: "
				TAKES, err);
	return bad_name(t, -EINVAL, "the model has no such part: " OTHER, err);
}

static int bind_one(struct adapter_modules *m, const struct st_tensor *t,
		    struct model_error *err)
{
	enum adapter_site sites[WEIGHT_PARTS];
	struct adapter_module *found;
	u64 rows[WEIGHT_PARTS];
	struct name n;
	int ret;

	ret = parse_name(t, &n, err);
	if (ret)
		return ret;
	found = find_module(m, n.module);
	if (!found)
		return refuse_module(m, t, &n, err);
	if (m->cfg->latent.rank)
		return bad_name(t, -EOPNOTSUPP, "models with latent attention take no adapters: "
				"merge it into the model", err);
	if (config_is_recurrent(m->cfg, found->layer))
		return bad_name(t, -EOPNOTSUPP, "recurrent layers take no adapters: merge it "
				"into the model", err);
	if (!adapter_sites(m->cfg, found->spec, found->layer, sites, rows))
		return bad_name(t, -EOPNOTSUPP, "this part of the model takes no adapter: "
				TAKES, err);
	if (found->t[n.which])
		return bad_name(t, -EINVAL, "there is another one for the same matrix: save "
				"each adapter in a folder of its own", err);
	found->t[n.which] = t;
	return 0;
}

int adapter_modules_bind(struct adapter_modules *m, const struct st_file *file,
			 struct model_error *err)
{
	int ret = 0;
	u32 i;

	for (i = 0; i < file->nr_tensors && !ret; i++)
		ret = bind_one(m, &file->tensors[i], err);
	return ret;
}

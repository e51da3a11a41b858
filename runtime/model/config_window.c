// SPDX-License-Identifier: Apache-2.0
/*
 * config_window.c - keys of layers with a sliding window
 *
 * "sliding_window" is the window of a local layer.  "layer_types" says which
 * layers are local, one name a layer; where it is missing, the family's own
 * rule decides.  Where some layers are local and some are not, the local ones can be a
 * layer group of their own (struct model_group), of which only the window is kept.
 */
#include "runtime/model/config_read.h"

static void local_set(struct model_config *cfg, u32 layer)
{
	cfg->local[layer / 64] |= 1ull << (layer % 64);
}

/* Can layers of the family be local? */
static bool window_is_known(const struct config_family *family)
{
	return family->window != WINDOW_NONE &&
	       family->window != WINDOW_UNUSED;
}

/*
 * Read names of layers; families without local layers must name only full ones.
 */
static void window_read_types(struct mj_file *f,
			      const struct config_family *family,
			      json_t *list, struct model_config *cfg)
{
	json_t *v;
	const char *s;
	size_t i;

	if (!json_is_array(list)) {
		mj_fail(f, -EINVAL, "layer_types", "is no list: correct it");
		return;
	}
	if (window_is_known(family) && json_array_size(list) != cfg->layers)
		mj_fail(f, -EINVAL, "layer_types", "has %zu names for %u "
			"layers: correct it", json_array_size(list),
			cfg->layers);
	json_array_foreach(list, i, v) {
		s = json_string_value(v);
		if (s && !strcmp(s, "full_attention"))
			continue;
		if (!s || strcmp(s, "sliding_attention") ||
		    !window_is_known(family))
			mj_fail(f, -EOPNOTSUPP, "layer_types", "\"%.40s\" is "
				"not supported: use a model with "
				"\"full_attention\"%s", s ? s : "?",
				window_is_known(family) ?
				" and \"sliding_attention\"" : " alone");
		else if (!cfg->window)
			mj_fail(f, -EINVAL, "layer_types", "names "
				"\"sliding_attention\", but sliding_window is "
				"missing or not used: correct it");
		else if (i < cfg->layers)
			local_set(cfg, i);
	}
}

/* Apply the family's rule. */
static void window_apply_rule(struct mj_file *f,
			      const struct config_family *family,
			      struct model_config *cfg)
{
	u32 upper = 28, every = family->pattern, i;

	switch (family->window) {
	case WINDOW_NONE:
	case WINDOW_UNUSED:
		return;
	case WINDOW_ALL:
		every = 0;
		break;
	case WINDOW_UPPER:
		every = 0;
		mj_u32(f, f->root, "max_window_layers", 0, INT32_MAX, &upper);
		break;
	case WINDOW_TURNS:
		every = 2;
		break;
	case WINDOW_UNTURNED:
		memcpy(cfg->local, cfg->unturned, sizeof(cfg->local));
		return;
	case WINDOW_PATTERN:
		mj_u32(f, f->root, "_sliding_window_pattern", 1,
		       MODEL_MAX_LAYERS, &every);
		mj_u32(f, f->root, "sliding_window_pattern", 1,
		       MODEL_MAX_LAYERS, &every);
		break;
	}
	for (i = 0; i < cfg->layers && !f->ret; i++)
		if (every ? (i + 1) % every != 0 :
		    family->window == WINDOW_ALL || i >= upper)
			local_set(cfg, i);
}

/* Read the window of a local layer; 0 if no layer is local. */
static void window_read_size(struct mj_file *f,
			     const struct config_family *family,
			     struct model_config *cfg)
{
	bool used = true;
	u32 again;

	cfg->window = family->def_window;
	/*
	 * Null says that there is no window, which a family whose layers differ
	 * does not allow.
	 */
	if (json_is_null(json_object_get(f->root, "sliding_window"))) {
		cfg->window = 0;
		if (family->window == WINDOW_PATTERN ||
		    family->window == WINDOW_TURNS)
			mj_fail(f, -EINVAL, "sliding_window", "is null, but "
				"some layers see a window: correct it");
	}
	mj_u32(f, f->root, "sliding_window", 1, INT32_MAX, &cfg->window);
	switch (family->window) {
	case WINDOW_NONE:
	case WINDOW_UNUSED:
	case WINDOW_ALL:
	case WINDOW_TURNS:
		break;
	case WINDOW_UPPER:
	case WINDOW_UNTURNED:
		/*
		 * Qwen has a window and beside it a key that says that it is
		 * not used.
		 */
		used = false;
		mj_bool(f, f->root, "use_sliding_window", &used);
		mj_note(f, "max_window_layers");
		break;
	case WINDOW_PATTERN:
		/* Larger Gemma 2 files have it twice. */
		again = cfg->window;
		mj_u32(f, f->root, "sliding_window_size", 1, INT32_MAX, &again);
		if (again != cfg->window)
			mj_fail(f, -EINVAL, "sliding_window_size", "%u is not "
				"sliding_window, %u: delete the wrong one",
				again, cfg->window);
		mj_note(f, "_sliding_window_pattern");
		mj_note(f, "sliding_window_pattern");
		break;
	}
	if (!used)
		cfg->window = 0;
}

void config_read_window(struct mj_file *f, const struct config_family *family,
			struct model_config *cfg)
{
	json_t *types = mj_top(f, "layer_types");
	u32 i;

	if (f->ret)
		return;
	if (window_is_known(family))
		window_read_size(f, family, cfg);
	/* These two mean nothing without "use_sliding_window", which is refused. */
	if (family->window == WINDOW_UNUSED) {
		mj_note(f, "sliding_window");
		mj_note(f, "max_window_layers");
	}
	if (types)
		window_read_types(f, family, types, cfg);
	else if (cfg->window)
		window_apply_rule(f, family, cfg);
	/* The family rotates heads of local layers alone. */
	for (i = 0; family->turns_local && i < cfg->layers; i++)
		if (!config_is_local(cfg, i))
			cfg->unturned[i / 64] |= 1ull << (i % 64);
	if (cfg->window >= cfg->max_position)
		cfg->window = 0;
}

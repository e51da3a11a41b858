/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_read.h - shared by the files that read config.json
 */
#ifndef RUNTIME_MODEL_CONFIG_READ_H
#define RUNTIME_MODEL_CONFIG_READ_H

#include "runtime/model/families.h"
#include "runtime/model/json.h"

/* The row of the file's architecture; NULL if it is refused. */
const struct config_family *config_read_family(struct mj_file *f,
					       struct model_config *cfg);

/* Refuse a folder of sentence-transformers; it may have the architecture of a decoder. */
int __must_check config_check_modules(const char *dir, struct model_error *err);

/*
 * Fill @cfg->rope and @cfg->rope_local, and stretch @cfg->max_position with the
 * context.  Sizes must have been read before.
 */
void config_read_rope(struct mj_file *f, const struct config_family *family,
		      struct model_config *cfg);

/* Fill @cfg->window and @cfg->local.  Sizes must have been read before. */
void config_read_window(struct mj_file *f, const struct config_family *family,
			struct model_config *cfg);

/*
 * Fill @cfg->moe, except switches that the name presets.  Sizes must have been read
 * before.  A family without experts reads no key.
 */
void config_read_experts(struct mj_file *f, const struct config_family *family,
			 struct model_config *cfg);

/*
 * Keys that only one family has, or several similar ones; rows of the table of families
 * name these readers.  The activation, sizes, heads, the position encoding and biases must
 * have been read before; windows and experts come after.
 */
void config_read_factors(struct mj_file *f, struct model_config *cfg);
void config_read_gemma1(struct mj_file *f, struct model_config *cfg);
void config_read_smollm3(struct mj_file *f, struct model_config *cfg);
void config_read_cohere(struct mj_file *f, struct model_config *cfg);
void config_read_phi(struct mj_file *f, struct model_config *cfg);
void config_read_starcoder2(struct mj_file *f, struct model_config *cfg);
void config_read_stablelm(struct mj_file *f, struct model_config *cfg);
void config_read_opt(struct mj_file *f, struct model_config *cfg);
void config_read_gpt2(struct mj_file *f, struct model_config *cfg);

/* Fill @cfg->latent, and what follows from it.  Sizes must have been read before. */
void config_read_latent(struct mj_file *f, struct model_config *cfg);

/* The factor on q.k, when the position encoding has been read. */
void config_latent_scale(struct model_config *cfg);

/* 0.1 @m ln(@stretch) + 1, the formula of the authors of yarn. */
double config_yarn_gain(double stretch, double m);

/* Read whether positions are encoded at all, of a family that may do without. */
void config_read_positions(struct mj_file *f, struct model_config *cfg);

/*
 * Fill @cfg->recurrent and @cfg->state, and the factors of families with recurrent layers.
 * Sizes must have been read before.
 */
void config_read_state(struct mj_file *f, const struct config_family *family,
		       struct model_config *cfg);

#endif /* RUNTIME_MODEL_CONFIG_READ_H */

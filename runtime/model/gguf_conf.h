/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_conf.h - metadata of a GGUF file as keys of config.json, for gguf_*.c
 *
 * Keys of the file are given without the name of the architecture and the dot behind
 * it.  A key that a function has read is noted, also if it is not in the file.
 */
#ifndef RUNTIME_MODEL_GGUF_CONF_H
#define RUNTIME_MODEL_GGUF_CONF_H

#include "runtime/model/gguf_model.h"

/**
 * struct gguf_conf - the state of a conversion
 * @f:		gets the keys; @f->names has the file's key for each
 * @g:		the file
 * @arch:	its architecture
 * @family:	the family of that architecture
 * @read:	keys of the file that were read
 * @head_dim:	size of a head, 0 with latent vectors
 */
struct gguf_conf {
	struct mj_file			*f;
	const struct gguf		*g;
	const struct gguf_arch		*arch;
	const struct config_family	*family;
	json_t				*read;
	u32				head_dim;
};

/* Report a key of the file. */
void conf_fail(struct gguf_conf *c, int code, const char *key, const char *fmt, ...)
	__printf(4, 5);

/* Set a key of config.json; @key of the file has its value, NULL: no key. */
void conf_set(struct gguf_conf *c, const char *to, json_t *v, const char *key);

/* Does the file have the key? */
bool conf_has(struct gguf_conf *c, const char *key);

/* Read a number or a switch; false, and *out is left alone, if the file has none. */
bool conf_read_u32(struct gguf_conf *c, const char *key, u32 *out);
bool conf_read_real(struct gguf_conf *c, const char *key, double *out);
bool conf_read_bool(struct gguf_conf *c, const char *key, bool *out);
bool conf_read_str(struct gguf_conf *c, const char *key, char *out, size_t size);

/* Read a key and set it, if the file has it. */
void conf_u32(struct gguf_conf *c, const char *key, const char *to);
void conf_real(struct gguf_conf *c, const char *key, const char *to);

/* Item @i of a list, or the number that is there in place of a list. */
bool conf_item(struct gguf_conf *c, const char *key, u32 i, u32 *out);

/* A number of @c->f->root that was set, or @none. */
u32 conf_got(const struct gguf_conf *c, const char *to, u32 none);

/* Layers of the model.  A number that config.c refuses counts as MODEL_MAX_LAYERS. */
u32 conf_layers(const struct gguf_conf *c);

/* Does layer @layer have a tensor of that name, behind "blk.N."? */
bool conf_layer_has(const struct gguf_conf *c, u32 layer, const char *name);

/* Does any layer have one? */
bool conf_any_has(const struct gguf_conf *c, const char *name);

/* Keys of the position encoding, for all architectures that rotate. */
void gguf_conf_rope(struct gguf_conf *c);

/* Keys that only one architecture has. */
void gguf_more_llama(struct gguf_conf *c);
void gguf_more_qwen3_moe(struct gguf_conf *c);
void gguf_more_qwen2_moe(struct gguf_conf *c);
void gguf_more_olmoe(struct gguf_conf *c);
void gguf_more_phi3(struct gguf_conf *c);
void gguf_more_gemma2(struct gguf_conf *c);
void gguf_more_gemma3(struct gguf_conf *c);
void gguf_more_deepseek2(struct gguf_conf *c);
void gguf_more_gpt_oss(struct gguf_conf *c);
void gguf_more_neox(struct gguf_conf *c);
void gguf_more_granite(struct gguf_conf *c);
void gguf_more_factors(struct gguf_conf *c);
void gguf_more_cohere(struct gguf_conf *c);
void gguf_more_cohere2(struct gguf_conf *c);
void gguf_more_starcoder2(struct gguf_conf *c);
void gguf_more_stablelm(struct gguf_conf *c);

#endif /* RUNTIME_MODEL_GGUF_CONF_H */

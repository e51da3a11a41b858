// SPDX-License-Identifier: Apache-2.0
/*
 * params.c - from a JSON object to the parameters of a request
 *
 * There is one short reader for each supported field.  It checks type and
 * range, and an error always names the field.  Conditions on several fields are
 * checked at the end.  Whole numbers may be written as 1 or 1.0, as other
 * servers allow.
 *
 * The default of a field comes from the model's generation_config.json, or else
 * is that of OpenAI.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include <libkvmm.h>

#include "runtime/server/fields.h"

#define DEF_MAX_TOKENS	16u	/* for completions, as OpenAI's */

int api_fail(struct api_error *err, int status, const char *param,
	     const char *code, const char *fmt, ...)
{
	va_list ap;

	memset(err, 0, sizeof(*err));
	err->status = status;
	snprintf(err->param, sizeof(err->param), "%s", param ? param : "");
	snprintf(err->code, sizeof(err->code), "%s", code ? code : "");
	va_start(ap, fmt);
	vsnprintf(err->message, sizeof(err->message), fmt, ap);
	va_end(ap);
	return -1;
}

static const char *error_type(int status)
{
	switch (status) {
	case 401:
		return "authentication_error";
	case 429:
		return "rate_limit_error";
	case 500:
	case 504:
		return "server_error";
	case 503:
		return "service_unavailable";
	default:
		return "invalid_request_error";
	}
}

void api_error_json(struct text *t, const struct api_error *err)
{
	text_puts(t, "{\"error\":{\"message\":");
	text_jsons(t, err->message);
	text_puts(t, ",\"type\":");
	text_jsons(t, error_type(err->status));
	text_puts(t, ",\"param\":");
	text_jsons(t, *err->param ? err->param : NULL);
	text_puts(t, ",\"code\":");
	text_jsons(t, *err->code ? err->code : NULL);
	text_puts(t, "}}");
}

static int bad(struct field_ctx *c, const char *key, const char *want)
{
	return api_fail(c->err, 400, key, "invalid_value", "%s must be %s", key,
			want);
}

/* ---- kinds of values ---- */

int get_whole(struct field_ctx *c, const char *key, const json_t *v, s64 lo,
	      s64 hi, s64 *out)
{
	char want[80];
	double d;

	snprintf(want, sizeof(want), "a whole number from %lld to %lld",
		 (long long)lo, (long long)hi);
	if (json_is_integer(v)) {
		*out = json_integer_value(v);
	} else {
		d = json_is_real(v) ? json_real_value(v) : NAN;
		if (!(fabs(d) < 9007199254740992.0) || d != floor(d))
			return bad(c, key, want);
		*out = (s64)d;
	}
	return *out < lo || *out > hi ? bad(c, key, want) : 0;
}

int get_u32(struct field_ctx *c, const char *key, const json_t *v, u32 lo,
	    u32 hi, u32 *out)
{
	s64 n = 0;
	int ret = get_whole(c, key, v, lo, hi, &n);

	if (!ret)
		*out = (u32)n;
	return ret;
}

int get_bool(struct field_ctx *c, const char *key, const json_t *v,
	     bool *out)
{
	if (!json_is_boolean(v))
		return bad(c, key, "true or false");
	*out = json_is_true(v);
	return 0;
}

/* ---- fields ---- */

int field_model(struct field_ctx *c, const char *key, const json_t *v)
{
	const char *name = json_string_value(v);

	if (!name)
		return bad(c, key, "a string");
	if (strcmp(name, c->m->name))
		return api_fail(c->err, 404, key, "model_not_found",
				"The model '%.100s' does not exist: this server has '%.100s'",
				name, c->m->name);
	return 0;
}

int field_prompt(struct field_ctx *c, const char *key, const json_t *v)
{
	c->prompt = v;
	return 0;
}

int field_messages(struct field_ctx *c, const char *key, const json_t *v)
{
	c->prompt = v;
	return 0;
}

int field_max_tokens(struct field_ctx *c, const char *key, const json_t *v)
{
	if (c->max_tokens)
		return api_fail(c->err, 400, key, "invalid_value",
				"%s and %s are the same thing: give one of them",
				c->max_name, key);
	c->max_name = key;
	if (get_u32(c, key, v, c->p->kind == API_CHAT, UINT32_MAX,
		    &c->max_tokens))
		return -1;
	c->max_zero = !c->max_tokens;
	return 0;
}

int field_max_completion_tokens(struct field_ctx *c, const char *key,
				const json_t *v)
{
	return field_max_tokens(c, key, v);
}

int field_n(struct field_ctx *c, const char *key, const json_t *v)
{
	return get_u32(c, key, v, 1, API_N_MAX, &c->p->n);
}

int field_best_of(struct field_ctx *c, const char *key, const json_t *v)
{
	return get_u32(c, key, v, 1, API_N_MAX, &c->best_of);
}

int field_use_beam_search(struct field_ctx *c, const char *key,
			  const json_t *v)
{
	bool on = false;

	if (get_bool(c, key, v, &on))
		return -1;
	c->p->beam_width = on;		/* judge_best_of() sets how many */
	return 0;
}

int field_length_penalty(struct field_ctx *c, const char *key, const json_t *v)
{
	const double d = json_number_value(v);

	if (!json_is_number(v) || !(d >= -10 && d <= 10))
		return bad(c, key, "a number from -10 to 10");
	c->p->length_penalty = (float)d;
	if (d < 1 || d > 1)
		c->of_beams = key;
	return 0;
}

int field_early_stopping(struct field_ctx *c, const char *key, const json_t *v)
{
	const char *s = json_string_value(v);

	if (s ? strcmp(s, "never") != 0 : !json_is_boolean(v))
		return bad(c, key, "true, false or \"never\"");
	c->p->early_stopping = s ? 2 : json_is_true(v);
	if (c->p->early_stopping)
		c->of_beams = key;
	return 0;
}

int field_temperature(struct field_ctx *c, const char *key, const json_t *v)
{
	const double d = json_number_value(v);

	if (!json_is_number(v) || !(d >= 0) ||
	    d > (double)SAMPLING_TEMPERATURE_MAX)
		return bad(c, key, "a number from 0 to 100");
	c->p->sampling.temperature = (float)d;
	if (d > 0)
		c->sampled = key;
	return 0;
}

int field_top_p(struct field_ctx *c, const char *key, const json_t *v)
{
	const double d = json_number_value(v);

	if (!json_is_number(v) || !(d >= 1e-6) || d > 1)
		return bad(c, key, "a number above 0 and up to 1");
	c->p->sampling.top_p = (float)d;
	if (d < 1)
		c->sampled = key;
	return 0;
}

int field_top_k(struct field_ctx *c, const char *key, const json_t *v)
{
	s64 k = 0;

	if (get_whole(c, key, v, -1, UINT32_MAX, &k))
		return -1;
	c->p->sampling.top_k = k < 0 ? 0 : (u32)k;
	if (k > 0)
		c->sampled = key;
	return 0;
}

int field_seed(struct field_ctx *c, const char *key, const json_t *v)
{
	s64 seed = 0;

	if (get_whole(c, key, v, INT64_MIN, INT64_MAX, &seed))
		return -1;
	c->p->sampling.seed = (u64)seed;
	c->p->has_seed = true;
	return 0;
}

static int stop_add(struct field_ctx *c, const char *key, const json_t *v)
{
	const char *s = json_string_value(v);

	if (!s)
		return bad(c, key, "a string or up to 4 strings");
	switch (-stops_add(&c->p->stops, s, json_string_length(v))) {
	case 0:
		return 0;
	case EINVAL:
		return bad(c, key, "no empty string");
	case E2BIG:
		return bad(c, key, "at most 4 strings of at most 4096 bytes");
	}
	return api_fail(c->err, 503, "", "out_of_memory", "no memory");
}

int field_stop(struct field_ctx *c, const char *key, const json_t *v)
{
	size_t i;

	if (!json_is_array(v))
		return stop_add(c, key, v);
	for (i = 0; i < json_array_size(v); i++)
		if (stop_add(c, key, json_array_get(v, i)))
			return -1;
	return 0;
}

int field_stop_token_ids(struct field_ctx *c, const char *key, const json_t *v)
{
	struct api_params *p = c->p;
	size_t i;

	if (!json_is_array(v) || json_array_size(v) > API_STOP_IDS_MAX)
		return bad(c, key, "a list of at most 64 token ids");
	for (i = 0; i < json_array_size(v); i++, p->nr_own_ids++)
		if (get_u32(c, key, json_array_get(v, i), 0,
			    c->m->info->nr_vocab - 1,
			    &p->stop_ids[p->nr_own_ids]))
			return -1;
	return 0;
}

int field_include_stop_str_in_output(struct field_ctx *c, const char *key,
				     const json_t *v)
{
	return get_bool(c, key, v, &c->p->stops.keep);
}

int field_ignore_eos(struct field_ctx *c, const char *key, const json_t *v)
{
	return get_bool(c, key, v, &c->p->ignore_eos);
}

int field_skip_special_tokens(struct field_ctx *c, const char *key,
			      const json_t *v)
{
	return get_bool(c, key, v, &c->p->skip_special);
}

int field_stream(struct field_ctx *c, const char *key, const json_t *v)
{
	return get_bool(c, key, v, &c->p->stream);
}

int field_stream_options(struct field_ctx *c, const char *key, const json_t *v)
{
	const char *name;
	json_t *o;

	if (!json_is_object(v))
		return bad(c, key, "an object");
	c->stream_options = v;
	json_object_foreach((json_t *)(uintptr_t)v, name, o) {
		bool any;
		int ret = 0;

		if (json_is_null(o))
			continue;
		if (!strcmp(name, "include_usage"))
			ret = get_bool(c, "stream_options.include_usage", o,
				       &c->p->usage);
		else if (!strcmp(name, "continuous_usage_stats"))
			ret = get_bool(c, "stream_options.continuous_usage_stats",
				       o, &c->p->usage_always);
		else if (!strcmp(name, "include_obfuscation"))
			ret = get_bool(c, "stream_options.include_obfuscation",
				       o, &any);
		else
			ret = api_fail(c->err, 400, key, "unsupported_parameter",
				       "stream_options.%.60s is not supported by this server: leave it out",
				       name);
		if (ret)
			return ret;
	}
	return 0;
}

int field_echo(struct field_ctx *c, const char *key, const json_t *v)
{
	return get_bool(c, key, v, &c->p->echo);
}

int field_add_special_tokens(struct field_ctx *c, const char *key,
			     const json_t *v)
{
	return get_bool(c, key, v, &c->add_bos);
}

int field_add_generation_prompt(struct field_ctx *c, const char *key,
				const json_t *v)
{
	return get_bool(c, key, v, &c->generation_prompt);
}

int field_chat_template_kwargs(struct field_ctx *c, const char *key,
			       const json_t *v)
{
	if (!json_is_object(v))
		return bad(c, key, "an object");
	c->template_kwargs = (json_t *)(uintptr_t)v;
	return 0;
}

int field_reasoning_effort(struct field_ctx *c, const char *key,
			   const json_t *v)
{
	c->effort = (json_t *)(uintptr_t)v;
	return field_formed(c, key, v, FORM_effort);
}

/* Lower numbers go first here, higher ones in the engine. */
int field_priority(struct field_ctx *c, const char *key, const json_t *v)
{
	const s64 base = c->m->priority;
	s64 n = 0;

	if (get_whole(c, key, v, base - UINT32_MAX, base, &n))
		return -1;
	c->p->priority = (u32)(base - n);
	return 0;
}

int field_cache_salt(struct field_ctx *c, const char *key, const json_t *v)
{
	const char *s = json_string_value(v);
	u8 digest[KVMM_IDENTITY_LEN];
	struct kvmm_identity *id;

	if (!s || !*s || strlen(s) > API_SALT_MAX || strpbrk(s, "@/\\"))
		return bad(c, key, "a string of 1 to 128 bytes without @, / and \\");
	id = malloc(sizeof(*id));
	if (!id)
		return api_fail(c->err, 503, "", "out_of_memory", "no memory");
	kvmm_identity_init(id);
	kvmm_identity_add(id, "cache_salt", s, strlen(s));
	kvmm_identity_final(id, digest);
	free(id);
	memcpy(&c->p->salt, digest, sizeof(c->p->salt));
	c->p->salt += !c->p->salt;	/* 0 means "no salt" */
	return 0;
}

int field_request_id(struct field_ctx *c, const char *key, const json_t *v)
{
	const char *s = json_string_value(v);
	size_t i, n = s ? strlen(s) : 0;

	for (i = 0; i < n; i++)
		if ((u8)s[i] <= 0x20 || (u8)s[i] >= 0x7f)
			break;
	if (!n || n > API_ID_MAX || i < n)
		return bad(c, key, "1 to 128 printable ASCII characters");
	memcpy(c->p->id, s, n + 1);
	return 0;
}

int field_return_token_ids(struct field_ctx *c, const char *key,
			   const json_t *v)
{
	return get_bool(c, key, v, &c->p->return_ids);
}

/* ---- together ---- */

static void set_defaults(struct field_ctx *c)
{
	struct api_params *p = c->p;

	p->n = 1;
	p->length_penalty = 1;
	p->skip_special = true;
	p->priority = c->m->priority;
	sampling_defaults(c->m->info, &p->sampling);
	c->add_bos = p->kind == API_COMPLETION;
	c->generation_prompt = true;
}

/* Set the number of samples or beams, and check it against other fields. */
static int judge_best_of(struct field_ctx *c)
{
	struct api_params *p = c->p;

	if (c->best_of && c->best_of < p->n)
		return api_fail(c->err, 400, "best_of", "invalid_value",
				"best_of must be at least n, %u: the answer is the best n of them", p->n);
	p->drawn = p->n;
	if (p->beam_width) {
		if (c->sampled)
			return api_fail(c->err, 400, c->sampled,
					"invalid_value",
					"%s does not go with use_beam_search, which takes the likeliest texts of the model itself: leave it out",
					c->sampled);
		p->beam_width = max(c->best_of, p->n);
		p->sampling = SAMPLING_PARAMS_DEFAULT;
		p->sampling.temperature = 0;
		return 0;
	}
	if (c->of_beams)
		return api_fail(c->err, 400, c->of_beams, "invalid_value",
				"%s is of beam search: give use_beam_search too, or leave it out",
				c->of_beams);
	p->length_penalty = 0;
	p->drawn = max(c->best_of, p->n);
	if (p->stream && p->drawn > p->n)
		return api_fail(c->err, 400, "best_of", "invalid_value",
				"best_of above n does not go with stream: which samples are the best is known at the end");
	return 0;
}

/* Set the remaining defaults, and check conditions on several fields. */
static int judge(struct field_ctx *c)
{
	const struct model_info *info = c->m->info;
	struct api_params *p = c->p;
	const char *why;
	u32 drawn, i;

	if (c->stream_options && !p->stream)
		return api_fail(c->err, 400, "stream_options", "invalid_value",
				"stream_options is only allowed with stream");
	if (c->effort && json_object_get(c->template_kwargs, "reasoning_effort"))
		return api_fail(c->err, 400, "reasoning_effort", "invalid_value",
				"reasoning_effort is given, and chat_template_kwargs has it too: give one of them");
	if (judge_best_of(c))
		return -1;
	if (sampling_params_check(&p->sampling, &why))
		return api_fail(c->err, 400, "", "invalid_value", "%s", why);
	if (sampling_judge(c))
		return -1;
	if (!p->has_seed) {
		if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
			drawn = (u32)getpid();
		p->sampling.seed = drawn;
	}
	p->nr_stop_ids = p->nr_own_ids;
	for (i = 0; i < info->nr_eos && !p->ignore_eos; i++)
		p->stop_ids[p->nr_stop_ids++] = info->eos_ids[i];
	return 0;
}

/* Set the most new tokens of any prompt; refuse a request for more than fit. */
static int set_max_new(struct field_ctx *c)
{
	const struct model_generation *gen = &c->m->info->gen;
	const u32 max_len = c->m->info->max_len;
	struct api_params *p = c->p;
	u32 i, longest = 0;

	for (i = 0; i < p->nr_prompts; i++)
		longest = max(longest, p->prompts[i].nr);
	p->max_new = max_len - longest;
	if (c->max_tokens > p->max_new)
		return api_fail(c->err, 400, c->max_name,
				"context_length_exceeded",
				"This model's maximum context length is %u tokens; the prompt has %u, and %s asks for %u more",
				max_len, longest, c->max_name, c->max_tokens);
	if (c->max_tokens || c->max_zero)
		p->max_new = c->max_tokens;
	else if (p->kind == API_COMPLETION)
		p->max_new = min(p->max_new, DEF_MAX_TOKENS);
	else if ((gen->has & MODEL_GEN_MAX_NEW_TOKENS) && gen->max_new_tokens)
		p->max_new = min(p->max_new, gen->max_new_tokens);
	return 0;
}

json_t *api_parse(const char *body, size_t len, struct api_error *err)
{
	json_error_t je;
	json_t *root = json_loadb(body, len, JSON_REJECT_DUPLICATES, &je);

	if (!root)
		api_fail(err, 400, "", "invalid_json",
			 "The body is not JSON: line %d column %d: %.160s",
			 je.line, je.column, je.text);
	return root;
}

int api_read(const struct api_model *m, enum api_kind kind, const json_t *root,
	     struct api_params *p, struct api_error *err)
{
	struct field_ctx c = { .m = m, .p = p, .err = err };
	int ret;

	memset(p, 0, sizeof(*p));
	p->kind = kind;
	set_defaults(&c);
	if (json_is_object(root))
		ret = fields_read(&c, root);
	else
		ret = api_fail(err, 400, "", "invalid_json",
			       "The body is JSON but no object");
	if (!ret)
		ret = judge(&c);
	if (!ret)
		ret = prompts_prepare(&c);
	if (!ret)
		ret = session_judge(&c);
	if (!ret)
		ret = set_max_new(&c);
	return ret;
}

int api_prepare(const struct api_model *m, enum api_kind kind,
		const char *body, size_t len, struct api_params *p,
		struct api_error *err)
{
	json_t *root = api_parse(body, len, err);
	int ret;

	memset(p, 0, sizeof(*p));
	ret = root ? api_read(m, kind, root, p, err) : -1;
	json_decref(root);
	return ret;
}

void api_params_free(struct api_params *p)
{
	u32 i;

	for (i = 0; i < p->nr_prompts; i++) {
		free(p->prompts[i].ids);
		free(p->prompts[i].text);
	}
	free(p->prompts);
	stops_free(&p->stops);
	free(p->bias);
	free(p->allowed);
	free(p->bad);
	memset(p, 0, sizeof(*p));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fields.h - every field that OpenAI's or vLLM's API has, supported or not
 *
 * The one list.  The parser, the table in the documentation and the test that
 * compares the two are made from it.  A field that is not supported is refused
 * by its name unless it is null or asks for the behaviour that this server has
 * anyway (its neutral value).  Only a field that changes no text is ignored.
 *
 *	yes(name, kinds, text)		read by field_NAME() of params.c, or of
 *					sampling.c
 *	hint(name, kinds, form, text)	ignored, but refused in another form
 *	no(name, kinds, neutral, text)	refused except for its neutral value
 */
#ifndef RUNTIME_SERVER_FIELDS_H
#define RUNTIME_SERVER_FIELDS_H

#include <jansson.h>

#include "runtime/server/api.h"

/* Neutral values, and how the documentation writes them. */
#define FIELD_NEUTRALS(x)						\
	x(null,		"null")						\
	x(zero,		"0")						\
	x(one,		"1")						\
	x(off,		"false")					\
	x(on,		"true")						\
	x(empty,	"empty")					\
	x(text,		"text")						\
	x(any,		"auto, none")

enum field_neutral {
#define x(name, text) NEUTRAL_##name,
	FIELD_NEUTRALS(x)
#undef x
};

/* Forms of hints, and how documentation and errors write them; some are words. */
#define FIELD_FORMS(x)							\
	x(string,	false,	"a string")				\
	x(flag,		false,	"true or false")			\
	x(object,	false,	"an object")				\
	x(strings,	false,	"an object of up to 16 strings, with names of up to 64 and values of up to 512 characters") \
	x(tier,		true,	"auto, default, flex, scale, priority, fast") \
	x(level,	true,	"low, medium, high")			\
	x(effort,	true,	"none, minimal, low, medium, high, xhigh, max") \
	x(retention,	true,	"in_memory, 24h")

enum field_form {
#define x(name, words, text) FORM_##name,
	FIELD_FORMS(x)
#undef x
};

#define API_FIELDS(yes, hint, no)					\
	yes(model, API_BOTH, "name of the model, or of an adapter of it; may be left out where there is one model")	\
	yes(prompt, API_COMPLETION, "a string, strings, token ids, or lists of token ids") \
	yes(messages, API_CHAT, "roles system, developer, user, assistant; contents are strings or parts of type text") \
	yes(max_tokens, API_BOTH, "completions: 16 by default; chat: that of the model's generation_config.json, else the rest of the context") \
	yes(max_completion_tokens, API_CHAT, "the newer name of max_tokens") \
	yes(n, API_BOTH, "samples of each prompt, 1 to 128; they share its blocks") \
	yes(best_of, API_COMPLETION, "samples drawn, n or more, up to 128: the n with the highest mean logprob a token are the answer; of beam search the number of beams; with stream only as many as n") \
	yes(temperature, API_BOTH, "0 takes the likeliest token")	\
	yes(top_p, API_BOTH, "above 0, up to 1")			\
	yes(top_k, API_BOTH, "0 or -1: all")				\
	yes(seed, API_BOTH, "same seed, same text, as with kvrt generate --seed") \
	yes(stop, API_BOTH, "a string or up to 4; not part of the text") \
	yes(stop_token_ids, API_BOTH, "up to 64 ids that end the text")	\
	yes(include_stop_str_in_output, API_BOTH, "the stop string stays in the text") \
	yes(ignore_eos, API_BOTH, "go on when the model says that the text ends") \
	yes(skip_special_tokens, API_BOTH, "false: special tokens appear in the text") \
	yes(stream, API_BOTH, "server-sent events")			\
	yes(stream_options, API_BOTH, "include_usage, continuous_usage_stats, include_obfuscation (ignored); only with stream") \
	yes(echo, API_COMPLETION, "the text begins with the prompt")	\
	yes(add_special_tokens, API_BOTH, "whether a text gets a BOS token in front; true for completions, false for chat, because the template has one") \
	yes(add_generation_prompt, API_CHAT, "false: the text does not end where an answer begins; true by default") \
	yes(chat_template_kwargs, API_CHAT, "an object: more variables for the model's chat template") \
	yes(reasoning_effort, API_CHAT, "none, minimal, low, medium, high, xhigh, max: a variable of the chat template, without effect where the template has none") \
	hint(user, API_BOTH, string, "")				\
	hint(safety_identifier, API_BOTH, string, "")			\
	hint(metadata, API_BOTH, strings, "")				\
	hint(store, API_BOTH, flag, "nothing is stored")		\
	hint(service_tier, API_BOTH, tier, "there is one; see priority") \
	hint(prompt_cache_key, API_BOTH, string, "prefixes are found without; see cache_salt") \
	hint(prompt_cache_retention, API_BOTH, retention, "the daemon decides what stays cached; see priority") \
	hint(prompt_cache_options, API_BOTH, object, "likewise")	\
	hint(prediction, API_CHAT, object, "nothing is predicted: the text is the same") \
	hint(verbosity, API_CHAT, level, "no chat template has it")	\
	hint(parallel_tool_calls, API_CHAT, flag, "there are no tools")	\
	hint(include_reasoning, API_CHAT, flag, "reasoning is a part of the text") \
	yes(priority, API_BOTH, "lower is served earlier and preempted later; 0 by default") \
	yes(cache_salt, API_BOTH, "prompts share cached blocks only under the same salt") \
	yes(session, API_BOTH, "a name, or an object with name and retain (seconds): the server remembers prompt and answer; see Sessions") \
	yes(request_id, API_BOTH, "becomes part of the answer's id")	\
	yes(return_token_ids, API_BOTH, "adds token_ids and prompt_token_ids") \
	yes(frequency_penalty, API_BOTH, "-2 to 2, of tokens generated so far, as often as they were") \
	yes(presence_penalty, API_BOTH, "-2 to 2, of tokens generated so far") \
	yes(repetition_penalty, API_BOTH, "0.01 to 100, 1: none; of tokens of the prompt too") \
	yes(logit_bias, API_BOTH, "an object: up to 1024 token ids with -100 to 100") \
	yes(logprobs, API_BOTH, "completions: 0 to 20; chat: true or false; as the model gave them, before penalties and temperature") \
	yes(top_logprobs, API_CHAT, "0 to 20; only with logprobs")	\
	yes(prompt_logprobs, API_BOTH, "0 to 20; not with stream; the whole prompt is computed again, cached or not") \
	yes(return_tokens_as_token_ids, API_BOTH, "logprobs name a token token_id:N") \
	yes(logprob_token_ids, API_BOTH, "up to 128 ids: logprobs tell of these instead of the likeliest; not with echo") \
	no(suffix, API_COMPLETION, empty, "")				\
	yes(min_p, API_BOTH, "0 to 1: least share of the likeliest token's probability") \
	yes(min_tokens, API_BOTH, "no end and no stop before so many tokens") \
	yes(bad_words, API_BOTH, "up to 4096 tokens of strings that are not generated") \
	yes(allowed_token_ids, API_BOTH, "ids: no others are generated") \
	yes(use_beam_search, API_BOTH, "the likeliest texts that best_of beams find, else n; see Beam search") \
	yes(length_penalty, API_BOTH, "of beam search: -10 to 10, 1 by default") \
	yes(early_stopping, API_BOTH, "of beam search: false, true or \"never\"") \
	no(tools, API_CHAT, empty, "")					\
	no(tool_choice, API_CHAT, any, "")				\
	no(functions, API_CHAT, empty, "the older tools")		\
	no(function_call, API_CHAT, any, "the older tool_choice")	\
	no(response_format, API_BOTH, text, "")				\
	no(structured_outputs, API_BOTH, null, "")			\
	no(guided_json, API_BOTH, null, "")				\
	no(guided_regex, API_BOTH, null, "")				\
	no(guided_choice, API_BOTH, null, "")				\
	no(guided_grammar, API_BOTH, null, "")				\
	no(thinking_token_budget, API_CHAT, null, "")			\
	no(modalities, API_CHAT, text, "")				\
	no(audio, API_CHAT, null, "")					\
	no(web_search_options, API_CHAT, null, "")			\
	no(moderation, API_CHAT, null, "")				\
	no(spaces_between_special_tokens, API_BOTH, on, "")		\
	no(truncate_prompt_tokens, API_BOTH, null, "")			\
	no(truncation_side, API_BOTH, null, "")				\
	no(prompt_embeds, API_COMPLETION, null, "")			\
	no(continue_final_message, API_CHAT, off, "")			\
	no(chat_template, API_CHAT, null, "")				\
	no(documents, API_CHAT, empty, "")				\
	no(media_io_kwargs, API_CHAT, empty, "")			\
	no(mm_processor_kwargs, API_CHAT, empty, "")			\
	no(session_id, API_BOTH, null, "")				\
	no(stream_interval, API_BOTH, one, "")				\
	no(return_token_offsets, API_BOTH, off, "")			\
	no(return_prompt_text, API_BOTH, off, "")			\
	no(kv_transfer_params, API_BOTH, null, "")			\
	no(ec_transfer_params, API_BOTH, null, "")			\
	no(repetition_detection, API_BOTH, null, "")			\
	no(vllm_xargs, API_BOTH, empty, "")

/**
 * struct field_ctx - a request while its fields are read
 * @p:          the resulting parameters
 * @prompt:     the prompts or messages, read after the other fields
 * @max_tokens: as given, 0: not given
 * @max_zero:   0 was given
 * @logprobs:   of a chat, as given
 * @top_logprobs: of a chat, as given
 * @best_of:    as given, 0: not given
 * @sampled:    the first field that asks for anything but the likeliest token
 * @of_beams:   the first field that is only for beam search
 * @add_bos:    see add_special_tokens
 * @any_length: no prompt is too long or too short
 * @generation_prompt: see add_generation_prompt
 * @template_kwargs: see chat_template_kwargs, or NULL
 * @effort:     see reasoning_effort, or NULL
 */
struct field_ctx {
	const struct api_model	*m;
	struct api_params	*p;
	struct api_error	*err;
	const json_t		*prompt;
	const json_t		*stream_options;
	u32			max_tokens;
	bool			max_zero;
	bool			logprobs;
	u32			top_logprobs;
	const char		*max_name;
	u32			best_of;
	const char		*sampled;
	const char		*of_beams;
	bool			add_bos;
	bool			any_length;
	bool			generation_prompt;
	json_t			*template_kwargs;
	json_t			*effort;
};

/* How the server treats a field. */
enum field_use {
	FIELD_NO,
	FIELD_HINT,
	FIELD_YES,
};

/**
 * struct field - one line of the list
 * @read:    reads a field that is in use
 * @form:    of a hint
 * @neutral: the accepted value of a field that is not supported
 */
struct field {
	const char		*name;
	u32			kinds;
	enum field_use		use;
	int			(*read)(struct field_ctx *c, const char *name,
					const json_t *v);
	enum field_form		form;
	enum field_neutral	neutral;
	const char		*text;
};

extern const struct field api_fields[];
extern const u32 api_nr_fields;

#define field_yes(name, kinds, text) \
	int field_##name(struct field_ctx *c, const char *key, const json_t *v);
#define field_hint(...)
#define field_no(...)
API_FIELDS(field_yes, field_hint, field_no)
#undef field_yes
#undef field_hint
#undef field_no

/* Read a value: 0, or -1 with an error that names @key. */
int get_whole(struct field_ctx *c, const char *key, const json_t *v, s64 lo,
	      s64 hi, s64 *out);
int get_u32(struct field_ctx *c, const char *key, const json_t *v, u32 lo,
	    u32 hi, u32 *out);
int get_bool(struct field_ctx *c, const char *key, const json_t *v,
	     bool *out);

/* field_formed() - check that @v has this form; 0 or -1 with an error */
int field_formed(struct field_ctx *c, const char *key, const json_t *v,
		 enum field_form form);

/*
 * sampling_defaults() - take the defaults of the model's generation_config.json
 */
void sampling_defaults(const struct model_info *info,
		       struct sampling_params *p);

/* sampling_judge() - check the fields of sampling.c together; 0 or -1 */
int sampling_judge(struct field_ctx *c);

/* session_judge() - check session with other fields; 0 or -1 */
int session_judge(struct field_ctx *c);

/* fields_read() - give every field of @root to its reader; 0 or -1 */
int fields_read(struct field_ctx *c, const json_t *root);

/* fields_doc() - write the table of the documentation, in Markdown */
void fields_doc(struct text *t);

/* prompts_prepare() - fill in the prompts of @c->p; 0 or -1 */
int prompts_prepare(struct field_ctx *c);

#endif /* RUNTIME_SERVER_FIELDS_H */

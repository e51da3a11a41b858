/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.h - requests of the OpenAI API
 *
 * From the bytes of a body to prompts of token ids and parameters, or to an
 * error that names the field.  This code knows tokenizer and model, but no
 * socket and no engine; it works on any thread.
 */
#ifndef RUNTIME_SERVER_API_H
#define RUNTIME_SERVER_API_H

#include <jansson.h>

#include "runtime/engine/engine.h"
#include "runtime/model/model.h"
#include "runtime/sampler/sampler.h"
#include "runtime/server/stop.h"
#include "runtime/tokenizer/tokenizer.h"

#define API_N_MAX		128u	/* as OpenAI allows */
#define API_STOP_IDS_MAX	64u
#define API_LOGPROB_IDS_MAX	128u	/* as vLLM */
#define API_TOP_MAX		20u	/* as OpenAI and vLLM */
#define API_BAD_IDS_MAX		4096u	/* lengths included */
#define API_SALT_MAX		128u	/* characters */
#define API_ID_MAX		128u
#define API_SESSION_MAX		64u	/* characters of a session's name */
#define API_TOLD_MAX		(1u << 20) /* prompt tokens with logprobs, in all choices */

enum api_kind {
	API_COMPLETION	= BIT(0),
	API_CHAT	= BIT(1),
	API_TOKENIZE	= BIT(2),	/* see tokens.h */
	API_DETOKENIZE	= BIT(3),
};

#define API_BOTH	(API_COMPLETION | API_CHAT)
#define API_TOKENS	(API_TOKENIZE | API_DETOKENIZE)

/**
 * struct api_error - an error in OpenAI's form
 * @status:  HTTP status
 * @param:   the field with the error, or ""
 * @code:    a word for programs, or ""
 * @message: a line for people
 */
struct api_error {
	int	status;
	char	param[64];
	char	code[48];
	char	message[512];
};

struct chat;

/**
 * struct api_model - model data for checking requests; read-only meanwhile
 * @name:        its name for clients
 * @tok:         its tokenizer
 * @info:        its sizes and defaults
 * @chat:        its chat template; NULL: it serves no chats
 * @priority:    default priority; a request's own priority is subtracted from
 *               it
 * @max_samples: most samples of one request, all prompts together
 */
struct api_model {
	const char			*name;
	const struct tokenizer		*tok;
	const struct model_info		*info;
	const struct chat		*chat;
	u32				priority;
	u32				max_samples;
};

/**
 * struct api_prompt - one prompt
 * @ids:  [@nr]
 * @text: for echo, @len bytes; else NULL
 */
struct api_prompt {
	u32	*ids;
	u32	nr;
	char	*text;
	size_t	len;
};

/**
 * struct api_session - the session of a request
 * @name: "": none
 * @ms:   time of the lease when the request has ended, 0: none
 */
struct api_session {
	char	name[API_SESSION_MAX + 1];
	u32	ms;
};

/**
 * struct api_params - the parameters of a request
 * @n:           texts of each prompt in the answer
 * @drawn:       samples of each prompt; the @n best are the answer
 * @beam_width:  beams of a beam search, 0: none; then @drawn is @n
 *               @length_penalty, @early_stopping: of the beam search, see
 *               struct engine_request
 * @max_new:     most tokens of a sample; 0: the prompt is only scored
 * @logprobs:    logprobs of tokens, in the engine's form
 * @prompt_logprobs: logprobs of the prompt in the answer, in the engine's form
 * @score:       logprobs of the prompt that are needed, also for echo
 * @ids_for_tokens: logprobs name tokens by their ids @bias, @allowed, @bad:
 *               arrays of @sampling
 * @logprob_ids: tokens whose logprobs are reported, @nr_logprob_ids of them
 * @priority:    for the engine
 * @salt:        for the engine
 * @session:     see session.h
 * @stop_ids:    ids that end a sample: the request's own, then the model's
 * @nr_own_ids:  how many of them are the request's own
 * @return_ids:  the answer has the token ids, too
 * @usage:       a stream ends with the usage
 * @usage_always: every chunk of a stream has the usage
 */
struct api_params {
	enum api_kind		kind;
	bool			stream;
	bool			usage;
	bool			usage_always;
	bool			echo;
	bool			return_ids;
	bool			skip_special;
	bool			ignore_eos;
	bool			has_seed;
	bool			ids_for_tokens;
	u32			logprobs;
	u32			prompt_logprobs;
	u32			score;
	struct sampling_bias	*bias;
	u32			*allowed;
	u32			*bad;
	u32			logprob_ids[API_LOGPROB_IDS_MAX];
	u32			nr_logprob_ids;
	u32			n;
	u32			drawn;
	u32			beam_width;
	float			length_penalty;
	u32			early_stopping;
	u32			max_new;
	u32			priority;
	u64			salt;
	struct api_session	session;
	struct sampling_params	sampling;
	struct stops		stops;
	u32			stop_ids[API_STOP_IDS_MAX + MODEL_MAX_EOS];
	u32			nr_own_ids;
	u32			nr_stop_ids;
	char			id[API_ID_MAX + 1];
	struct api_prompt	*prompts;
	u32			nr_prompts;
};

/**
 * api_parse() - parse the JSON of a body
 * @body: @len bytes
 *
 * Return: a new reference, or NULL with @err.
 */
json_t *api_parse(const char *body, size_t len, struct api_error *err);

/* api_read() - as api_prepare(), for a parsed body */
int __must_check api_read(const struct api_model *m, enum api_kind kind,
			  const json_t *root, struct api_params *p,
			  struct api_error *err);

/**
 * api_prepare() - read a body into parameters
 * @body: @len bytes
 * @p:    filled; call api_params_free() in both cases
 * @err:  filled on failure
 *
 * Return: 0, or -1 with @err.
 */
int __must_check api_prepare(const struct api_model *m, enum api_kind kind,
			     const char *body, size_t len,
			     struct api_params *p, struct api_error *err);

void api_params_free(struct api_params *p);

/* api_fail() - fill @err; returns -1 */
int api_fail(struct api_error *err, int status, const char *param,
	     const char *code, const char *fmt, ...) __printf(5, 6);

/* api_error_json() - write the body of the answer */
void api_error_json(struct text *t, const struct api_error *err);

#endif /* RUNTIME_SERVER_API_H */

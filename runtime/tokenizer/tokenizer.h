/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.h - text to token ids and back, for models with byte-pair encoding
 *
 * A tokenizer is loaded once from a model's files and never changes afterwards:
 * any number of threads may encode and decode with it, without a lock.  Every
 * encoding call allocates its own scratch memory and frees it.
 */
#ifndef KVRT_TOKENIZER_H
#define KVRT_TOKENIZER_H

#include <kvmm/types.h>

/* Size that holds every error line of tokenizer_load(). */
#define TOKENIZER_ERR_MAX	512

/* "This model has no such token." */
#define TOKENIZER_NO_ID		UINT32_MAX

struct tokenizer;

/**
 * enum tokenizer_flags - how tokenizer_encode() treats a text
 * @TOKENIZER_ADD_BOS: begin with the BOS token, or other tokens that this
 *                     model's files put at the beginning (add_bos_token, else
 *                     the post_processor); no effect on a model without them
 * @TOKENIZER_ADD_EOS: likewise, put the tokens at the end (add_eos_token, else
 *                     the post_processor); not for texts to be continued
 * @TOKENIZER_PLAIN:   special tokens written out in the text are plain text:
 *                     for input that must not be able to forge a turn of a
 *                     conversation
 */
enum tokenizer_flags {
	TOKENIZER_ADD_BOS	= BIT(0),
	TOKENIZER_PLAIN		= BIT(1),
	TOKENIZER_ADD_EOS	= BIT(2),
};

/**
 * tokenizer_load() - read the tokenizer of a model
 * @dir: folder with tokenizer.json and, mostly, tokenizer_config.json; or a GGUF
 *	file, or any part of one
 * @out: the tokenizer, valid only on success; free it with tokenizer_free()
 * @err: gets one line with the file and the reason on failure
 * @err_size: bytes at @err; TOKENIZER_ERR_MAX holds every line whole
 *
 * Return: 0, -ENOENT (no such file), -EINVAL (malformed), -EOPNOTSUPP (well
 * formed, but of a kind that this tokenizer does not support), or -ENOMEM.
 */
int __must_check tokenizer_load(const char *dir, struct tokenizer **out,
				char *err, size_t err_size);

/** tokenizer_free() - free @tok, which may be NULL */
void tokenizer_free(struct tokenizer *tok);

/**
 * tokenizer_encode() - turn text into token ids
 * @tok: the tokenizer
 * @text: UTF-8, need not end with NUL and may hold NULs
 * @len: bytes at @text, less than 1 GiB
 * @flags: of enum tokenizer_flags
 * @ids: gets the ids; may be NULL when @max is 0
 * @max: how many ids fit at @ids
 * @needed: gets the number of ids the text has, also with -E2BIG; may be NULL
 *
 * Time is proportional to @len, up to a logarithm of the longest piece.
 *
 * Return: number of ids, or -E2BIG (more than @max; the first @max are
 * written), -EILSEQ (@text is not UTF-8), -EFBIG (@len too large), -EOVERFLOW
 * (the model's own pattern exceeds its limits on this text), -ENOMEM.
 */
ssize_t __must_check tokenizer_encode(const struct tokenizer *tok,
				      const char *text, size_t len, u32 flags,
				      u32 *ids, size_t max, size_t *needed);

/**
 * tokenizer_special_at() - does a text begin with a special token?
 * @tok: the tokenizer
 * @text: UTF-8, or the rest of it
 * @len: bytes at @text
 *
 * Return: bytes of the special token that tokenizer_encode() would find there,
 * or 0.
 */
size_t tokenizer_special_at(const struct tokenizer *tok, const char *text,
			    size_t len);

/**
 * struct tokenizer_guard - a part of a text that must be plain
 * @at:  its first byte
 * @len: bytes
 */
struct tokenizer_guard {
	size_t	at;
	size_t	len;
};

/**
 * tokenizer_encode_guarded() - tokenizer_encode() of a text with untrusted
 * parts
 * @guards: parts of @text, in order, in which no special token is found, nor
 *          across their ends: they are plain text
 * @nr_guards: their number
 */
ssize_t __must_check
tokenizer_encode_guarded(const struct tokenizer *tok, const char *text,
			 size_t len, u32 flags,
			 const struct tokenizer_guard *guards, size_t nr_guards,
			 u32 *ids, size_t max, size_t *needed);

/**
 * tokenizer_decode() - the bytes of one token
 * @tok: the tokenizer
 * @id: a token id
 * @bytes: gets a pointer that lives as long as @tok; not NUL terminated and
 *	not always whole UTF-8: use struct detok for text
 *
 * Return: number of bytes, or -ENOENT if no token has this id.
 */
ssize_t __must_check tokenizer_decode(const struct tokenizer *tok, u32 id,
				      const char **bytes);

/** tokenizer_vocab_size() - highest id + 1, added tokens included */
u32 tokenizer_vocab_size(const struct tokenizer *tok);

/** tokenizer_bos_id() - the id, or TOKENIZER_NO_ID */
u32 tokenizer_bos_id(const struct tokenizer *tok);

/** tokenizer_eos_id() - the id, or TOKENIZER_NO_ID */
u32 tokenizer_eos_id(const struct tokenizer *tok);

/** tokenizer_adds_bos() - does TOKENIZER_ADD_BOS add a token? */
bool tokenizer_adds_bos(const struct tokenizer *tok);

/** tokenizer_is_special() - is @id an added token marked special? */
bool tokenizer_is_special(const struct tokenizer *tok, u32 id);

/**
 * tokenizer_find() - find the token of exactly these bytes
 * @tok: the tokenizer
 * @bytes: text of the token, for instance "<|im_end|>"; for a model without
 *       ByteLevel its name, in which spaces are U+2581
 * @len: bytes at @bytes
 *
 * Return: its id, added tokens first, or TOKENIZER_NO_ID.
 */
u32 tokenizer_find(const struct tokenizer *tok, const char *bytes,
		   size_t len);

/**
 * struct detok - turns a stream of ids into a stream of whole characters
 * @tok: its tokenizer, which must outlive it
 * @skip_special: leave special tokens out of the text
 * @nr_held: bytes in @held
 * @strip:   how many spaces may still be removed at the beginning of the text
 * @started: the text has begun
 * @held:    beginning of an incomplete character
 *
 * A plain value: copy it to fork a stream.  Written text never changes.  The
 * output of a stream, flush included, is valid UTF-8 and equals decoding all
 * its ids at once.  Bytes that belong to no character become U+FFFD: one for
 * each longest part that a character could have begun with, or, if bytes are
 * tokens (byte fallback), one for each byte.
 */
struct detok {
	const struct tokenizer *tok;
	bool skip_special;
	u8 nr_held;
	u8 strip;
	bool started;
	u8 held[4];
};

/** detok_init() - start a stream */
void detok_init(struct detok *d, const struct tokenizer *tok,
		bool skip_special);

/** detok_out_max() - most bytes that one detok_push() can write */
size_t detok_out_max(const struct tokenizer *tok);

/**
 * detok_push() - take one id, write the characters that it completes
 * @d:   the stream
 * @id:  next id; for an unknown id (the padding that models add to their
 *       vocabulary) nothing is written
 * @out: gets UTF-8, not NUL terminated
 * @max: bytes at @out; detok_out_max() is always enough
 *
 * Return: bytes written, 0 included, or -E2BIG; then @d is unchanged.
 */
ssize_t __must_check detok_push(struct detok *d, u32 id, char *out,
				size_t max);

/**
 * detok_flush() - end the stream: held bytes become U+FFFD
 * @d:   the stream; may be used for a new one afterwards
 * @out: gets at most 9 bytes; detok_out_max() is always enough
 * @max: bytes at @out
 *
 * Return: bytes written, or -E2BIG; then @d is unchanged.
 */
ssize_t __must_check detok_flush(struct detok *d, char *out, size_t max);

#endif /* KVRT_TOKENIZER_H */

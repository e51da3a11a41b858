/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_gguf.h - parts of the loader for GGUF files
 *
 * load_gguf.c chooses the kind of tokenizer and puts a tokenizer.json together,
 * load_gguf_vocab.c reads the tokens, load_gguf_merges.c the merges, and
 * load_gguf_pre.c knows how the texts of each family of models are cut.
 */
#ifndef KVRT_TOKENIZER_LOAD_GGUF_H
#define KVRT_TOKENIZER_LOAD_GGUF_H

#include "runtime/lib/gguf.h"
#include "runtime/tokenizer/internal.h"

#define GGUF_KEY(name)	"tokenizer.ggml." name

/* U+2581 stands for a space where tokens are not written as bytes. */
#define GGUF_MARK	"\xe2\x96\x81"

/* Kinds of tokens, by their numbers in the file. */
enum gguf_token_type {
	GGUF_NORMAL = 1,
	GGUF_UNKNOWN,
	GGUF_CONTROL,
	GGUF_USER,
	GGUF_UNUSED,
	GGUF_BYTE,
};

/**
 * struct gguf_vocab - the tokens of a file
 * @g:		the file
 * @chars:	tokens are characters, not bytes in the alphabet of ByteLevel
 * @nr:		tokens
 * @names:	[@nr] JSON strings; NULL: the id has no token
 * @types:	[@nr] of enum gguf_token_type
 * @vocab:	object, from name to id
 * @has_bytes:	are there tokens for bytes?
 */
struct gguf_vocab {
	const struct gguf	*g;
	bool			chars;
	u32			nr;
	json_t			**names;
	u8			*types;
	json_t			*vocab;
	bool			has_bytes;
};

/**
 * struct gguf_pre - how a family of models cuts texts
 * @names:	names of tokenizer.ggml.pre, separated by spaces
 * @patterns:	patterns of Split, one after the other; none: that of GPT-2
 * @digits:	then each digit is cut off
 * @nfc:	texts are normalized by NFC
 * @whole:	a piece that is a token is that token (ignore_merges)
 * @bos:	BOS comes first if the file does not say
 */
struct gguf_pre {
	const char	*names;
	const char	*patterns[5];
	bool		digits;
	bool		nfc;
	bool		whole;
	bool		bos;
};

/** gguf_pre_find() - find the entry that tokenizer.ggml.pre names */
int __must_check gguf_pre_find(const struct load_ctx *ctx,
			       const struct gguf *g,
			       const struct gguf_pre **out);
/** gguf_pre_json() - its pre_tokenizer; NULL: no memory */
json_t *gguf_pre_json(const struct gguf_pre *pre);

/** gguf_vocab_read() - read the tokens; gguf_vocab_free() always follows */
int __must_check gguf_vocab_read(const struct load_ctx *ctx,
				 struct gguf_vocab *v);
void gguf_vocab_free(struct gguf_vocab *v);
/** gguf_added() - control and user-defined tokens as added_tokens */
json_t *gguf_added(const struct gguf_vocab *v, u32 unknown);

/** gguf_merges_read() - the merges that the file lists */
int __must_check gguf_merges_read(const struct load_ctx *ctx,
				  const struct gguf_vocab *v, json_t **out);
/** gguf_merges_derive() - the merges that the scores mean */
int __must_check gguf_merges_derive(const struct load_ctx *ctx,
				    const struct gguf_vocab *v, json_t **out);

#endif /* KVRT_TOKENIZER_LOAD_GGUF_H */

// SPDX-License-Identifier: Apache-2.0
/*
 * error.c - failures of the model layer as text
 *
 * Every refusal of a checkpoint passes through here, so here is where text
 * taken from a file is made harmless: whatever a key or a parser's message
 * holds, the result is one line of valid UTF-8 without control characters.
 */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/model/error.h"
#include "runtime/tokenizer/utf8.h"

int model_fail(struct model_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	utf8_clean_line(err->text);
	return code;
}

int model_fail_errno(struct model_error *err, int code, const char *path,
		     const char *what)
{
	const char *remedy = "";

	if (code == -ENOENT)
		remedy = ": name a model folder in Hugging Face's format";
	return model_fail(err, code, "%s: %s: %s%s", path, what,
			  strerror(-code), remedy);
}

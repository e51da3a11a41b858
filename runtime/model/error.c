// SPDX-License-Identifier: Apache-2.0
/*
 * error.c - errors of the model layer as text
 *
 * Every refusal of a checkpoint passes through here, so this file makes text
 * from files harmless: the result is one line of valid UTF-8 without control
 * characters, for any key and any parser's message.
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

// SPDX-License-Identifier: Apache-2.0
/*
 * error.c - failures of the model layer as text
 *
 * Every refusal of a checkpoint passes through here, so here is where text
 * taken from a file is made harmless: whatever a key or a parser's message
 * holds, the result is one line without control characters.
 */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/model/error.h"

int model_fail(struct model_error *err, int code, const char *fmt, ...)
{
	unsigned char *p;
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	for (p = (unsigned char *)err->text; *p; p++)
		if (*p < 0x20 || *p == 0x7f)
			*p = '?';
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

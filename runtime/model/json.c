// SPDX-License-Identifier: Apache-2.0
/*
 * json.c - read the JSON files of a checkpoint
 *
 * Many programs write configurations: absent and null mean the same, whole
 * numbers come as 10000.0, and a "no limit" comes as an integer of 31 digits,
 * which is why configurations are parsed with JSON_DECODE_INT_AS_REAL.  The
 * getters accept exactly that and no more, check every range, and keep the
 * first failure, so that one line names the first wrong key.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/lib/folder.h"
#include "runtime/model/json.h"

#define MJ_MAX_BYTES	(256ull << 20)	/* the index of a big model has 10 MB */

static int mj_read(struct mj_file *f, char **text, size_t *len)
{
	const int ret = folder_read(f->path, MJ_MAX_BYTES, text, len);

	if (ret == -EINVAL || ret == -EFBIG)
		return model_fail(f->err, -EINVAL, "%s: not a regular file of "
				  "at most 256 MB: copy the model again",
				  f->path);
	if (ret == -EUCLEAN)
		return model_fail(f->err, -EINVAL, "%s: " FOLDER_POINTER, f->path);
	return ret ? model_fail_errno(f->err, ret, f->path, "cannot read") : 0;
}

int mj_open(struct mj_file *f, const char *dir, const char *name, size_t flags,
	    struct model_error *err)
{
	json_error_t jerr;
	char *text = NULL;
	size_t len = 0;

	*f = (struct mj_file){ .err = err };
	if (asprintf(&f->path, "%s/%s", dir, name) < 0) {
		f->path = NULL;
		return f->ret = model_fail_errno(err, -ENOMEM, dir, name);
	}
	f->ret = mj_read(f, &text, &len);
	if (f->ret)
		return f->ret;
	if (folder_json_too_many(text, len, MJ_MAX_VALUES)) {
		free(text);
		return f->ret = model_fail(err, -EINVAL, "%s: holds more than "
					   "%u values: copy the file again",
					   f->path, MJ_MAX_VALUES);
	}
	f->root = json_loadb(text, len, flags | JSON_REJECT_DUPLICATES, &jerr);
	free(text);
	if (!f->root)
		f->ret = model_fail(err, -EINVAL, "%s: line %d: %s: correct "
				    "it or copy the file again", f->path,
				    jerr.line, jerr.text);
	else if (!json_is_object(f->root))
		f->ret = model_fail(err, -EINVAL, "%s: holds no JSON object: "
				    "copy the file again", f->path);
	return f->ret;
}

void mj_close(struct mj_file *f)
{
	json_decref(f->root);
	json_decref(f->seen);
	json_decref(f->names);
	free(f->path);
	*f = (struct mj_file){ 0 };
}

int mj_fail(struct mj_file *f, int code, const char *key, const char *fmt, ...)
{
	const char *name = json_string_value(json_object_get(f->names, key));
	char why[640];
	va_list ap;

	if (f->ret)
		return f->ret;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return f->ret = model_fail(f->err, code, "%s: " MODEL_NAME_FMT ": %s",
				   f->path, name ? name : key, why);
}

json_t *mj_get(const json_t *obj, const char *key)
{
	json_t *v = json_object_get(obj, key);

	return v && !json_is_null(v) ? v : NULL;
}

void mj_note(struct mj_file *f, const char *key)
{
	if (!f->seen)
		f->seen = json_object();
	if (json_object_set_new(f->seen, key, json_true()) && !f->ret)
		f->ret = model_fail_errno(f->err, -ENOMEM, f->path, key);
}

json_t *mj_top(struct mj_file *f, const char *key)
{
	mj_note(f, key);
	return mj_get(f->root, key);
}

bool mj_has(struct mj_file *f, const char *key)
{
	return mj_top(f, key) != NULL;
}

void mj_each_unseen(struct mj_file *f,
		    void (*fn)(struct mj_file *f, const char *key, json_t *v,
			       void *arg), void *arg)
{
	const char *key;
	json_t *v;

	json_object_foreach(f->root, key, v)
		if (!json_is_null(v) && !json_object_get(f->seen, key))
			fn(f, key, v, arg);
}

/* The value for a getter; keys of inner objects are not noted. */
static json_t *mj_want(struct mj_file *f, const json_t *obj, const char *key)
{
	return obj == f->root ? mj_top(f, key) : mj_get(obj, key);
}

void mj_u32(struct mj_file *f, const json_t *obj, const char *key, u32 lo,
	    u32 hi, u32 *out)
{
	json_t *v = mj_want(f, obj, key);
	double d;

	if (f->ret || !v)
		return;
	d = json_number_value(v);
	if (!json_is_number(v) || d != floor(d))
		mj_fail(f, -EINVAL, key, "is no whole number: correct it");
	else if (d < lo || d > hi)
		mj_fail(f, -EINVAL, key, "%.12g is outside %u..%u: correct it",
			d, lo, hi);
	else
		*out = d;
}

void mj_need_u32(struct mj_file *f, const json_t *obj, const char *key, u32 lo,
		 u32 hi, u32 *out)
{
	if (!mj_get(obj, key))
		mj_fail(f, -EINVAL, key, "is missing: copy the file again");
	mj_u32(f, obj, key, lo, hi, out);
}

void mj_real(struct mj_file *f, const json_t *obj, const char *key, double lo,
	     double hi, double *out)
{
	json_t *v = mj_want(f, obj, key);
	double d;

	if (f->ret || !v)
		return;
	d = json_number_value(v);
	if (!json_is_number(v))
		mj_fail(f, -EINVAL, key, "is no number: correct it");
	else if (!(d >= lo && d <= hi))
		mj_fail(f, -EINVAL, key, "%.12g is outside %g..%g: correct it",
			d, lo, hi);
	else
		*out = d;
}

void mj_need_real(struct mj_file *f, const json_t *obj, const char *key,
		  double lo, double hi, double *out)
{
	if (!mj_get(obj, key))
		mj_fail(f, -EINVAL, key, "is missing: copy the file again");
	mj_real(f, obj, key, lo, hi, out);
}

void mj_bool(struct mj_file *f, const json_t *obj, const char *key, bool *out)
{
	json_t *v = mj_want(f, obj, key);

	if (f->ret || !v)
		return;
	if (!json_is_boolean(v))
		mj_fail(f, -EINVAL, key, "is neither true nor false: correct "
			"it");
	else
		*out = json_is_true(v);
}

const char *mj_str(struct mj_file *f, const json_t *obj, const char *key)
{
	json_t *v = mj_want(f, obj, key);

	if (f->ret || !v)
		return NULL;
	if (!json_is_string(v))
		mj_fail(f, -EINVAL, key, "is no string: correct it");
	return json_string_value(v);
}
